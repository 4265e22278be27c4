"""The verdict on one cell over all its releases, from plain facts.

Trap: comparing with "the previous release" compares with a broken one, or with one measured under another driver. Rule: outcomes first; a
number is judged only for a release that passes, against the last release that passed, using boots under one and the same node state. If
there is no such state the verdict is `confounded` and says what differed.

The re-run is found by order in time, not by a label: it is what ran after the boots that raised the question (the first MIN_BOOTS of each
release), in a session that takes turns between the two releases. So boots that raised a suspicion can never confirm it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from results.verdict.facts import AdmittedHistory, BootFact, CellHistory, Exclusion, NodeState, SeriesKey, admit, parse_time
from results.verdict.metrics import RECALLED_ALL, Metric, metric_of
from results.verdict.numbers import MIN_BOOTS, NumberVerdict, Side, judge_numbers
from results.verdict.outcomes import ReleaseOutcome, judge_outcomes
from results.verdict.words import NO_EVIDENCE, Verdict
from results.vocabulary import Outcome

_WORST_FIRST = (Verdict.SLOWER, Verdict.CONFOUNDED, Verdict.INCONCLUSIVE, Verdict.FASTER, Verdict.UNCHANGED)


@dataclass(frozen=True)
class ReleaseVerdict:
    """One release of one cell: how it ended, and what each of its numbers did."""

    release: str
    outcome: ReleaseOutcome
    verdict: Verdict | None
    """Of the outcome; `confounded` if it broke or was fixed while something else changed too; None without evidence."""
    differs: tuple[str, ...]
    """What else changed, when the outcome's verdict is `confounded`."""
    numbers: Mapping[str, NumberVerdict] = field(default_factory=dict)
    """By series name. Empty when suppressed."""
    suppressed: str | None = None
    """Why there is no verdict on any number of this release."""

    @property
    def alarm(self) -> bool:
        """A confirmed failure that nothing but the engine explains, or a confirmed `slower`."""
        return (self.outcome.alarm and not self.differs) or any(number.verdict is Verdict.SLOWER for number in self.numbers.values())

    @property
    def headline(self) -> Verdict | None:
        """The one word for a matrix: the outcome's verdict unless it is `unchanged`, then the worst of the numbers."""
        if self.verdict is not Verdict.UNCHANGED:
            return self.verdict
        told = {number.verdict for number in self.numbers.values()}
        return next((verdict for verdict in _WORST_FIRST if verdict in told), Verdict.UNCHANGED)


@dataclass(frozen=True)
class CellVerdict:
    """All releases of one cell, oldest first, and what was left out of judging them."""

    series: SeriesKey
    releases: tuple[ReleaseVerdict, ...]
    exclusions: Mapping[Exclusion, int]
    not_releases: tuple[str, ...]

    @property
    def newest(self) -> ReleaseVerdict | None:
        """The newest release with evidence."""
        return next((release for release in reversed(self.releases) if release.verdict is not None), None)

    @property
    def last_passing(self) -> str | None:
        """The newest release on which every boot passed."""
        return next((release.release for release in reversed(self.releases) if release.outcome.state is Outcome.PASS), None)


def judge_cell(history: CellHistory) -> CellVerdict:
    """Judge every release of a cell. Raises VerdictInputError (facts.py) and UnknownMetricError (metrics.py)."""
    return judge_admitted(admit(history))


def judge_admitted(admitted: AdmittedHistory, standing: Sequence[ReleaseVerdict] = ()) -> CellVerdict:
    """The same for a history whose boots were admitted already.

    `standing` are the verdicts on the oldest releases, from an earlier judgement of the very same boots of these releases: a verdict
    depends on no later release.
    """
    new = admitted.releases[len(standing) :]
    outcomes = judge_outcomes(
        {release: [boot.outcome for boot in admitted.boots[release]] for release in new},
        admitted.releases,
        [verdict.outcome for verdict in standing],
    )
    judged = [*standing, *(_outcome_verdict(admitted, outcome) for outcome in outcomes[len(standing) :])]
    for name in admitted.series_names(new):
        _judge_series(name, admitted, judged, len(standing))
    return CellVerdict(admitted.series, tuple(judged), admitted.exclusions, admitted.not_releases)


