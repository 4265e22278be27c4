from __future__ import annotations

import math
from itertools import combinations, pairwise
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.verdict.segments import Segment, criterion, deviations, segment
from tests.results.verdict.boots import scatter

HISTORY = st.lists(st.one_of(st.floats(0.5, 2.0), st.sampled_from([1.0, 1.05, 2.0])), min_size=1, max_size=9)


def best_by_trying_all(values: list[float]) -> float:
    """The slow literal twin: the criterion of the best of all 2^(n-1) partitions."""
    logs = [math.log(value) for value in values]
    n = len(logs)
    best = math.inf
    for count in range(n):
        for cuts in combinations(range(1, n), count):
            bounds = [0, *cuts, n]
            pieces = [logs[start:stop] for start, stop in pairwise(bounds)]
            deviation = sum(abs(value - median(piece)) for piece in pieces for value in piece)
            best = min(best, criterion(deviation, len(pieces), n))
    return best


def criterion_of(values: list[float], segments: tuple[Segment, ...]) -> float:
    deviation = sum(abs(math.log(value) - math.log(one.level)) for one in segments for value in values[one.start : one.stop])
    return criterion(deviation, len(segments), len(values))


@settings(max_examples=60, deadline=None)
@given(HISTORY)
def test_no_partition_beats_the_chosen_one(values: list[float]) -> None:
    assert criterion_of(values, segment(values)) == pytest.approx(best_by_trying_all(values), abs=1e-6)


def test_no_partition_of_twelve_beats_the_chosen_one() -> None:
    values = [*scatter(50, 4, 1), *scatter(47, 5, 2), *scatter(52, 3, 3)]
    assert criterion_of(values, segment(values)) == pytest.approx(best_by_trying_all(values), abs=1e-6)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=15))
def test_every_window_costs_its_deviation_from_its_median(values: list[float]) -> None:
    costs = deviations(values)
    for start in range(len(values)):
        for stop in range(start + 1, len(values) + 1):
            window = values[start:stop]
            middle = median(window)
            assert costs[start, stop - 1] == pytest.approx(sum(abs(value - middle) for value in window), abs=1e-9)


@given(HISTORY)
def test_segments_cover_the_history_once_and_in_order(values: list[float]) -> None:
    segments = segment(values)
    assert segments[0].start == 0
    assert segments[-1].stop == len(values)
    assert all(one.stop == after.start for one, after in pairwise(segments))


def test_a_step_of_five_percent_is_found_where_it_is() -> None:
    values = [*scatter(50, 7, 1), *scatter(47.5, 5, 2)]
    first, second = segment(values)
    assert (first.stop, second.start) == (7, 7)
    assert second.level / first.level == pytest.approx(0.95, abs=0.005)


@pytest.mark.parametrize("length", [1, 12, 40])
def test_a_quiet_history_is_one_level(length: int) -> None:
    assert len(segment(scatter(50, length, 4))) == 1
    assert len(segment([50.0] * length)) == 1


def test_the_unit_does_not_matter() -> None:
    values = [*scatter(50, 7, 1), *scatter(47, 5, 2)]
    assert [(one.start, one.stop) for one in segment(values)] == [
        (one.start, one.stop) for one in segment([value * 1e6 for value in values])
    ]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_history_with_a_number_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive finite"):
        segment([1.0, bad])


def test_an_empty_history_has_no_segments() -> None:
    assert segment([]) == ()
