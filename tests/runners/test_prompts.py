"""Timed prompts: exact length, safe ids, and nothing that an earlier request left in a prefix cache."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.prompts import NONCE_TOKENS, PromptKey, Vocabulary, timed_prompt
from runners.rates import CACHED_TOKENS_ALLOWANCE

KEY = PromptKey("run-1", "decode_c1", 0, 0)
SMALL = Vocabulary(1024, bos_id=1019, forbidden_ids=frozenset(range(1018, 1024)))


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Length of the common prefix."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True)))


@settings(deadline=None)
@given(
    st.integers(NONCE_TOKENS + 1, 600),
    st.builds(
        Vocabulary,
        size=st.sampled_from([400, 1024, 151_669]),
        bos_id=st.none() | st.integers(0, 399),
        forbidden_ids=st.frozensets(st.integers(0, 399), max_size=100),
    ),
    st.builds(PromptKey, st.text(max_size=10), st.text(max_size=10), st.integers(0, 9), st.integers(0, 99), st.booleans()),
)
def test_prompt_has_the_asked_length_and_only_allowed_ids(tokens: int, vocabulary: Vocabulary, key: PromptKey) -> None:
    prompt = timed_prompt(key, tokens, vocabulary)
    body = prompt if vocabulary.bos_id is None else prompt[1:]
    assert len(prompt) == tokens
    assert vocabulary.bos_id is None or prompt[0] == vocabulary.bos_id
    assert all(0 <= i < vocabulary.size and i not in vocabulary.forbidden_ids and i != vocabulary.bos_id for i in body)
    assert prompt == timed_prompt(key, tokens, vocabulary)


def test_prompts_do_not_change_between_releases_of_ours() -> None:
    """A changed prompt starts a new series of measurements: raise `PROTOCOL_VERSION` with it."""
    assert timed_prompt(KEY, 32, SMALL)[:6] == (1019, 442, 945, 906, 678, 16)


@pytest.mark.parametrize("changed", [{"run_id": "run-2"}, {"workload": "decode_c8"}, {"repeat": 1}, {"stream": 1}, {"cold": True}])
def test_anything_that_differs_changes_the_start_of_the_prompt(changed: dict[str, str | int | bool]) -> None:
    one, other = timed_prompt(KEY, 128, SMALL), timed_prompt(replace(KEY, **changed), 128, SMALL)  # type: ignore[arg-type]
    assert shared(one, other) <= CACHED_TOKENS_ALLOWANCE


def test_prompts_of_a_whole_run_share_no_more_than_the_cache_allowance() -> None:
    keys = [
        PromptKey("run-1", workload, repeat, stream, cold)
        for workload, streams in (("decode_c1", 1), ("decode_c8", 8))
        for repeat, stream, cold in itertools.product(range(6), range(streams), (True, False))
    ]
    prompts = [timed_prompt(key, 128, SMALL) for key in keys]
    assert max(shared(a, b) for a, b in itertools.combinations(prompts, 2)) <= CACHED_TOKENS_ALLOWANCE


def test_repeats_do_the_same_work_after_the_nonce() -> None:
    prompts = [timed_prompt(replace(KEY, repeat=repeat), 128, SMALL) for repeat in range(3)]
    assert len({p[1 + NONCE_TOKENS :] for p in prompts}) == 1


def test_prompt_too_short_for_a_nonce_is_refused() -> None:
    with pytest.raises(ValueError, match="needs at least 25 tokens"):
        timed_prompt(KEY, 24, SMALL)


@pytest.mark.parametrize(
    ("size", "bos_id", "forbidden", "message"),
    [
        (100, None, frozenset[int](), "leaves 100 for prompts"),
        (300, None, frozenset(range(100)), "leaves 200"),
        (1000, 1000, frozenset[int](), "BOS id 1000"),
    ],
)
def test_unusable_vocabulary_is_refused(size: int, bos_id: int | None, forbidden: frozenset[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Vocabulary(size, bos_id, forbidden)