def _outcome_verdict(admitted: AdmittedHistory, outcome: ReleaseOutcome) -> ReleaseVerdict:
    differs: tuple[str, ...] = ()
    if outcome.verdict in (Verdict.BROKE, Verdict.FIXED) and outcome.after is not None:
        before, now = (_with_evidence(admitted.boots[release]) for release in (outcome.after, outcome.release))
        if not {boot.node_state for boot in before} & {boot.node_state for boot in now}:
            differs = before[-1].node_state.differences(now[-1].node_state)
    passes = outcome.state is Outcome.PASS
    return ReleaseVerdict(
        release=outcome.release,
        outcome=outcome,
        verdict=Verdict.CONFOUNDED if differs else outcome.verdict,
        differs=differs,
        suppressed=None if passes else f"{outcome.release} is {outcome.state}: its numbers are not judged",
    )


def _with_evidence(boots: Sequence[BootFact]) -> list[BootFact]:
    """The boots that say something of the cell: the node state of the others neither explains nor excludes a change."""
    return [boot for boot in boots if boot.outcome not in NO_EVIDENCE]


def _judge_series(name: str, admitted: AdmittedHistory, judged: list[ReleaseVerdict], standing: int) -> None:
    """Add the verdict on series `name` to each passing release that has it, oldest first (a level needs the verdicts before it).

    The first `standing` releases have theirs.
    """
    before, baseline = "", list[BootFact]()
    level: dict[NodeState, list[float]] = {}
    for index, release in enumerate(judged):
        verdict = release.numbers.get(name)
        if verdict is None and (index < standing or release.suppressed):
            continue
        candidate = [boot for boot in admitted.boots[release.release] if name in boot.metrics]
        if not candidate:
            continue
        if verdict is None:
            verdict = _judge_number(name, before, baseline, level, candidate)
            judged[index] = replace(release, numbers={**release.numbers, name: verdict})
        if verdict.verdict in (Verdict.FASTER, Verdict.SLOWER):
            level = {}
        else:
            for state, boots in groupby(baseline, attrgetter("node_state")):
                level.setdefault(state, []).extend(boot.metrics[name] for boot in boots)
        before, baseline = release.release, candidate


def _judge_number(
    name: str, before: str, baseline: Sequence[BootFact], level: Mapping[NodeState, Sequence[float]], candidate: Sequence[BootFact]
) -> NumberVerdict:
    """`baseline`: boots of `before`, the last passing release with it; `level`: by node state, those before it at its level."""
    release = candidate[0].release
    if not baseline:
        return NumberVerdict(Verdict.NEW, f"no earlier release passed with {name}", None, release, n_candidate=len(candidate))
    state = _common_state(baseline, candidate)
    if state is None:
        return _confounded(name, before, release, baseline, candidate)
    old = [boot for boot in baseline if boot.node_state == state]
    new = [boot for boot in candidate if boot.node_state == state]
    metric = metric_of(name)
    bound, bound_warning = _common_bound(metric, name, [*old, *new])
    old_side, new_side, turns_warning = _sides(name, before, release, old, new, bound)
    verdict = judge_numbers(metric, old_side, new_side, [min(value, bound) for value in level.get(state, ())])
    left_out = len(baseline) - len(old) + len(candidate) - len(new)
    warnings = (*verdict.warnings, *turns_warning, *bound_warning, *_state_warnings(state, left_out, [*old, *new]))
    return replace(verdict, warnings=warnings)


def _common_bound(metric: Metric, name: str, boots: Sequence[BootFact]) -> tuple[float, tuple[str, ...]]:
    """The smallest value of these boots that is only a lower bound (infinite: none is), and a warning if there are values above it.

    A boot that was asked less deep than another, and recalled it all, knows nothing of what lies beyond.
    """
    bound = min((boot.metrics[name] for boot in boots if metric.at_least in boot.flags), default=math.inf) if metric.at_least else math.inf
    beyond = any(boot.metrics[name] > bound for boot in boots)
    return bound, (f"compared up to {bound:,.0f}: a boot of them was asked no more",) if beyond else ()


