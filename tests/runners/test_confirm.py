"""Which boots a still open verdict asks for, and that asking, booting and judging in turn ends in a decision."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.verdict.cell import CellVerdict, judge_cell
from results.verdict.facts import BootFact, CellHistory, SeriesKey
from results.verdict.words import Verdict
from results.vocabulary import Outcome
from runners.confirm import MOST_BOOTS, turns_to_confirm

KEY = SeriesKey("vllm", "model", "eager", "node")
SPEED = "decode_c1/decode_tok_s"
OLD, NEW = "0.31.0", "0.32.0"
Value = float | Outcome


def _boot(number: int, release: str, value: Value, session: str = "s", series: str = SPEED) -> BootFact:
    started = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=10 * number)
    passed = not isinstance(value, Outcome)
    return BootFact(
        run_id=f"run-{number:03}",
        release=release,
        outcome=Outcome.PASS if passed else value,
        node_id="node",
        session_id=session,
        started_at=started.isoformat(),
        finished_at=(started + timedelta(minutes=5)).isoformat(),
        metrics={series: value} if isinstance(value, float) else {},
    )


def _judged(*boots: tuple[str, Value], series: str = SPEED) -> CellVerdict:
    facts = [_boot(i, release, value, session=f"s{i}", series=series) for i, (release, value) in enumerate(boots)]
    return judge_cell(CellHistory(KEY, facts))


def _visit(record: Sequence[tuple[str, Value]], measure: Callable[[str], Value]) -> tuple[CellVerdict, list[str]]:
    """What `run --confirm` does, without servers: judge, boot what is asked for, judge again. Returns the verdict and the boots made."""
    boots = [_boot(i, release, value, session=f"before-{i}") for i, (release, value) in enumerate(record)]
    made: list[str] = []
    while (turns := turns_to_confirm(verdict := judge_cell(CellHistory(KEY, boots)), NEW, Counter(made))) is not None:
        for release in turns.releases:
            boots.append(_boot(len(boots), release, measure(release), session="this visit"))
            made.append(release)
        assert len(made) <= 2 * MOST_BOOTS
    return verdict, made


def test_a_failure_seen_once_asks_for_one_more_boot_of_that_release_only() -> None:
    turns = turns_to_confirm(_judged((OLD, 100.0), (NEW, Outcome.INCOHERENT)), NEW, {})
    assert turns is not None
    assert turns.releases == (NEW,)


def test_a_failure_seen_twice_and_a_pass_as_before_ask_for_nothing() -> None:
    assert turns_to_confirm(_judged((OLD, 100.0), (NEW, Outcome.CRASH), (NEW, Outcome.CRASH)), NEW, {}) is None
    assert turns_to_confirm(_judged((OLD, 100.0), (NEW, 100.5)), NEW, {}) is None


@pytest.mark.parametrize("outcome", [Outcome.INFRASTRUCTURE, Outcome.INTERRUPTED, Outcome.INSTALL_FAILED, Outcome.UNSUPPORTED])
def test_what_says_nothing_about_the_engine_is_not_repeated(outcome: Outcome) -> None:
    assert turns_to_confirm(_judged((OLD, 100.0), (NEW, outcome)), NEW, {}) is None


def test_a_number_below_its_floor_asks_for_nothing_and_one_above_asks_for_both_releases_in_turns() -> None:
    assert turns_to_confirm(_judged((OLD, 100.0), (NEW, 97.5)), NEW, {}) is None
    few = turns_to_confirm(_judged((OLD, 100.0), (NEW, 90.0)), NEW, {})
    assert few is not None
    assert few.releases == (OLD, NEW, OLD, NEW), "three boots on record of each before anything is said of a speed"
    enough = _judged(*[(OLD, 100.0 + i) for i in range(3)], *[(NEW, 90.0 + i) for i in range(3)])
    rerun = turns_to_confirm(enough, NEW, {})
    assert rerun is not None
    assert rerun.releases == (OLD, NEW) * 3


def test_a_tail_asks_for_nothing() -> None:
    assert turns_to_confirm(_judged((OLD, 0.010), (NEW, 0.020), series="decode_c1/itl_p99_s"), NEW, {}) is None
    assert turns_to_confirm(_judged((OLD, 0.010), (NEW, 0.020), series="decode_c1/ttft_s"), NEW, {}) is not None


def test_a_release_with_many_boots_is_only_topped_up_on_the_other_side() -> None:
    judged = _judged(*[(OLD, 100.0 + i / 10) for i in range(5)], (NEW, 90.0))
    turns = turns_to_confirm(judged, NEW, {})
    assert turns is not None
    assert turns.releases == (NEW, NEW)


def test_a_release_that_was_never_run_asks_for_nothing() -> None:
    assert turns_to_confirm(_judged((OLD, 100.0)), NEW, {}) is None


def test_boots_beyond_the_most_are_not_asked_for() -> None:
    judged = _judged((OLD, 100.0), (NEW, 90.0))
    assert turns_to_confirm(judged, NEW, {NEW: MOST_BOOTS - 1}) is None
    assert turns_to_confirm(judged, NEW, {NEW: MOST_BOOTS - 2}) is not None


@given(st.integers(0, 2**32), st.sampled_from([0.85, 0.9, 1.12, 1.2]))
def test_a_real_change_is_confirmed_by_the_boots_asked_for(seed: int, factor: float) -> None:
    chance = random.Random(seed)

    def measure(release: str) -> float:
        return (100.0 if release == OLD else 100.0 * factor) * (1 + chance.uniform(-0.01, 0.01))

    verdict, made = _visit([(OLD, measure(OLD)), (NEW, measure(NEW))], measure)
    assert verdict.releases[-1].numbers[SPEED].verdict is (Verdict.SLOWER if factor < 1 else Verdict.FASTER)
    assert Counter(made) == {OLD: 5, NEW: 5}, "two of each to have three on record, then three of each in turns"


@given(st.integers(0, 2**32))
def test_no_boots_and_no_news_for_a_release_that_is_the_same(seed: int) -> None:
    chance = random.Random(seed)
    verdict, made = _visit(
        [(OLD, 100 * (1 + chance.uniform(-0.01, 0.01))), (NEW, 100 * (1 + chance.uniform(-0.01, 0.01)))],
        lambda release: 100 * (1 + chance.uniform(-0.01, 0.01)),
    )
    assert verdict.releases[-1].headline not in (Verdict.SLOWER, Verdict.FASTER)
    assert len(made) <= 4


@given(st.lists(st.sampled_from([Outcome.PASS, Outcome.CRASH, Outcome.INFRASTRUCTURE, Outcome.INCOHERENT]), min_size=40, max_size=40))
def test_a_flaky_cell_ends_with_a_decision_or_with_the_most_boots(outcomes: list[Outcome]) -> None:
    coming = iter(outcomes)

    def measure(release: str) -> Value:
        outcome = next(coming)
        return 100.0 if outcome is Outcome.PASS else outcome

    verdict, made = _visit([(OLD, 100.0), (NEW, Outcome.CRASH)], measure)
    last = verdict.releases[-1]
    assert last.outcome.confirmed or Counter(made)[NEW] >= MOST_BOOTS - 2
