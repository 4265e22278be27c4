from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.verdict.outcomes import ReleaseOutcome, judge_outcomes, state_of
from results.verdict.words import NO_EVIDENCE, CellState, State, Verdict
from results.vocabulary import Outcome

P, C, H, W, X, U, F = (
    Outcome.PASS,
    Outcome.CRASH,
    Outcome.HANG,
    Outcome.INCOHERENT,
    Outcome.INFRASTRUCTURE,
    Outcome.UNSUPPORTED,
    Outcome.INSTALL_FAILED,
)


def judge(*releases: list[Outcome]) -> tuple[ReleaseOutcome, ...]:
    order = [f"0.{number}.0" for number in range(1, len(releases) + 1)]
    return judge_outcomes(dict(zip(order, releases, strict=True)), order)


@pytest.mark.parametrize(
    ("boots", "state"),
    [
        ([P, P, P], P),
        ([C, C, C], C),
        ([C, H, H], H),
        ([P, C, P], CellState.FLAKY),
        ([P, X, P], P),
        ([X, F, Outcome.INTERRUPTED], CellState.NOT_RUN),
        ([], CellState.NOT_RUN),
        ([U], U),
        ([P, U], CellState.FLAKY),
    ],
)
def test_state_over_the_boots_of_one_release(boots: list[Outcome], state: State) -> None:
    assert state_of(boots) == state


def test_mixed_failures_name_the_most_frequent_and_keep_all() -> None:
    (only,) = judge([C, H, H])
    assert only.counts == ((H, 2), (C, 1))
    assert only.state is H


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ([P, P], [P, P], Verdict.UNCHANGED),
        ([P, P], [C, C], Verdict.BROKE),
        ([P, P], [P, C], Verdict.BROKE),
        ([C, C], [P, P], Verdict.FIXED),
        ([P, C], [P, P], Verdict.FIXED),
        ([C, C], [C], Verdict.STILL_BROKEN),
        ([C, C], [W, W], Verdict.STILL_BROKEN),
        ([C, C], [P, C], Verdict.STILL_BROKEN),
        ([P, P], [U], Verdict.GONE),
        ([C, C], [U], Verdict.GONE),
        ([U], [P], Verdict.NEW),
        ([U], [C, C], Verdict.NEW),
        ([U], [U], Verdict.UNCHANGED),
    ],
)
def test_transition_between_two_releases(before: list[Outcome], after: list[Outcome], verdict: Verdict) -> None:
    first, second = judge(before, after)
    assert first.verdict is Verdict.NEW
    assert second.verdict is verdict


@pytest.mark.parametrize("nothing", [[], [X], [X, X], [F], [Outcome.INTERRUPTED]])
def test_what_happened_across_a_release_without_evidence_is_a_range(nothing: list[Outcome]) -> None:
    _, middle, last = judge([P, P], nothing, [C, C])
    assert middle.verdict is None
    assert middle.state is CellState.NOT_RUN
    assert not middle.confirmed
    assert (last.verdict, last.after, last.skipped) == (Verdict.BROKE, "0.1.0", ("0.2.0",))
    assert last.where == "between 0.1.0 and 0.3.0"
    assert "between 0.1.0 and 0.3.0" in last.reason


def test_a_break_between_neighbours_is_no_range() -> None:
    assert judge([P], [C, C])[1].where == "in 0.2.0"


def test_one_failing_boot_raises_no_alarm_and_a_second_does() -> None:
    detected = judge([P, P, P], [C])[1]
    assert (detected.verdict, detected.confirmed, detected.boots_needed, detected.alarm) == (Verdict.BROKE, False, 1, False)
    assert "one more boot that agrees would confirm it" in detected.reason
    confirmed = judge([P, P, P], [C, C])[1]
    assert (confirmed.confirmed, confirmed.boots_needed, confirmed.alarm) == (True, 0, True)


def test_a_single_failing_boot_among_passing_ones_is_flaky_without_alarm() -> None:
    once = judge([P, P, P], [P, C, P])[1]
    assert (once.state, once.alarm) == (CellState.FLAKY, False)
    assert judge([P, P, P], [P, C, P, C])[1].alarm


def test_a_break_seen_once_is_confirmed_by_the_next_failing_release() -> None:
    _, broke, still = judge([P], [C], [C])
    assert (broke.confirmed, still.confirmed) == (False, True)
    assert still.since == "0.2.0"


def test_a_backend_that_comes_back_broken_is_an_alarm_but_the_first_release_ever_tried_is_not() -> None:
    assert judge([P], [U], [C, C])[2].alarm
    assert not judge([C, C])[0].alarm


def test_a_flaky_cell_is_fixed_only_when_luck_is_ruled_out() -> None:
    assert judge([P, P, P, C], [P] * 10)[1].boots_needed == 1
    assert judge([P, P, P, C], [P] * 11)[1].confirmed
    assert judge([C, C, C], [P, P])[1].confirmed


def test_infrastructure_on_both_ends_never_makes_a_verdict() -> None:
    assert [outcome.verdict for outcome in judge([X], [P, P], [X, X])] == [None, Verdict.NEW, None]


OUTCOMES = st.lists(st.lists(st.sampled_from(list(Outcome)), max_size=5), min_size=1, max_size=6)


@given(OUTCOMES, st.data())
def test_an_infrastructure_boot_more_changes_nothing(releases: list[list[Outcome]], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(releases) - 1))
    extra = data.draw(st.sampled_from(sorted(NO_EVIDENCE)))
    more = [list(boots) + [extra] * (number == index) for number, boots in enumerate(releases)]

    def told(one: ReleaseOutcome) -> tuple[object, ...]:
        return one.state, one.verdict, one.after, one.skipped, one.since, one.confirmed, one.boots_needed

    assert [told(one) for one in judge(*releases)] == [told(one) for one in judge(*more)]


@given(OUTCOMES, st.randoms(use_true_random=False))
def test_the_order_of_boots_within_a_release_changes_nothing(releases: list[list[Outcome]], chance: random.Random) -> None:
    shuffled = [chance.sample(boots, len(boots)) for boots in releases]
    assert judge(*releases) == judge(*shuffled)


@given(OUTCOMES)
def test_a_range_spans_exactly_the_releases_without_evidence(releases: list[list[Outcome]]) -> None:
    judged = judge(*releases)
    names = [one.release for one in judged]
    for position, one in enumerate(judged):
        if one.after is not None:
            between = names[names.index(one.after) + 1 : position]
            assert one.skipped == tuple(between)
            assert all(judged[names.index(name)].verdict is None for name in between)


@given(OUTCOMES)
def test_passing_releases_are_never_alarms(releases: list[list[Outcome]]) -> None:
    assert not any(one.alarm for one in judge(*releases) if one.state in (P, U, CellState.NOT_RUN))
