"""A shape is timed only where the canaries of its kernels were right: same engine build, weight format, backend and session.

Trap: a shape's text means nothing, so garbage from a broken kernel would be timed as a fast release (M11). Rule: its canaries are booted
before it and stand for it; without their pass it is refused. A canary that this release cannot serve at all makes the shape unsupported
too; any other refusal says nothing about the shape, and is no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

from results.records import NodeRecord, RunRecord
from results.vocabulary import Outcome, Purpose
from runners.failure import PhaseFailure
from runners.fit_check import why_not
from runners.plan import Cell, PlannedBoot
from suites.recipes import Recipe, recipe_for
from suites.shapes import shape_for


def canaries_of(recipe: Recipe) -> tuple[Recipe, ...]:
    """The canaries that vouch for a shape, in its weight format; none for any other recipe."""
    if recipe.source.shape is None:
        return ()
    ending = "" if recipe.weight_format == "bf16" else f"-{recipe.weight_format}"
    return tuple(recipe_for(f"canary-{name}{ending}") for name in shape_for(recipe.source.shape).family.canaries)


def with_canaries(boots: Sequence[PlannedBoot], node: NodeRecord, known: Sequence[Cell] = ()) -> list[PlannedBoot]:
    """These boots, each shape's canaries before it unless a boot of `known` or an earlier one of these is of that cell.

    They end after their gate: their speed says nothing about the shape. None is made for a shape that cannot be booted on `node`.
    """
    seen = {_vouched(cell.spec, cell.recipe, cell.backend.name) for cell in known}
    complete: list[PlannedBoot] = []
    for planned in boots:
        cell = planned.cell
        for canary in canaries_of(cell.recipe) if why_not(cell, node) is None else ():
            key = _vouched(cell.spec, canary, cell.backend.name)
            if key not in seen:
                seen.add(key)
                vouching = Cell(cell.spec, canary, cell.backend, cell.workloads, cell.expressed)
                complete.append(PlannedBoot(vouching, 1, 1, Purpose.ADMISSION, timed=False))
        seen.add(_vouched(cell.spec, cell.recipe, cell.backend.name))
        complete.append(planned)
    return complete


def _vouched(spec: object, recipe: Recipe, backend: str) -> tuple[str, str, str]:
    return str(spec), recipe.recipe_id, backend


def admit(recipe: Recipe, run: RunRecord, made: Sequence[RunRecord]) -> None:
    """Let a shape's boot go on. `run` is its row with the build known, `made` the session's boots so far. Raises PhaseFailure."""
    for canary in canaries_of(recipe):
        mine = [
            other
            for other in made
            if other.recipe_id == canary.recipe_id
            and (other.session_id, other.engine, other.backend_id) == (run.session_id, run.engine, run.backend_id)
            and run.build_id is not None
            and other.build_id == run.build_id
        ]
        if mine and all(other.outcome is Outcome.PASS for other in mine):
            continue
        raise PhaseFailure(*_refusal(canary, run, mine or _unbuilt(canary, run, made)))


def _unbuilt(canary: Recipe, run: RunRecord, made: Sequence[RunRecord]) -> list[RunRecord]:
    """Boots of the canary that ended before their build was known: they can refuse a shape but never admit it."""
    wanted = (run.session_id, run.engine, run.engine_version, run.backend_name)
    return [
        other
        for other in made
        if other.recipe_id == canary.recipe_id
        and other.build_id is None
        and (other.session_id, other.engine, other.engine_version, other.backend_name) == wanted
    ]


def _refusal(canary: Recipe, run: RunRecord, boots: Sequence[RunRecord]) -> tuple[Outcome, str]:
    failed = next((boot for boot in boots if boot.outcome is not Outcome.PASS), None)
    if failed is None:
        what = "no build to compare" if run.build_id is None else "not booted in this session with this build and backend"
        return Outcome.INFRASTRUCTURE, f"not admitted: its canary {canary.name} vouches for its kernels, and there is {what}"
    outcome = Outcome.UNSUPPORTED if failed.outcome is Outcome.UNSUPPORTED else Outcome.INFRASTRUCTURE
    return outcome, f"not admitted: its canary {canary.name} is {failed.outcome or 'unfinished'} ({failed.run_id}): {failed.reason}"
