"""Pass and fail over the releases of one cell: a state machine, never a statistic.

Trap: 5 % of boots fail for no reason of the engine; on 48 cells that is 2.4 false "broken" per release if one boot may raise an alarm, 0.12
if two must agree. Rule: one failing boot is `detected`, a second makes it `confirmed`. A release without evidence (not run, infrastructure,
interrupted, install failed) is never a transition: what happened across it happened "between X and Y".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from results.verdict.words import NO_EVIDENCE, CellState, State, Verdict
from results.vocabulary import Outcome

BOOTS_TO_CONFIRM = 2
"""Boots that must agree before a failure is an alarm or a repair of a hard failure is believed."""

LUCK = 0.05
"""A flaky cell counts as fixed when so many boots passed that luck alone would do it less often than this."""

_RANK = {outcome: rank for rank, outcome in enumerate(Outcome)}


@dataclass(frozen=True)
class ReleaseOutcome:
    """One release of one cell. `verdict` is None when there is no evidence, and then nothing else may be read from it."""

    release: str
    state: State
    counts: tuple[tuple[Outcome, int], ...]
    """Every outcome that occurred with its number of boots, most frequent first."""
    verdict: Verdict | None
    after: str | None
    """The last release before this one that has evidence."""
    skipped: tuple[str, ...]
    """Releases between `after` and this one without evidence."""
    since: str | None
    """The release since which the cell is in this class of state (works, fails, not there)."""
    confirmed: bool
    boots_needed: int
    """More boots of this release that would confirm the verdict if they agree (0 when confirmed)."""
    reason: str

    @property
    def where(self) -> str:
        """`in 0.32.0`, or `between 0.30.0 and 0.32.0` when releases in between gave no evidence."""
        return f"between {self.after} and {self.release}" if self.skipped else f"in {self.release}"

    @property
    def alarm(self) -> bool:
        """A confirmed failure that an earlier release did not have (the first release ever tried has nothing to be compared with)."""
        appeared = self.verdict is Verdict.NEW and self.after is not None and _class_of(self.state) == "fails"
        return self.confirmed and (self.verdict is Verdict.BROKE or appeared)


def state_of(outcomes: Sequence[Outcome]) -> State:
    """State of a cell over the boots of one release: `pass`, the most frequent failure if all failed, `flaky` if mixed, else `not_run`."""
    evidence = [outcome for outcome in outcomes if outcome not in NO_EVIDENCE]
    if not evidence:
        return CellState.NOT_RUN
    if 0 < evidence.count(Outcome.PASS) < len(evidence):
        return CellState.FLAKY
    return _by_count(evidence)[0][0]


def judge_outcomes(
    outcomes: Mapping[str, Sequence[Outcome]], order: Sequence[str], former: Sequence[ReleaseOutcome] = ()
) -> tuple[ReleaseOutcome, ...]:
    """The state machine over `order` (releases oldest first, also those never run); `former` are the first of them, judged already."""
    judged: list[ReleaseOutcome] = list(former)
    before: ReleaseOutcome | None = None
    failing_since_break = 0
    skipped: list[str] = []
    for one in former:
        if one.state is CellState.NOT_RUN:
            skipped.append(one.release)
        else:
            failing_since_break = failing_since_break + _failing(one.counts) if _class_of(one.state) == "fails" else 0
            before, skipped = one, []
    for release in order[len(former) :]:
        boots = outcomes.get(release, ())
        state = state_of(boots)
        if state is CellState.NOT_RUN:
            judged.append(_without_evidence(release, boots))
            skipped.append(release)
            continue
        failing_since_break = failing_since_break + _failing(_by_count(boots)) if _class_of(state) == "fails" else 0
        current = _judge(release, boots, before, skipped=tuple(skipped) if before else (), failing_since_break=failing_since_break)
        judged.append(current)
        before, skipped = current, []
    return tuple(judged)


def _failing(counts: Iterable[tuple[Outcome, int]]) -> int:
    return sum(number for outcome, number in counts if outcome is not Outcome.PASS and outcome not in NO_EVIDENCE)


def _class_of(state: State) -> str:
    if state is Outcome.PASS:
        return "works"
    return "not there" if state is Outcome.UNSUPPORTED else "fails"


def verdict_between(before: State | None, state: State) -> Verdict:
    """The word for going from one state of a cell to another; None: nothing is known of before."""
    was = None if before is None else _class_of(before)
    now = _class_of(state)
    if was == now:
        return Verdict.STILL_BROKEN if now == "fails" else Verdict.UNCHANGED
    if was is None:
        return Verdict.NEW
    if now == "not there":
        return Verdict.GONE
    if was == "not there":
        return Verdict.NEW
    return Verdict.BROKE if now == "fails" else Verdict.FIXED


def _judge(
    release: str, boots: Sequence[Outcome], before: ReleaseOutcome | None, *, skipped: tuple[str, ...], failing_since_break: int
) -> ReleaseOutcome:
    state = state_of(boots)
    verdict = verdict_between(before.state if before else None, state)
    needed = _boots_needed(verdict, state, boots, before, failing_since_break)
    same_class = before is not None and _class_of(before.state) == _class_of(state)
    since = before.since if before is not None and same_class else release
    after = before.release if before else None
    counts = _by_count(boots)
    where = f"between {after} and {release}" if skipped else f"in {release}"
    return ReleaseOutcome(
        release=release,
        state=state,
        counts=counts,
        verdict=verdict,
        after=after,
        skipped=skipped,
        since=since,
        confirmed=needed == 0,
        boots_needed=needed,
        reason=_told(verdict, state, before, where) + _counted_boots(counts, needed),
    )


def _boots_needed(verdict: Verdict, state: State, boots: Sequence[Outcome], before: ReleaseOutcome | None, failing_since_break: int) -> int:
    if _class_of(state) == "fails":
        return max(0, BOOTS_TO_CONFIRM - failing_since_break)
    if verdict is Verdict.FIXED and before is not None:
        return max(0, _passes_that_rule_out_luck(before) - list(boots).count(Outcome.PASS))
    return 0


def _passes_that_rule_out_luck(before: ReleaseOutcome) -> int:
    """Passing boots after which a cell that failed in a share f of its boots is fixed: (1 - f)^n < 5 %."""
    counts = dict(before.counts)
    passed = counts.get(Outcome.PASS, 0)
    evidence = sum(number for outcome, number in before.counts if outcome not in NO_EVIDENCE)
    if passed == 0:
        return BOOTS_TO_CONFIRM
    return max(BOOTS_TO_CONFIRM, math.floor(math.log(LUCK) / math.log(passed / evidence)) + 1)


def _by_count(outcomes: Sequence[Outcome]) -> tuple[tuple[Outcome, int], ...]:
    return tuple(sorted(Counter(outcomes).items(), key=lambda item: (-item[1], _RANK[item[0]])))


def _without_evidence(release: str, boots: Sequence[Outcome]) -> ReleaseOutcome:
    counts = _by_count(boots)
    why = f"no evidence about the cell ({_counted(counts)})" if counts else "not run"
    return ReleaseOutcome(release, CellState.NOT_RUN, counts, None, None, (), None, False, 0, f"{release}: {why}")


def _counted(counts: tuple[tuple[Outcome, int], ...]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in counts)


def _counted_boots(counts: tuple[tuple[Outcome, int], ...], needed: int) -> str:
    more = {0: "", 1: "; one more boot that agrees would confirm it"}.get(needed, f"; {needed} more boots that agree would confirm it")
    return f" (boots: {_counted(counts)}){more}"


def _told(verdict: Verdict, state: State, before: ReleaseOutcome | None, where: str) -> str:
    was = before.state if before else "unknown"
    match verdict:
        case Verdict.NEW:
            return f"first evidence {where}: {state}" if before is None else f"the backend appeared {where}: {state}"
        case Verdict.GONE:
            return f"the backend no longer exists: gone {where}"
        case Verdict.UNCHANGED:
            return f"{state} as before"
        case Verdict.STILL_BROKEN:
            return f"still {state}" if was == state else f"still broken, but now {state} instead of {was}"
        case _:
            return f"{verdict} {where}: {was} -> {state}"
