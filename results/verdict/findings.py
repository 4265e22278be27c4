"""Findings: what broke or slowed down, from the first suspicion to the release that fixed it.

Trap: a list of "current regressions" forgets each one the moment it is fixed, and a note written on it is lost when a bisect narrows its
range. Rule: findings are recomputed from the whole history, so a fixed one stays in the record; its id comes from the series and the
transition, and a note holds for every finding inside the range of releases that it was written on.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from results.verdict.cell import CellVerdict, ReleaseVerdict
from results.verdict.facts import SeriesKey
from results.verdict.metrics import metric_of
from results.verdict.numbers import NumberVerdict
from results.verdict.words import Verdict

OUTCOME = "outcome"
"""Subject of a finding about pass and fail; any other subject is a series name."""


class Stage(StrEnum):
    """Where a finding stands."""

    DETECTED = "detected"
    CONFIRMED = "confirmed"
    FIXED = "fixed"
    IGNORED = "ignored"


@dataclass(frozen=True)
class Finding:
    """One thing that got worse. `after` is the last good release, `release` the first bad one.

    A failure that came together with another driver, kernel or protocol stays `detected`: something else may explain it.
    """

    finding_id: str
    series: SeriesKey
    subject: str
    kind: Verdict
    after: str | None
    release: str
    stage: Stage
    reason: str
    fixed_in: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Ignore:
    """A person's note that a finding is to raise no alarm. It covers findings of the same kind within (after, release]."""

    series: SeriesKey
    subject: str
    kind: Verdict
    after: str | None
    release: str
    why: str


def finding_id(series: SeriesKey, subject: str, kind: Verdict, release: str) -> str:
    """Twelve hex digits that stay the same for one series key and transition."""
    return hashlib.sha256("\n".join((series.text(), subject, kind, release)).encode()).hexdigest()[:12]


def findings_of(cell: CellVerdict, ignores: Iterable[Ignore] = ()) -> tuple[Finding, ...]:
    """All findings of a cell in the order of their releases, each at its present stage."""
    found = [*_outcome_findings(cell), *_number_findings(cell)]
    position = {release.release: index for index, release in enumerate(cell.releases)}
    notes = [note for note in ignores if note.series == cell.series]
    return tuple(sorted((_with_note(finding, notes, position) for finding in found), key=lambda finding: position[finding.release]))


def _outcome_findings(cell: CellVerdict) -> Iterable[Finding]:
    open_finding: Finding | None = None
    explained = False
    for release in cell.releases:
        verdict = release.outcome.verdict
        appeared_broken = verdict is Verdict.NEW and release.outcome.after is not None and release.suppressed is not None
        if verdict is Verdict.BROKE or appeared_broken:
            if open_finding:
                yield open_finding
            outcome = release.outcome
            open_finding = _new(cell, OUTCOME, Verdict.BROKE, after=outcome.after, release=release.release, reason=outcome.reason)
            explained = bool(release.differs)
        broken = verdict in (Verdict.BROKE, Verdict.STILL_BROKEN, Verdict.NEW)
        if open_finding and broken and release.outcome.confirmed and not explained:
            open_finding = replace(open_finding, stage=Stage.CONFIRMED)
        if open_finding and verdict is Verdict.FIXED and release.outcome.confirmed:
            yield replace(open_finding, stage=Stage.FIXED, fixed_in=release.release)
            open_finding = None
    if open_finding:
        yield open_finding


def _number_findings(cell: CellVerdict) -> Iterable[Finding]:
    for name in sorted({name for release in cell.releases for name in release.numbers}):
        history = [(release, release.numbers[name]) for release in cell.releases if name in release.numbers]
        for index, (release, number) in enumerate(history):
            stage = _stage_of(name, number)
            if stage is None:
                continue
            finding = _new(cell, name, Verdict.SLOWER, after=number.baseline, release=release.release, reason=number.reason)
            finding = replace(finding, stage=stage)
            fixed_in = _recovered_in(name, number, history[index + 1 :]) if stage is Stage.CONFIRMED else None
            yield replace(finding, stage=Stage.FIXED, fixed_in=fixed_in) if fixed_in else finding


def _stage_of(name: str, number: NumberVerdict) -> Stage | None:
    if number.verdict is Verdict.SLOWER:
        return Stage.CONFIRMED
    worse = number.effect is not None and (number.effect < 0) == metric_of(name).higher_is_better
    return Stage.DETECTED if number.verdict is Verdict.INCONCLUSIVE and number.moved and worse else None


def _recovered_in(name: str, slower: NumberVerdict, later: Iterable[tuple[ReleaseVerdict, NumberVerdict]]) -> str | None:
    """The first later release by which confirmed changes have brought the series back to within its floor of where it was."""
    metric = metric_of(name)
    sign = 1.0 if metric.higher_is_better else -1.0
    below = sign * math.log1p(slower.effect or 0.0)
    for release, number in later:
        if number.verdict in (Verdict.FASTER, Verdict.SLOWER):
            below += sign * math.log1p(number.effect or 0.0)
            if number.verdict is Verdict.FASTER and below > -metric.log_floor:
                return release.release
    return None


def _new(cell: CellVerdict, subject: str, kind: Verdict, *, after: str | None, release: str, reason: str) -> Finding:
    identity = finding_id(cell.series, subject, kind, release)
    return Finding(identity, cell.series, subject, kind, after, release, Stage.DETECTED, reason)


def _with_note(finding: Finding, notes: Iterable[Ignore], position: Mapping[str, int]) -> Finding:
    for note in notes:
        same = (note.subject, note.kind) == (finding.subject, finding.kind)
        if same and note.release in position and _covers(note, finding, position):
            stage = finding.stage if finding.stage is Stage.FIXED else Stage.IGNORED
            return replace(finding, stage=stage, note=note.why)
    return finding


def _covers(note: Ignore, finding: Finding, position: Mapping[str, int]) -> bool:
    lowest = position.get(note.after, -1) if note.after is not None else -1
    return lowest < position[finding.release] <= position[note.release]
