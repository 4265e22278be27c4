"""What the boots of one release say in a bisect: like the start, like the end, or nothing that any boot will tell.

Traps: one passing boot of a cell that fails every second time is called good; a slow release is called bad because it fails for another
reason; a number half-way between both ends is filed by chance. Rules: a release is good only when as many boots as asked for passed, and
bad after one failure (of whatever kind: the kinds are shown); a number needs passing boots only, and belongs to the end whose median is
nearer (in logarithms); a release that cannot be installed or expressed tells nothing.

Everything here is pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from results.verdict.facts import BootFact
from results.verdict.metrics import metric_of
from results.verdict.outcomes import state_of
from results.verdict.words import NO_EVIDENCE, CellState, State
from results.vocabulary import Outcome
from runners.bisect.search import Answer


@dataclass(frozen=True)
class Question:
    """`releases` in the order of the search, from the good end to the bad one; `boots` to make of each.

    `series` None asks about pass and fail, else about that number. With the newest release first it is a repair that is looked for.
    """

    releases: tuple[str, ...]
    boots: int
    series: str | None = None


@dataclass(frozen=True)
class ReleaseAnswer:
    """What is known of one release. `answer` None: more boots are needed. `value`: median over its boots of the number asked about."""

    release: str
    answer: Answer | None
    state: State
    boots: int
    value: float | None
    reason: str
    run_ids: tuple[str, ...] = ()


def judged_releases(question: Question, boots: Mapping[str, Sequence[BootFact]], cannot: Mapping[str, str]) -> dict[str, ReleaseAnswer]:
    """Every release of the question that anything is known of.

    `boots` by release, all under one node state. `cannot` maps releases that get no (more) boots to the reason.
    """
    tested = {release: _without_answer(question, release, boots.get(release, ()), cannot.get(release)) for release in question.releases}
    known = {name: one for name, one in tested.items() if one.boots or one.answer is not None}
    if question.series is None:
        return _settled({name: _by_outcome(question, one) for name, one in known.items()}, cannot)
    start, end = (tested[release].value for release in (question.releases[0], question.releases[-1]))
    return _settled({name: _by_number(question, one, start, end) for name, one in known.items()}, cannot)


def _settled(judged: Mapping[str, ReleaseAnswer], cannot: Mapping[str, str]) -> dict[str, ReleaseAnswer]:
    """A release that has no answer yet and will get no more boots never gets one."""
    return {name: _never(one, cannot[name]) if one.answer is None and name in cannot else one for name, one in judged.items()}


def answers_of(tested: Mapping[str, ReleaseAnswer]) -> dict[str, Answer]:
    """Only the answers."""
    return {name: one.answer for name, one in tested.items() if one.answer is not None}


def _without_answer(question: Question, release: str, boots: Sequence[BootFact], cannot: str | None) -> ReleaseAnswer:
    evidence = [boot for boot in boots if boot.outcome not in NO_EVIDENCE]
    state = state_of([boot.outcome for boot in boots])
    values = [value for boot in evidence if (value := boot.metrics.get(question.series or "")) is not None and 0 < value < math.inf]
    enough = len(values) >= question.boots
    runs = tuple(boot.run_id for boot in boots)
    told = f"{_boots(len(evidence))}: {state}" if evidence else "no evidence"
    tested = ReleaseAnswer(release, None, state, len(evidence), median(values) if values and enough else None, told, runs)
    if not evidence and cannot is not None:
        return _never(tested, cannot)
    if not evidence and any(boot.outcome is Outcome.INSTALL_FAILED for boot in boots):
        return _never(tested, "it cannot be installed")
    return _never(tested, "it cannot run here: unsupported") if state is Outcome.UNSUPPORTED else tested


def _never(tested: ReleaseAnswer, reason: str) -> ReleaseAnswer:
    return ReleaseAnswer(tested.release, Answer.CANNOT_TELL, tested.state, tested.boots, None, reason, tested.run_ids)


def _by_outcome(question: Question, tested: ReleaseAnswer) -> ReleaseAnswer:
    if tested.answer is not None or (tested.state is Outcome.PASS and tested.boots < question.boots):
        return tested
    if tested.state is CellState.NOT_RUN:
        return tested
    good = tested.state is Outcome.PASS
    return _answered(tested, Answer.LIKE_START if good else Answer.LIKE_END, tested.reason)


def _by_number(question: Question, tested: ReleaseAnswer, start: float | None, end: float | None) -> ReleaseAnswer:
    if tested.answer is not None:
        return tested
    if tested.boots and tested.state is not Outcome.PASS:
        return _never(tested, f"no number to compare: {tested.state}")
    if tested.value is None:
        enough = tested.boots >= question.boots
        return _never(tested, f"its boots pass without {question.series}") if enough else tested
    if tested.release == question.releases[0]:
        return _answered(tested, Answer.LIKE_START, _shown(tested, None))
    if start is None:
        return tested
    change = math.log(tested.value / start)
    if tested.release == question.releases[-1]:
        return _answered(tested, Answer.LIKE_END if _worse(question, change) else Answer.LIKE_START, _shown(tested, change))
    if end is None:
        return tested
    like_end = abs(math.log(tested.value / end)) < abs(change)
    return _answered(tested, Answer.LIKE_END if like_end else Answer.LIKE_START, _shown(tested, change))


def _worse(question: Question, change: float) -> bool:
    """Whether this change (logarithm) from the good end to the bad one is for the worse and reaches the floor of its metric."""
    assert question.series is not None
    metric = metric_of(question.series)
    return (-change if metric.higher_is_better else change) >= metric.log_floor


def _answered(tested: ReleaseAnswer, answer: Answer, reason: str) -> ReleaseAnswer:
    return ReleaseAnswer(tested.release, answer, tested.state, tested.boots, tested.value, reason, tested.run_ids)


def _shown(tested: ReleaseAnswer, change: float | None) -> str:
    against = "" if change is None else f", {math.expm1(change):+.1%} against the good end"
    return f"median of {_boots(tested.boots)} {tested.value:.4g}{against}"


def _boots(number: int) -> str:
    return f"{number} boot{'' if number == 1 else 's'}"
