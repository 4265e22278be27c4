"""Our own false-alarm rate: one release, re-run and given two names, must never make news.

Trap: a rule that was quiet on somebody else's data is trusted on this node. Rule: judge the node's own repeated boots of unchanged releases
as if they were two releases, and publish how often that told a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from results.verdict.cell import judge_cell
from results.verdict.facts import BootFact, CellHistory
from results.verdict.words import Verdict

_NEWS = frozenset({Verdict.FASTER, Verdict.SLOWER})
_NAMES = ("1", "2")


@dataclass(frozen=True)
class FalseAlarm:
    """A change that was told between two halves of one release; `series` is `outcome` for a transition of pass and fail."""

    release: str
    series: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class FalseAlarmReport:
    """How often the rule told news about nothing. `comparisons` counts outcomes and numbers that could be compared."""

    comparisons: int
    screened: int
    """Comparisons in which the screen alone would have asked for a re-run."""
    alarms: tuple[FalseAlarm, ...]


def false_alarms(history: CellHistory) -> FalseAlarmReport:
    """Split each release of `history` into two by turns (first boot to one name, second to the other, ...) and judge them as two releases.

    Only releases with at least two boots take part. Raises what judge_cell raises.
    """
    comparisons = screened = 0
    alarms: list[FalseAlarm] = []
    for release, halves in _halves(history.boots):
        newest = judge_cell(CellHistory(history.series, halves)).releases[-1]
        if newest.verdict is None:
            continue
        comparisons += 1 + len(newest.numbers)
        screened += sum(number.moved for number in newest.numbers.values())
        if newest.outcome.confirmed and newest.verdict in (Verdict.BROKE, Verdict.FIXED):
            alarms.append(FalseAlarm(release, "outcome", newest.verdict, newest.outcome.reason))
        for name, number in newest.numbers.items():
            if number.verdict in _NEWS:
                alarms.append(FalseAlarm(release, name, number.verdict, number.reason))
    return FalseAlarmReport(comparisons, screened, tuple(alarms))


def _halves(boots: Iterable[BootFact]) -> Iterator[tuple[str, list[BootFact]]]:
    by_release: dict[str, list[BootFact]] = {}
    for boot in sorted(boots, key=lambda boot: (boot.started_at, boot.run_id)):
        by_release.setdefault(boot.release, []).append(boot)
    for release, own in by_release.items():
        if len(own) > 1:
            yield release, [replace(boot, release=_NAMES[turn % 2]) for turn, boot in enumerate(own)]
