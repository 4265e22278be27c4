from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.verdict.metrics import METRICS, Metric
from results.verdict.numbers import ALPHA, NumberVerdict, Side, judge_numbers, two_speeds
from results.verdict.words import Verdict
from tests.results.verdict.boots import scatter

DECODE, TTFT = METRICS["decode_tok_s"], METRICS["ttft_s"]
NEWS = (Verdict.FASTER, Verdict.SLOWER)


def side(release: str, level: float, boots: int, seed: int, rerun: int = 0, spread: float = 0.004) -> Side:
    return Side(release, tuple(scatter(level, boots, seed, spread)), tuple(scatter(level, rerun, seed + 1000, spread)))


@pytest.mark.parametrize(
    ("metric", "ratio", "verdict"),
    [
        (DECODE, 0.94, Verdict.SLOWER),
        (DECODE, 1.06, Verdict.FASTER),
        (TTFT, 0.92, Verdict.FASTER),
        (TTFT, 1.08, Verdict.SLOWER),
        (DECODE, 1.02, Verdict.UNCHANGED),
        (TTFT, 1.04, Verdict.UNCHANGED),
    ],
)
def test_a_confirmed_change_has_the_direction_of_its_metric(metric: Metric, ratio: float, verdict: Verdict) -> None:
    judged = judge_numbers(metric, side("1", 50, 5, 1, rerun=5), side("2", 50 * ratio, 5, 2, rerun=5))
    assert judged.verdict is verdict
    assert judged.effect == pytest.approx(ratio - 1, abs=0.006)
    assert judged.interval is not None and judged.effect is not None
    assert judged.interval[0] <= judged.effect <= judged.interval[1]
    assert (judged.p is not None and judged.p < ALPHA) == (verdict in NEWS)


def test_a_move_without_a_rerun_is_only_detected_and_says_what_would_decide_it() -> None:
    judged = judge_numbers(DECODE, side("1", 50, 3, 1), side("2", 45, 3, 2))
    assert (judged.verdict, judged.moved, judged.boots_to_decide) == (Verdict.INCONCLUSIVE, True, 6)
    assert "run 3 more boots of each release, interleaved" in judged.reason
    assert judged.effect is not None
    assert f"moved {judged.effect:+.1%} (its medians" in judged.reason  # the number that stands beside the reason


def test_the_boots_said_to_decide_do_decide() -> None:
    asked = judge_numbers(DECODE, side("1", 50, 3, 1), side("2", 45, 3, 2)).boots_to_decide
    assert asked is not None
    decided = judge_numbers(DECODE, side("1", 50, 3, 1, rerun=asked - 3), side("2", 45, 3, 2, rerun=asked - 3))
    assert decided.verdict is Verdict.SLOWER


@pytest.mark.parametrize(("old", "new"), [(1, 1), (2, 5), (5, 2)])
def test_too_few_boots_are_inconclusive_however_far_apart(old: int, new: int) -> None:
    judged = judge_numbers(DECODE, side("1", 50, old, 1), side("2", 20, new, 2))
    assert (judged.verdict, judged.boots_to_decide) == (Verdict.INCONCLUSIVE, 3)
    assert (judged.interval, judged.interval_level) == (None, None), "of so few boots it would claim more than it covers"
    assert any("few boots" in warning for warning in judged.warnings)


def test_a_side_without_the_number_is_inconclusive() -> None:
    assert judge_numbers(DECODE, Side("1", ()), side("2", 50, 3, 1)).verdict is Verdict.INCONCLUSIVE


def test_a_slow_session_that_the_rerun_does_not_repeat_is_unchanged() -> None:
    slow_session = Side("2", tuple(scatter(46, 5, 2)), tuple(scatter(50, 5, 3)))
    judged = judge_numbers(DECODE, side("1", 50, 5, 1, rerun=5), slow_session)
    assert judged.verdict is Verdict.UNCHANGED
    assert "a first" in judged.reason and "re-run moved" in judged.reason


def test_a_rerun_in_the_other_direction_is_unchanged() -> None:
    turned = Side("2", tuple(scatter(46, 5, 2)), tuple(scatter(54, 5, 3)))
    assert judge_numbers(DECODE, side("1", 50, 5, 1, rerun=5), turned).verdict is Verdict.UNCHANGED


def test_a_return_to_the_level_after_one_odd_release_is_no_news() -> None:
    odd, back = side("3", 55, 5, 1, rerun=5), side("4", 50, 5, 2, rerun=5)
    assert judge_numbers(DECODE, odd, back).verdict is Verdict.SLOWER
    judged = judge_numbers(DECODE, odd, back, earlier=scatter(50, 15, 5))
    assert judged.verdict is Verdict.UNCHANGED
    assert "level" in judged.reason


