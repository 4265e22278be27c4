"""Which boot is worth most next. Pure: what is known comes in, one choice comes out, and it is asked again after every boot.

Trap: a plan made in the evening is wrong by midnight: the canary of the new release is broken, and the night is spent on its large models;
or three boots of one cell in a row let the node's warming up look like a property of the cell. Rule: the choice is made anew from what the
store holds (so that a killed night goes on where it stopped), by value first, canaries before models, in rounds over all cells, and not two
hot boots in a row while a cool one is worth as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

MOST_FAULTS = 2
"""Boots of one cell that may end without evidence (infrastructure, install failed) in one night before it is left alone."""
BOOTS_OF_A_FAILURE = 2
"""Boots that must agree before a failure is believed (results/verdict/outcomes.py); a third would say nothing new."""


class Value(IntEnum):
    """Why a boot is worth making, the most valuable first."""

    NEW_RELEASE = 0
    LAST_BROKEN = 1
    ANCHOR = 2
    COVERAGE = 3


@dataclass(frozen=True)
class Candidate:
    """One cell (of a canary, a shape, else a model) and what the store says about it.

    Boots count only if they are evidence under the node's present state and protocol.

    `path` names engine, release and backend: the canary of a path is measured before its models. `family_broken`: the last release before
    this one that was measured in the same cell failed. `seconds` is how long a boot of it took so far, None if nobody knows.
    """

    name: str
    path: str
    is_canary: bool
    wanted: int
    made: int = 0
    failed: int = 0
    unsupported: int = 0
    faults: int = 0
    is_new: bool = False
    is_anchor: bool = False
    is_shape: bool = False
    family_broken: bool = False
    seconds: float | None = None

    @property
    def needed(self) -> int:
        """Boots still to make: fewer of a cell that only fails, one of a cell that this release does not have."""
        if self.made and self.unsupported == self.made:
            return 0
        wanted = min(self.wanted, BOOTS_OF_A_FAILURE) if self.made and self.failed == self.made else self.wanted
        return max(0, wanted - self.made)

    @property
    def turn(self) -> int:
        """Canaries, then shapes, then models: the cheapest way to learn of a broken path comes first."""
        return 0 if self.is_canary else 1 if self.is_shape else 2

    @property
    def value(self) -> Value:
        """What a boot of it would be worth."""
        if self.is_new:
            return Value.NEW_RELEASE
        if self.failed or self.family_broken:
            return Value.LAST_BROKEN
        return Value.ANCHOR if self.is_anchor else Value.COVERAGE


@dataclass(frozen=True)
class Choice:
    """The next boot, and why."""

    candidate: Candidate
    value: Value


@dataclass(frozen=True)
class LastBoot:
    """What ran last on the node: its cell, and whether it was a model (hot) or a canary."""

    name: str | None = None
    hot: bool = False


NOTHING_YET = LastBoot()


def why_not_now(candidate: Candidate, candidates: Sequence[Candidate]) -> str | None:
    """Why a cell that needs boots gets none tonight, as a sentence; None if nothing speaks against it."""
    if candidate.faults >= MOST_FAULTS:
        return f"{candidate.faults} boots ended without evidence tonight"
    if candidate.is_canary:
        return None
    broken = [c for c in candidates if c.is_canary and c.path == candidate.path and c.made and c.failed == c.made]
    return f"its canary {broken[0].name} fails: a large model would only fail more slowly" if broken else None


def next_choice(candidates: Sequence[Candidate], last: LastBoot = NOTHING_YET, remaining_s: float | None = None) -> Choice | None:
    """The boot to make next; None when nothing is needed, possible and short enough for the time that remains."""
    open_cells = [
        c
        for c in candidates
        if c.needed and why_not_now(c, candidates) is None and (remaining_s is None or c.seconds is None or c.seconds <= remaining_s)
    ]
    if not open_cells:
        return None
    order = {c.name: number for number, c in enumerate(candidates)}

    def rank(c: Candidate) -> tuple[object, ...]:
        backwards = c.made % 2 == 1  # every other round runs the other way, so that a drift over the night falls on both sides
        return (
            c.value,
            _waits_its_turn(c, open_cells),
            c.name == last.name,
            _too_hot(c, last),
            c.made,
            not c.family_broken,
            -order[c.name] if backwards else order[c.name],
        )

    best = min(open_cells, key=rank)
    return Choice(best, best.value)


def _waits_its_turn(candidate: Candidate, open_cells: Sequence[Candidate]) -> int:
    """A shape waits until every canary that is worth as much has run once, a model for the shapes too: what is broken shows in minutes."""
    earlier = any(c.turn < candidate.turn and c.value == candidate.value and not c.made for c in open_cells)
    return candidate.turn if earlier else 0


def _too_hot(candidate: Candidate, last: LastBoot) -> bool:
    return last.hot and not candidate.is_canary


def whole_night(
    candidates: Sequence[Candidate], budget_s: float | None = None, last: LastBoot = NOTHING_YET, most: int = 10_000
) -> Iterator[Choice]:
    """The boots in the order they would be made if everything went as before, and well where it is new: what `--dry-run` shows."""
    cells, left = list(candidates), budget_s
    for _ in range(most):
        choice = next_choice(cells, last, left)
        if choice is None:
            return
        yield choice
        chosen = choice.candidate
        cells = [booted(c) if c.name == chosen.name else c for c in cells]
        last = LastBoot(chosen.name, not chosen.is_canary)
        if left is not None:
            left = max(0.0, left - (chosen.seconds or 0.0))


def booted(cell: Candidate) -> Candidate:
    """The cell after one more boot that ended like those before it."""
    only_fails = cell.made > 0 and cell.failed == cell.made
    return replace(cell, made=cell.made + 1, failed=cell.failed + only_fails)
