"""What a verdict is judged from, and what is left out of it by name.

Trap: a NaN, a boot counted twice or a clock that stepped back changes a median without a trace. Rule: every boot or number that does not
count is left out under a reason and counted; what cannot be honest at all (one run id with two contents, two nodes in one cell) is an
error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from results.verdict.metrics import counted
from results.verdict.releases import order_releases
from results.vocabulary import Outcome


class VerdictInputError(ValueError):
    """Facts that no honest verdict can be made of."""


class ConflictingBootsError(VerdictInputError):
    """One run id with two different contents."""


class MixedNodesError(VerdictInputError):
    """Boots of two nodes in the history of one cell, such as two nodes with one name."""


class StandingChangedError(Exception):
    """What an earlier admission let in is not what it would let in now: the whole history has to be read."""


class BadTimeError(VerdictInputError):
    """A time that is not ISO 8601 with an offset."""


NO_RELEASE = ""
"""In place of the release of boots whose version is none."""


class Exclusion(StrEnum):
    """Why something was left out of a verdict."""

    NOT_A_RELEASE = "not_a_release"
    DUPLICATE_BOOT = "duplicate_boot"
    CLOCK_WENT_BACK = "clock_went_back"
    NOT_FINITE = "not_finite"
    NOT_POSITIVE = "not_positive"
    NUMBER_OF_A_FAILED_BOOT = "number_of_a_failed_boot"
    NODE_NOT_FIT = "node_not_fit"
    """Numbers of a boot during which the node's own probe was off."""
    VOID_SESSION = "void_session"
    """Boots of a visit that was declared void: counted as `infrastructure`."""


@dataclass(frozen=True)
class SeriesKey:
    """One cell without its release: what stays the same along a history."""

    engine: str
    recipe: str
    backend: str
    node_id: str

    def text(self) -> str:
        """One line that names the cell; the part of a finding's id that never changes."""
        return " / ".join((self.engine, self.recipe, self.backend, self.node_id))


@dataclass(frozen=True)
class NodeState:
    """What must be equal on both sides of a comparison, apart from the engine (M25). None: not known.

    Wheel sets are not part of it: they are what a release brings with it.
    """

    driver: str | None = None
    kernel: str | None = None
    firmware: str | None = None
    clock_cap_mhz: int | None = None
    protocol: int | None = None
    recipe_revision: str | None = None
    prompts: str | None = None

    def __eq__(self, other: object) -> bool:
        """Equal in every field; the same object at once, which most boots of a cell share."""
        return self is other or (isinstance(other, NodeState) and self.values == other.values)

    def __hash__(self) -> int:
        return hash(self.values)

    @cached_property
    def values(self) -> tuple[object, ...]:
        """All fields, in their order."""
        return tuple(getattr(self, spec.name) for spec in fields(self))

    def differences(self, other: NodeState) -> tuple[str, ...]:
        """One phrase for each field that differs, such as `driver (580.95 -> 590.10)`; a field known on one side only differs too."""
        return tuple(
            f"{spec.name} ({_shown(mine)} -> {_shown(theirs)})"
            for spec in fields(self)
            if (mine := getattr(self, spec.name)) != (theirs := getattr(other, spec.name))
        )

    def unknown(self) -> tuple[str, ...]:
        """Names of the fields that are not known."""
        return tuple(spec.name for spec, value in zip(fields(self), self.values, strict=True) if value is None)


def _shown(value: object) -> str:
    return "unknown" if value is None else str(value)


@dataclass(frozen=True)
class BootFact:
    """One boot as a verdict sees it.

    `metrics` maps series names (results.verdict.metrics) to the median inside this boot. `flags` are words for warnings, such as
    `throttled`. Times are ISO 8601 with an offset. A boot of a void session must be handed in as `infrastructure`.
    """

    run_id: str
    release: str
    outcome: Outcome
    node_id: str
    session_id: str
    started_at: str
    finished_at: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    node_state: NodeState = field(default_factory=NodeState)
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class CellHistory:
    """All boots of one cell, in any order, and the releases known to exist (also those that were never run)."""

    series: SeriesKey
    boots: Sequence[BootFact]
    known_releases: Sequence[str] = ()


@dataclass(frozen=True)
class AdmittedHistory:
    """A history that can be judged: releases oldest first, boots of each in the order they started, and what was left out."""

    series: SeriesKey
    releases: tuple[str, ...]
    boots: Mapping[str, tuple[BootFact, ...]]
    left_out: Mapping[str, Mapping[Exclusion, int]]
    """By release; boots of no release under NO_RELEASE."""
    not_releases: tuple[str, ...]
    clock_went_back: frozenset[str] = frozenset()
    """Runs that lost their numbers to it."""

    @property
    def exclusions(self) -> Mapping[Exclusion, int]:
        """What was left out of all releases together."""
        total: Counter[Exclusion] = Counter()
        for counted_here in self.left_out.values():
            total.update(counted_here)
        return dict(total)

    def series_names(self, releases: Iterable[str]) -> tuple[str, ...]:
        """Names of all series that any admitted boot of these releases has a number of."""
        return tuple(sorted({name for release in releases for boot in self.boots[release] for name in boot.metrics}))