def test_earlier_releases_at_the_same_level_let_the_test_see_more() -> None:
    noisy = 0.022
    old, new = side("1", 50, 3, 4, rerun=3, spread=noisy), side("2", 47, 3, 9, rerun=3, spread=noisy)
    alone = judge_numbers(DECODE, old, new)
    with_history = judge_numbers(DECODE, old, new, earlier=scatter(50, 30, 7, noisy))
    assert alone.p is not None and with_history.p is not None
    assert with_history.p < alone.p
    assert with_history.n_level == 36


def test_boots_at_two_speeds_are_not_a_step() -> None:
    """GB10 has a hidden slow state (63 -> 94 ms a step); a release that met it more often did not become slower."""
    old = Side("1", tuple(scatter(63, 5, 1)), tuple(scatter(63, 5, 2)))
    new = Side("2", (*scatter(94, 4, 3), 63.1), tuple(scatter(94, 5, 4)))
    judged = judge_numbers(TTFT, old, new)
    assert (judged.verdict, judged.boots_to_decide) == (Verdict.INCONCLUSIVE, None)
    assert "two speeds" in judged.reason
    assert judge_numbers(TTFT, old, replace(new, record=tuple(scatter(94, 5, 3)))).verdict is Verdict.SLOWER


def test_a_step_with_an_outlier_on_each_side_is_not_two_speeds() -> None:
    old = [math.log(value) for value in (*scatter(50, 9, 1), 55.0)]
    new = [math.log(value) for value in (*scatter(55, 9, 2), 61.0)]
    assert not two_speeds(old, new)


def test_equal_boots_everywhere_are_unchanged() -> None:
    fixed = Side("1", (50.0,) * 5, (50.0,) * 5)
    assert judge_numbers(DECODE, fixed, replace(fixed, release="2")).verdict is Verdict.UNCHANGED


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_number_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        judge_numbers(DECODE, Side("1", (50.0, bad, 50.0)), side("2", 50, 3, 1))


BOOTS = st.tuples(st.integers(3, 6), st.integers(0, 6))


@st.composite
def pair(draw: st.DrawFn) -> tuple[Side, Side]:
    """Two releases with a step between them and scatter, from nothing to plenty of both."""
    chance = random.Random(draw(st.integers()))
    step, spread = draw(st.sampled_from([0.0, 0.02, 0.06, 0.3])), draw(st.sampled_from([0.0, 0.002, 0.01, 0.03]))
    (old_record, old_rerun), (new_record, new_rerun) = draw(BOOTS), draw(BOOTS)

    def values(level: float, count: int) -> tuple[float, ...]:
        return tuple(round(level * math.exp(chance.gauss(0, spread)), 2) for _ in range(count))

    old = Side("1", values(50, old_record), values(50, old_rerun))
    return old, Side("2", values(50 * (1 + step), new_record), values(50 * (1 + step), new_rerun))


OPPOSITE = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


@settings(max_examples=200, deadline=None)
@given(pair())
def test_swapping_the_sides_flips_the_sign(sides: tuple[Side, Side]) -> None:
    forward, backward = judge_numbers(DECODE, *sides), judge_numbers(DECODE, sides[1], sides[0])
    assert backward.verdict is OPPOSITE.get(forward.verdict, forward.verdict)
    assert forward.effect is not None and backward.effect is not None
    assert (1 + forward.effect) * (1 + backward.effect) == pytest.approx(1)
    assert (forward.p is None) == (backward.p is None)


@settings(max_examples=100, deadline=None)
@given(pair(), st.sampled_from([0.001, 8.0, 1e6]))
def test_the_unit_does_not_matter(sides: tuple[Side, Side], factor: float) -> None:
    def scaled(one: Side) -> Side:
        return replace(one, record=tuple(value * factor for value in one.record), rerun=tuple(value * factor for value in one.rerun))

    assert judge_numbers(DECODE, scaled(sides[0]), scaled(sides[1])).verdict is judge_numbers(DECODE, *sides).verdict


@settings(max_examples=100, deadline=None)
@given(pair(), st.integers())
def test_the_order_of_boots_does_not_matter(sides: tuple[Side, Side], seed: int) -> None:
    chance = random.Random(seed)

    def shuffled(one: Side) -> Side:
        return replace(one, record=tuple(chance.sample(one.record, len(one.record))), rerun=tuple(chance.sample(one.rerun, len(one.rerun))))

    assert judge_numbers(DECODE, shuffled(sides[0]), shuffled(sides[1])) == judge_numbers(DECODE, *sides)


@settings(max_examples=200, deadline=None)
@given(pair())
def test_news_always_has_every_proof_it_needs(sides: tuple[Side, Side]) -> None:
    judged: NumberVerdict = judge_numbers(DECODE, *sides)
    if judged.verdict in NEWS:
        assert judged.p is not None and judged.p < ALPHA
        assert judged.effect is not None and abs(math.log1p(judged.effect)) >= DECODE.log_floor - 1e-9
        assert judged.n_rerun >= 3
    assert judged.reason