def _common_state(baseline: Sequence[BootFact], candidate: Sequence[BootFact]) -> NodeState | None:
    """The node state under which both sides have boots; if several, the one with most boots on the smaller side, the newest of those."""
    first = baseline[0].node_state
    if all(boot.node_state is first for boot in baseline) and all(boot.node_state is first for boot in candidate):
        return first
    old, new = Counter(boot.node_state for boot in baseline), Counter(boot.node_state for boot in candidate)
    last = {boot.node_state: index for index, boot in enumerate(candidate)}
    common = [state for state in old if state in new]
    return max(common, key=lambda state: (min(old[state], new[state]), last[state]), default=None)


def _confounded(name: str, before: str, release: str, baseline: Sequence[BootFact], candidate: Sequence[BootFact]) -> NumberVerdict:
    differs = baseline[-1].node_state.differences(candidate[-1].node_state)
    return NumberVerdict(
        Verdict.CONFOUNDED,
        f"{name}: {before} and {release} share no node state ({', '.join(differs)}); run {before} again under the present one",
        before,
        release,
        n_baseline=len(baseline),
        n_candidate=len(candidate),
        differs=differs,
    )


def _sides(
    name: str, before: str, release: str, old: Sequence[BootFact], new: Sequence[BootFact], bound: float
) -> tuple[Side, Side, tuple[str, ...]]:
    """Split the boots of both releases into record and interleaved re-run; a warning names a session that did not take turns.

    No value counts for more than `bound`.
    """
    rerun, warnings = _reruns(tuple(map(_turn, old)), tuple(map(_turn, new)))
    return _side(name, before, old, rerun, bound), _side(name, release, new, rerun, bound), warnings


_Turn = tuple[str, str, str]
"""Run, session and start of a boot."""
_turn: Callable[[BootFact], _Turn] = attrgetter("run_id", "session_id", "started_at")


@lru_cache(maxsize=512)
def _reruns(old: tuple[_Turn, ...], new: tuple[_Turn, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """(run ids of the interleaved re-run, warnings); the same for every number that all of these boots have."""
    rerun: set[str] = set()
    warnings: list[str] = []
    for session, runs in _after_the_question(old, new):
        turns = [is_new for _, is_new in runs]
        smaller = min(turns.count(False), turns.count(True))
        if smaller and len(list(groupby(turns))) > smaller:
            rerun |= {run_id for run_id, _ in runs}
        elif smaller:
            warnings.append(f"session {session} ran one release after the other: no re-run, only boots on record")
    return frozenset(rerun), tuple(warnings)


def _after_the_question(old: Sequence[_Turn], new: Sequence[_Turn]) -> list[tuple[str, list[tuple[str, bool]]]]:
    """By session: (run, whether it is of the new release) from the first baseline boot on, after the first MIN_BOOTS boots of each."""
    turns = [(parse_time(start), run_id, session, is_new) for is_new, side in enumerate((old, new)) for run_id, session, start in side]
    seen = [0, 0]
    sessions: dict[str, list[tuple[str, bool]]] = {}
    for _, run_id, session, is_new in sorted(turns):
        if min(seen) >= MIN_BOOTS and (not is_new or session in sessions):
            sessions.setdefault(session, []).append((run_id, bool(is_new)))
        seen[is_new] += 1
    return list(sessions.items())


def _side(name: str, release: str, boots: Sequence[BootFact], rerun: frozenset[str], bound: float) -> Side:
    return Side(
        release,
        record=tuple(min(boot.metrics[name], bound) for boot in boots if boot.run_id not in rerun),
        rerun=tuple(min(boot.metrics[name], bound) for boot in boots if boot.run_id in rerun),
    )


def _state_warnings(state: NodeState, left_out: int, boots: Sequence[BootFact]) -> tuple[str, ...]:
    warnings = []
    if left_out:
        warnings.append(f"{left_out} boots under another node state were left out")
    if unknown := state.unknown():
        warnings.append(f"not known on either side: {', '.join(unknown)}")
    for flag, number in sorted(Counter(flag for boot in boots if boot.flags for flag in boot.flags - {RECALLED_ALL}).items()):
        warnings.append(f"{number} boots flagged {flag}")
    return tuple(warnings)
