from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.context.passages import (
    _FIRST,
    _SECOND,
    DEPTHS,
    QUESTION,
    depths_up_to,
    filler_texts,
    opening,
    pass_code,
    recalls,
    sentences,
)


def test_pass_code_is_new_for_every_boot_and_depth_and_the_same_when_asked_again() -> None:
    codes = {pass_code(run, depth) for run in ("a", "b", "c") for depth in DEPTHS}
    assert len(codes) == 3 * len(DEPTHS)
    assert pass_code("a", 1024) == pass_code("a", 1024)


def test_no_word_of_a_pass_code_is_in_the_filler_or_the_question() -> None:
    text = " ".join(islice(sentences(), 5_000)).lower() + QUESTION
    assert [word for word in (*_FIRST, *_SECOND) if word in text] == []


def test_filler_does_not_repeat_itself() -> None:
    many = list(islice(sentences(), 5_000))
    assert len(set(many)) > 4_800
    assert many == list(islice(sentences(), 5_000))


def test_filler_comes_in_pieces_small_enough_for_a_tokenizer_request() -> None:
    pieces = list(islice(filler_texts(6_000), 20))
    assert all(6_000 <= len(piece) < 6_300 for piece in pieces)
    assert "".join(pieces) == "".join(islice(sentences(), 100_000))[: sum(map(len, pieces))]


@pytest.mark.parametrize("answer", [" copper-otter-381. Then", "Copper - Otter - 381", "copper-otter-381", " **copper-otter-381**"])
def test_code_given_first_is_recalled(answer: str) -> None:
    assert recalls(answer, "copper-otter-381")


@pytest.mark.parametrize("answer", ["", " copper-otter-382", " the mill, not copper-otter-381", " copper", "!" * 48, " otter-copper-381"])
def test_anything_else_is_not(answer: str) -> None:
    assert not recalls(answer, "copper-otter-381")


def test_fact_stands_before_everything_that_could_be_cached() -> None:
    assert opening("copper-otter-381").index("copper-otter-381") < 60


@pytest.mark.parametrize(
    ("most", "depths"),
    [
        (131_072, DEPTHS),
        (8_000, (1_024, 4_096, 8_000)),
        (4_200, (1_024, 4_096)),
        (1_024, (1_024,)),
        (900, (900,)),
        (0, ()),
        (-50, ()),
        (1_000_000, DEPTHS),
    ],
)
def test_depths_go_as_far_as_the_context_reaches(most: int, depths: tuple[int, ...]) -> None:
    assert depths_up_to(DEPTHS, most) == depths


@given(st.lists(st.integers(1, 200_000), max_size=8), st.integers(-10, 200_000))
def test_depths_ascend_and_never_pass_the_limit(wanted: list[int], most: int) -> None:
    found = depths_up_to(wanted, most)
    assert list(found) == sorted(set(found))
    assert all(0 < depth <= most and depth <= max(wanted) for depth in found)
