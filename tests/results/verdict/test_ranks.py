from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, rankdata

from results.verdict.ranks import mann_whitney_p, shift_of, smallest_p

TIED = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=5)
VALUES = st.lists(st.floats(-50, 50), min_size=1, max_size=6)


def p_by_dealing(a: list[float], b: list[float]) -> float:
    """The slow literal twin: every way of dealing the values to two sides of these sizes."""
    ranks = rankdata([*a, *b])
    observed = round(2 * sum(ranks[: len(a)]))
    sums = [round(2 * sum(chosen)) for chosen in combinations(ranks, len(a))]
    below, above = sum(s <= observed for s in sums), sum(s >= observed for s in sums)
    return float(min(1.0, 2 * min(below, above) / len(sums)))


@given(TIED, TIED)
def test_with_ties_every_deal_is_counted(a: list[float], b: list[float]) -> None:
    assert mann_whitney_p(a, b) == pytest.approx(p_by_dealing(a, b))


@given(VALUES, VALUES)
def test_without_ties_it_is_the_exact_test_of_scipy(a: list[float], b: list[float]) -> None:
    if len({*a, *b}) == len(a) + len(b):
        assert mann_whitney_p(a, b) == pytest.approx(float(mannwhitneyu(a, b, method="exact").pvalue))
        assert mann_whitney_p(a, b) == pytest.approx(p_by_dealing(a, b))


@given(TIED, TIED)
def test_swapping_the_sides_keeps_p(a: list[float], b: list[float]) -> None:
    assert mann_whitney_p(a, b) == pytest.approx(mann_whitney_p(b, a))


@pytest.mark.parametrize(("size", "below_alpha"), [(3, False), (4, False), (5, True)])
def test_five_boots_a_side_are_needed_for_one_percent(size: int, below_alpha: bool) -> None:
    separated = mann_whitney_p(list(range(size)), list(range(10, 10 + size)))
    assert separated == pytest.approx(smallest_p(size, size))
    assert (separated < 0.01) is below_alpha


def test_identical_sides_are_no_news() -> None:
    assert mann_whitney_p([5.0] * 6, [5.0] * 6) == 1.0


@pytest.mark.parametrize("sizes", [(70, 70), (10, 500)])
def test_large_samples_are_answered_approximately(sizes: tuple[int, int]) -> None:
    a, b = [float(i) for i in range(sizes[0])], [i + 0.5 for i in range(sizes[1])]
    assert 0 <= mann_whitney_p(a, b) <= 1
    shift = shift_of(a, b)
    assert shift.low <= shift.estimate <= shift.high


@pytest.mark.parametrize("call", [lambda: mann_whitney_p([], [1.0]), lambda: shift_of([1.0], [])])
def test_an_empty_side_is_an_error(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="each side"):
        call()


def test_the_shift_is_the_median_of_all_differences() -> None:
    shift = shift_of([0.0, 1.0, 2.0], [10.0, 11.0, 15.0])
    assert shift.estimate == 10.0
    assert (shift.low, shift.high) == (8.0, 15.0)
    assert shift.level == pytest.approx(0.9)


@given(st.integers(5, 8), st.integers())
def test_the_interval_excludes_nothing_happened_exactly_when_the_test_does(size: int, seed: int) -> None:
    chance = random.Random(seed)
    a, b = [chance.gauss(0, 1) for _ in range(size)], [chance.gauss(1, 1) for _ in range(size)]
    shift = shift_of(a, b, level=0.99)
    assert (shift.low > 0 or shift.high < 0) == (mann_whitney_p(a, b) <= 1 - shift.level + 1e-12)