def admit(
    history: CellHistory, standing: Mapping[str, tuple[BootFact, ...]] | None = None, clock_went_back: frozenset[str] = frozenset()
) -> AdmittedHistory:
    """Order the history and leave out what does not count.

    `standing` holds, by release, the boots of the oldest releases as an earlier admission let them in; `history` then holds the boots of
    the other releases only. `clock_went_back` are those of them that lost their numbers to a clock.

    Raises ConflictingBootsError, MixedNodesError, BadTimeError, UnknownMetricError (metrics.py), and StandingChangedError.
    """
    standing = standing or {}
    strangers = sorted({boot.node_id for boot in history.boots} - {history.series.node_id})
    if strangers:
        raise MixedNodesError(f"{history.series.text()}: boots of other nodes: {', '.join(strangers)}; split the history by node id")
    order = order_releases([*history.known_releases, *standing, *(boot.release for boot in history.boots)])
    left_out: dict[str, Counter[Exclusion]] = {release: Counter() for release in (NO_RELEASE, *order.names)}
    boots, twice = _each_once(history.boots)
    for boot in twice:
        left_out[order.name_of.get(boot.release, NO_RELEASE)][Exclusion.DUPLICATE_BOOT] += 1
    stepped_back = _clock_went_back([*boots, *_in_touch(boots, standing, clock_went_back)])
    if (stepped_back - {boot.run_id for boot in boots}) != clock_went_back:
        raise StandingChangedError("a clock that went back concerns boots of older releases")
    by_release: dict[str, list[BootFact]] = {release: [] for release in order.names}
    not_releases: set[str] = set()
    for boot in sorted(boots, key=lambda boot: (parse_time(boot.started_at), boot.run_id)):
        if boot.release in order.name_of:
            release = order.name_of[boot.release]
            by_release[release].append(_with_honest_numbers(boot, boot.run_id in stepped_back, left_out[release]))
        else:
            left_out[NO_RELEASE][Exclusion.NOT_A_RELEASE] += 1
            not_releases.add(boot.release)
    admitted = {release: standing.get(release) or tuple(kept) for release, kept in by_release.items()}
    return AdmittedHistory(history.series, order.names, admitted, left_out, tuple(sorted(not_releases)), frozenset(stepped_back))


def _in_touch(boots: Iterable[BootFact], standing: Mapping[str, Iterable[BootFact]], clock_went_back: frozenset[str]) -> list[BootFact]:
    """The standing boots whose clock these boots can say something of: those of their sessions, and of sessions whose clock went back."""
    if not standing:
        return []
    sessions = {boot.session_id for boot in boots}
    if clock_went_back:
        sessions |= {boot.session_id for kept in standing.values() for boot in kept if boot.run_id in clock_went_back}
    return [boot for kept in standing.values() for boot in kept if boot.session_id in sessions]


def parse_time(text: str) -> datetime:
    """An ISO 8601 time with an offset. Raises BadTimeError."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BadTimeError(f"{text!r} is no ISO 8601 time") from None
    if time.tzinfo is None:
        raise BadTimeError(f"{text!r} has no offset; times are UTC, such as 2026-11-30T12:00:00+00:00")
    return time


def _each_once(boots: Iterable[BootFact]) -> tuple[list[BootFact], list[BootFact]]:
    """(each boot once, those that were there again)."""
    seen: dict[str, BootFact] = {}
    twice: list[BootFact] = []
    for boot in boots:
        if boot.run_id not in seen:
            seen[boot.run_id] = boot
        elif _same_boot(seen[boot.run_id], boot):
            twice.append(boot)
        else:
            raise ConflictingBootsError(f"run {boot.run_id}: two boots of that id differ; one of the stores they came from is wrong")
    return list(seen.values()), twice


def _same_boot(one: BootFact, other: BootFact) -> bool:
    """Equal in every field; a NaN equals a NaN here, because both say the same thing of the same boot."""
    numbers = [sorted((name, repr(value)) for name, value in boot.metrics.items()) for boot in (one, other)]
    return replace(one, metrics={}) == replace(other, metrics={}) and numbers[0] == numbers[1]


def _clock_went_back(boots: Iterable[BootFact]) -> set[str]:
    """Run ids of boots that end before they start, or start before the boot ahead of them in the same session has ended.

    Boots of one session run one after the other, so an overlap is a clock that was set back between them; both lose their numbers.
    """
    suspects: set[str] = set()
    sessions: dict[str, list[tuple[datetime, datetime, str]]] = {}
    for boot in boots:
        start = parse_time(boot.started_at)
        end = start if boot.finished_at is None else parse_time(boot.finished_at)
        if end < start:
            suspects.add(boot.run_id)
        else:
            sessions.setdefault(boot.session_id, []).append((start, end, boot.run_id))
    for spans in sessions.values():
        spans.sort()
        for (_, end, earlier), (start, _, later) in pairwise(spans):
            if start < end:
                suspects |= {earlier, later}
    return suspects


def _with_honest_numbers(boot: BootFact, clock_went_back: bool, excluded: Counter[Exclusion]) -> BootFact:
    """The boot with only the numbers that may enter a verdict; its outcome counts whatever its numbers are."""
    if clock_went_back:
        excluded[Exclusion.CLOCK_WENT_BACK] += 1
        return replace(boot, metrics={})
    if boot.outcome is not Outcome.PASS:
        excluded[Exclusion.NUMBER_OF_A_FAILED_BOOT] += len(boot.metrics)
        return replace(boot, metrics={})
    kept: dict[str, float] = {}
    for name, value in boot.metrics.items():
        if not math.isfinite(value):
            excluded[Exclusion.NOT_FINITE] += 1
        elif (value := counted(name, value)) <= 0:
            excluded[Exclusion.NOT_POSITIVE] += 1
        else:
            kept[name] = value
    return boot if kept == boot.metrics else replace(boot, metrics=kept)
