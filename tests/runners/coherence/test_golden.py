"""Exact comparison with the golden ids: first divergence, ties, the engine's own stop and margins."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.coherence.golden import GoldenKind, judge_golden
from runners.engines.base import GreedyAnswer

EOS = 9
GOLDEN = (4, 5, 6, 7, EOS)


def answer(
    ids: tuple[int, ...],
    *,
    margins: tuple[float | None, ...] | None = None,
    top1: tuple[int | None, ...] | None = None,
    finish: str | None = "stop",
) -> GreedyAnswer:
    return GreedyAnswer(ids, "", margins if margins is not None else (16.0,) * len(ids), finish, None, top1 if top1 is not None else ids)


def test_golden_ids_with_the_engines_own_stop_match() -> None:
    verdict = judge_golden(answer(GOLDEN), GOLDEN, EOS)
    assert verdict.kind is GoldenKind.MATCH
    assert verdict.first_divergence is None


def test_stop_that_is_not_listed_as_a_token_still_matches() -> None:
    assert judge_golden(answer(GOLDEN[:-1]), GOLDEN, EOS).kind is GoldenKind.MATCH


def test_answer_cut_before_its_end_is_wrong() -> None:
    verdict = judge_golden(answer(GOLDEN[:-1], finish="length"), GOLDEN, EOS)
    assert (verdict.kind, verdict.first_divergence) == (GoldenKind.WRONG, 4)


def test_answer_that_does_not_stop_is_wrong_after_its_last_golden_token() -> None:
    verdict = judge_golden(answer((*GOLDEN, 4, 5), finish="length"), GOLDEN, EOS)
    assert (verdict.kind, verdict.first_divergence) == (GoldenKind.WRONG, 5)
    assert "did not stop" in verdict.reason


def test_all_tokens_right_but_no_stop_reported_is_wrong() -> None:
    assert judge_golden(answer(GOLDEN, finish="length"), GOLDEN, EOS).kind is GoldenKind.WRONG


@pytest.mark.parametrize("position", range(4))
def test_first_divergence_is_the_first_different_token(position: int) -> None:
    ids = tuple(8 if i == position else token for i, token in enumerate(GOLDEN))
    verdict = judge_golden(answer(ids), GOLDEN, EOS)
    assert (verdict.kind, verdict.first_divergence) == (GoldenKind.WRONG, position)


def test_exact_tie_between_both_ids_excuses_the_divergence() -> None:
    ids = (4, 5, 8, 1, 1)
    verdict = judge_golden(answer(ids, margins=(9.0, 9.0, 0.0, 1.0, 1.0), top1=(4, 5, 6, 1, 1)), GOLDEN, EOS)
    assert (verdict.kind, verdict.first_divergence) == (GoldenKind.TIE, 2)


def test_tie_with_a_third_token_excuses_nothing() -> None:
    ids = (4, 5, 8, 1, 1)
    assert judge_golden(answer(ids, margins=(9.0, 9.0, 0.0, 1.0, 1.0), top1=(4, 5, 2, 1, 1)), GOLDEN, EOS).kind is GoldenKind.WRONG


def test_small_margin_is_no_tie() -> None:
    ids = (4, 5, 8, 1, 1)
    assert judge_golden(answer(ids, margins=(9.0, 9.0, 1e-6, 1.0, 1.0), top1=(4, 5, 6, 1, 1)), GOLDEN, EOS).kind is GoldenKind.WRONG


def test_least_margin_and_its_position_are_reported() -> None:
    verdict = judge_golden(answer(GOLDEN, margins=(9.0, 3.5, 16.0, None, 12.0)), GOLDEN, EOS)
    assert (verdict.margins.least, verdict.margins.least_position) == (3.5, 1)


def test_margins_after_the_divergence_are_not_looked_at() -> None:
    verdict = judge_golden(answer((4, 5, 8, 8, 8), margins=(10.0, 10.0, 5.0, 0.1, 0.1)), GOLDEN, EOS)
    assert (verdict.margins.least, verdict.margins.least_position) == (5.0, 2)


def test_without_logprobs_nothing_is_measured() -> None:
    assert judge_golden(answer(GOLDEN, margins=(None,) * 5), GOLDEN, EOS).margins.least is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=8), st.sampled_from(["stop", "length", None]))
def test_only_the_golden_ids_ever_match(ids: list[int], finish: str | None) -> None:
    verdict = judge_golden(answer(tuple(ids), finish=finish), GOLDEN, EOS)
    is_golden = finish == "stop" and tuple(ids) in (GOLDEN, GOLDEN[:-1])
    assert (verdict.kind is GoldenKind.MATCH) == is_golden
    assert (verdict.first_divergence is None) == is_golden
