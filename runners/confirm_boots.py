"""The confirming boots of a visit: judged from the store after each round, planned in turns, made by the same session.

Trap: the release to compare with is installed another way than the one that is judged, and the difference is the installation. Rule: the
other release comes from the same distribution and is served by the same recipe and backend; where that is impossible nothing is re-run, and
it is said why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from packaging.version import Version

from results.errors import StoreError
from results.history import cell_history
from results.series import history_id_of, series_key
from results.store import Store
from results.verdict.cell import CellVerdict, judge_cell
from results.verdict.facts import CellHistory, VerdictInputError
from results.verdict.releases import order_releases
from results.vocabulary import Purpose
from runners.confirm import Turns, turns_to_confirm
from runners.envs.resolve import plan_for
from runners.errors import SparkproofError, UsageError
from runners.launchers.images import default_image
from runners.pipeline import BootResult
from runners.plan import Cell, PlannedBoot
from runners.spec import EngineSpec
from suites.backends import express


def confirming_boots(
    store: Store,
    planned: Iterable[PlannedBoot],
    made: Sequence[BootResult],
    *,
    node_id: str,
    has_cuda: bool,
    say: Callable[[str], None] = lambda text: None,
) -> list[PlannedBoot]:
    """The boots that would bring the open verdicts on the cells of `planned` further; empty when there is nothing to confirm.

    `made` is every boot of this visit so far. `say` hears why an open verdict stays open. Never raises: a verdict that cannot be computed
    must not lose the boots that were made.
    """
    boots: list[PlannedBoot] = []
    for cells in asked_cells(planned):
        try:
            boots += _of_cell(store, cells, made, node_id, has_cuda=has_cuda)
        except (SparkproofError, StoreError, VerdictInputError) as error:
            say(f"not confirmed: {cells[0].recipe.name} on {cells[0].backend.name}: {error}")
    return boots


def asked_cells(planned: Iterable[PlannedBoot]) -> list[list[Cell]]:
    """The cells of a plan that have a place in the order of releases: one list per history, the oldest release first."""
    asked: dict[tuple[str, str, str, str], list[Cell]] = {}
    for cell in (boot.cell for boot in planned):
        cells = asked.setdefault((cell.spec.name, cell.spec.distribution, cell.recipe.name, cell.backend.name), [])
        if cell not in cells and cell.spec.release is not None:
            cells.append(cell)
    return [sorted(cells, key=lambda cell: Version(cell.spec.version or "0")) for cells in asked.values() if cells]


def cell_in(cell: Cell, version: str, *, has_cuda: bool) -> Cell:
    """The same cell in another release of its engine. Raises UsageError where that release cannot be had in the same way."""
    spec = spec_in(cell.spec, version)
    if spec.distribution == "venv":
        plan_for(spec, has_cuda=has_cuda)
    return replace(cell, spec=spec, expressed=express(cell.backend, spec.name, version))


def spec_in(spec: EngineSpec, version: str) -> EngineSpec:
    """The same engine in another version, from the same kind of origin. Raises UsageError for an endpoint or an image of one's own."""
    if spec.version == version:
        return spec
    if spec.distribution == "venv":
        return replace(spec, version=version)
    if spec.distribution == "docker" and spec.target == default_image(spec.name, spec.version)[0]:
        return EngineSpec.parse(f"{spec.name}=={version}@docker")
    todo = "Give the engine as @venv, or as @docker with its default image."
    raise UsageError(f"{spec.name} {version} cannot be started in the way of {spec}.", todo=todo)


def history_of(store: Store, cell: Cell, node_id: str) -> CellHistory | None:
    """All boots of a cell over its releases that count as evidence; None without any. Raises StoreError."""
    if not store.database.exists():
        return None
    key = series_key(cell.spec.name, cell.spec.distribution, cell.recipe.name, cell.backend.name, node_id)
    with store.reading() as connection:
        stored = cell_history(connection, history_id_of(key))
    return None if stored is None else stored.history


def verdict_on(store: Store, cell: Cell, node_id: str) -> CellVerdict | None:
    """The verdict on all releases of a cell; None without any boot. Raises StoreError and VerdictInputError."""
    history = history_of(store, cell, node_id)
    return None if history is None else judge_cell(history)


def _of_cell(store: Store, cells: Sequence[Cell], made: Sequence[BootResult], node_id: str, *, has_cuda: bool) -> list[PlannedBoot]:
    """The next boots of one cell asked for in these releases: one open verdict at a time, the oldest release first."""
    verdict = verdict_on(store, cells[0], node_id)
    if verdict is None:
        return []
    for cell in cells:
        release = release_in(verdict, cell)
        turns = None if release is None else turns_to_confirm(verdict, release, _made(made, cell, verdict))
        if turns is not None and release is not None:
            return _planned(cell, release, turns, made, has_cuda=has_cuda)
    return []


def release_in(verdict: CellVerdict, cell: Cell) -> str | None:
    """The release of `cell` as the verdict spells it; None if it has no boot there."""
    return next((one.release for one in verdict.releases if Version(one.release) == cell.spec.release), None)


def _made(made: Sequence[BootResult], cell: Cell, verdict: CellVerdict) -> Counter[str]:
    """Confirming boots of this visit by release, spelled as the verdict spells it."""
    mine = (cell.spec.name, cell.recipe.name, cell.backend.name)
    runs = [result.run for result in made if (result.run.engine, result.run.recipe_name, result.run.backend_name) == mine]
    versions = [run.engine_version for run in runs if run.purpose is Purpose.CONFIRM]
    spelled = order_releases([*(one.release for one in verdict.releases), *versions]).name_of
    return Counter(spelled.get(version, version) for version in versions)


def _planned(cell: Cell, release: str, turns: Turns, made: Sequence[BootResult], *, has_cuda: bool) -> list[PlannedBoot]:
    version = cell.spec.version or release
    mine = (cell.spec.name, version, cell.recipe.name, cell.backend.name)
    raised = [r.run.run_id for r in made if (r.run.engine, r.run.engine_version, r.run.recipe_name, r.run.backend_name) == mine]
    cells = {one: cell if one == release else cell_in(cell, one, has_cuda=has_cuda) for one in turns.releases}
    return [
        PlannedBoot(cells[one], number, len(turns.releases), Purpose.CONFIRM, raised[0] if raised else None)
        for number, one in enumerate(turns.releases, start=1)
    ]
