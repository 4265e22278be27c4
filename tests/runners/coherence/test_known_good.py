"""Membership in the known good set: what rounding may explain and what it may not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.coherence.judging import Observed
from runners.coherence.known_good import TOLERANCE_NATS, Comparison, KnownAnswer, Membership, compare


def known(text: str, margin: float | None = 8.0) -> KnownAnswer:
    tokens = tuple(text.split(" "))
    return KnownAnswer(text, tokens, (margin,) * len(tokens))


def observed(text: str, margin: float | None = 8.0) -> Observed:
    tokens = tuple(text.split(" "))
    return Observed(tokens, (margin,) * len(tokens))


def against(text: str, *answers: KnownAnswer, margin: float | None = 8.0) -> Comparison:
    return compare(text, observed(text, margin), answers)


def test_any_of_several_alternatives_is_known() -> None:
    assert against("the sea was grey", known("the sea was blue"), known("the sea was grey")).membership is Membership.KNOWN


def test_ids_decide_where_both_sides_have_them() -> None:
    same_text = compare("a b", Observed((1, 2), (8.0, 8.0)), [KnownAnswer("a b", (1, 3), (8.0, 8.0))])
    assert same_text.membership is Membership.OTHER
    assert same_text.position == 1


@pytest.mark.parametrize(
    ("own", "trusted", "membership"),
    [
        (0.4, 0.5, Membership.NEAR_TIE),
        (TOLERANCE_NATS, 0.0, Membership.NEAR_TIE),
        (0.6, 0.5, Membership.OTHER),
        (None, 0.5, Membership.NEAR_TIE),
        (None, 1.5, Membership.OTHER),
        (0.1, None, Membership.NEAR_TIE),
        (None, None, Membership.UNKNOWN),
    ],
)
def test_the_shift_of_the_gap_at_the_first_difference_decides(own: float | None, trusted: float | None, membership: Membership) -> None:
    found = against("the sea was grey today", known("the sea was blue today", trusted), margin=own)
    assert found.membership is membership
    assert found.position == 3


def test_the_alternative_that_agrees_longest_is_the_one_compared() -> None:
    found = against("the sea was grey", known("a lake is blue", 0.1), known("the sea was blue", 9.0))
    assert (found.membership, found.position) == (Membership.OTHER, 3)


def test_text_alone_is_placed_at_the_token_of_the_known_answer() -> None:
    answer = KnownAnswer("the sea was blue", ("the", " sea", " was", " blue", "<eos>"), (9.0, 9.0, 9.0, 0.2, 9.0))
    found = compare("the sea was grey", Observed(), [answer])
    assert (found.membership, found.position) == (Membership.NEAR_TIE, 3)
    assert compare("the bay was blue", Observed(), [answer]).membership is Membership.OTHER


def test_tokens_that_do_not_spell_the_text_place_nothing() -> None:
    answer = KnownAnswer("the sea", ("<think>", "the", " sea"), (0.1, 0.1, 0.1))
    assert compare("the bay", Observed(), [answer]).membership is Membership.UNKNOWN


def test_an_answer_that_ends_early_is_judged_by_the_margin_of_going_on() -> None:
    found = against("the sea", known("the sea was blue", 0.3), margin=8.0)
    assert (found.membership, found.position, found.shift) == (Membership.NEAR_TIE, 2, 0.3)


_WORDS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=6).map(tuple)
_MARGINS = st.lists(st.none() | st.floats(0, 20), max_size=8).map(tuple)


@settings(max_examples=300, deadline=None)
@given(_WORDS, _MARGINS, st.lists(st.tuples(_WORDS | st.just(()), _MARGINS), min_size=1, max_size=3), st.booleans())
def test_any_answer_is_compared(
    words: tuple[str, ...],
    margins: tuple[float | None, ...],
    alternatives: list[tuple[tuple[str, ...], tuple[float | None, ...]]],
    tokens: bool,
) -> None:
    answers = [KnownAnswer("".join(w), w, m) for w, m in alternatives]
    found = compare("".join(words), Observed(words if tokens else (), margins), answers)
    assert (found.membership is Membership.KNOWN) == (found.position is None and found.shift is None and "One of" in found.reason)
    if found.membership is Membership.NEAR_TIE:
        assert found.shift is not None
        assert found.shift <= TOLERANCE_NATS
