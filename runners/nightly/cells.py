"""The cells of a suite in the releases of tonight, and what the store says about each.

Trap: boots made under another driver, another protocol or on a throttled node are counted as "measured", and the new state of the node is
never measured. Rule: a boot counts only if it is evidence, its numbers stand, and series and node state are those of now; whatever else
there is makes the cell stale, not done.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from packaging.version import Version

from results.records import NodeRecord
from results.series import node_state_row
from results.store import Store
from results.verdict.words import NO_EVIDENCE
from results.vocabulary import Outcome, Purpose
from runners.errors import SparkproofError
from runners.fit_check import why_not
from runners.models import check_available
from runners.nightly.planner import MOST_FAULTS, Candidate
from runners.plan import Cell
from runners.spec import EngineSpec
from suites.backends import backend_for, express
from suites.errors import SuiteError
from suites.recipes import Recipe, recipe_for
from suites.suite_files import Suite

_EVIDENCE = frozenset({Purpose.MEASURE, Purpose.CONFIRM, Purpose.ANCHOR, Purpose.BISECT})

_BOOTS = """
SELECT r.run_id, r.session_id, r.engine, r.engine_version, r.distribution, r.recipe_name, r.backend_name, r.series_id, r.node_state_id,
       r.outcome, r.purpose, r.started_at, f.health, f.total_s, coalesce(s.void, false) AS void
FROM runs r LEFT JOIN boot_facts f ON f.run_id = r.run_id LEFT JOIN sessions s ON s.session_id = r.session_id
WHERE r.node_id = ? AND r.outcome IS NOT NULL AND NOT r.in_process
ORDER BY r.started_at, r.run_id
"""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class NightCells:
    """Every cell that could be measured tonight, the newest releases first, and those that cannot be with the reason."""

    cells: tuple[Cell, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    anchor: Cell | None = None


def cells_of(suite: Suite, specs: Sequence[EngineSpec], *, has_cuda: bool, may_download: bool) -> NightCells:
    """The suite's cells in these releases, canaries first, then shapes. Raises SuiteError for a recipe or backend nobody knows.

    What a release cannot express is a cell too: its boot ends at once as `unsupported`, and that is how a backend is seen to be gone.
    """
    recipes = sorted((recipe_for(name) for name in suite.recipes), key=lambda recipe: recipe.turn)
    backends = [backend_for(name) for name in (suite.backends.cuda if has_cuda else suite.backends.cpu)]
    made = {str(spec): spec for spec in specs}
    anchor_spec = EngineSpec.parse(suite.nightly.anchor) if suite.nightly.anchor is not None else None
    missing = {} if may_download else _missing_models(recipes)
    cells: list[Cell] = []
    left_out: list[tuple[str, str]] = []
    for spec in made.values():
        for recipe in recipes:
            for backend in backends:
                cell = Cell(spec, recipe, backend, suite.workloads, express(backend, spec.name, spec.version or ""), suite.context)
                reason = missing.get(recipe.name)
                if reason is None:
                    cells.append(cell)
                else:
                    left_out.append((name_of(cell), reason))
    anchor = None
    canary = next((recipe for recipe in recipes if recipe.kind == "canary"), recipes[0])
    if anchor_spec is not None and canary.name not in missing:
        expressed = express(backends[0], anchor_spec.name, anchor_spec.version or "")
        anchor = Cell(anchor_spec, canary, backends[0], suite.workloads, expressed, suite.context)
        cells += [anchor] if anchor not in cells else []
    return NightCells(tuple(cells), tuple(left_out), anchor)


def _missing_models(recipes: Iterable[Recipe]) -> dict[str, str]:
    missing = {}
    for recipe in recipes:
        try:
            check_available(recipe)
        except (SparkproofError, SuiteError) as error:
            missing[recipe.name] = str(error)
    return missing


def name_of(cell: Cell) -> str:
    """`vllm==0.32.0 canary-dense eager`."""
    return f"{cell.spec} {cell.recipe.name} {cell.backend.name}"


def stored_boots(store: Store, node_id: str) -> list[dict[str, Any]]:
    """All finished boots of this node; none while there is no store. Raises StoreError for a damaged one."""
    return store.query(_BOOTS, [node_id]) if store.database.exists() else []


@dataclass(frozen=True)
class Known:
    """What is known about the node's boots. `since`: when this night began; faults before it do not count."""

    node: NodeRecord
    boots: Sequence[Row]
    since: datetime

    def counts(self, cell: Cell) -> list[Row]:
        """The boots that count for a cell, oldest first."""
        series, state = cell.series_id(self.node.node_id), node_state_row(self.node)["node_state_id"]
        return [
            boot
            for boot in self._of(cell)
            if boot["series_id"] == series
            and boot["node_state_id"] == state
            and boot["purpose"] in _EVIDENCE
            and boot["outcome"] not in NO_EVIDENCE
            and not boot["void"]
            and boot["health"] != "void"
        ]

    def is_stale(self, cell: Cell) -> bool:
        """Whether the cell was measured before, but nothing of it counts now."""
        return not self.counts(cell) and any(boot["outcome"] not in NO_EVIDENCE for boot in self._of(cell))

    def faults(self, cell: Cell) -> list[Row]:
        """Boots of this night that ended without evidence, our own interruptions left out; oldest first."""
        gone = NO_EVIDENCE - {Outcome.INTERRUPTED}
        return [boot for boot in self._of(cell) if boot["outcome"] in gone and boot["started_at"] >= self.since]

    def given_up(self, cells: Sequence[Cell]) -> list[str]:
        """A sentence for each cell of which nothing more is tried this night, because its boots kept ending without evidence."""
        return [
            f"{name_of(cell)}: {len(boots)} boots ended without evidence tonight; the last, {boots[-1]['run_id']}, ended "
            f"{boots[-1]['outcome']}"
            for cell in cells
            if len(boots := self.faults(cell)) >= MOST_FAULTS
        ]

    def seconds(self, cell: Cell) -> float | None:
        """The median duration of a boot of this cell; else of its recipe and backend in any release; else None."""
        own = [boot["total_s"] for boot in self._of(cell) if boot["total_s"] is not None and boot["outcome"] == Outcome.PASS]
        alike = [
            boot["total_s"]
            for boot in self.boots
            if boot["total_s"] is not None
            and boot["outcome"] == Outcome.PASS
            and (boot["engine"], boot["recipe_name"], boot["backend_name"]) == (cell.spec.name, cell.recipe.name, cell.backend.name)
        ]
        values = own or alike
        return statistics.median(values) if values else None

    def failed_before(self, cell: Cell) -> bool:
        """Whether the newest earlier release with evidence in the same cell failed there."""
        if cell.spec.release is None:
            return False
        mine = cell.spec.release
        earlier: dict[Version, list[str]] = {}
        for boot in self.boots:
            same = (boot["engine"], boot["distribution"], boot["recipe_name"], boot["backend_name"]) == _family(cell)
            version = EngineSpec(boot["engine"], boot["engine_version"]).release if same else None
            if version is not None and version < mine and boot["purpose"] in _EVIDENCE and boot["outcome"] not in NO_EVIDENCE:
                earlier.setdefault(version, []).append(boot["outcome"])
        if not earlier:
            return False
        return any(outcome not in (Outcome.PASS, Outcome.UNSUPPORTED) for outcome in earlier[max(earlier)])

    def _of(self, cell: Cell) -> list[Row]:
        version = cell.spec.version or "unknown"
        wanted = (*_family(cell), version)
        return [
            boot
            for boot in self.boots
            if (boot["engine"], boot["distribution"], boot["recipe_name"], boot["backend_name"], boot["engine_version"]) == wanted
        ]


def _family(cell: Cell) -> tuple[str, str, str, str]:
    return (cell.spec.name, cell.spec.distribution, cell.recipe.name, cell.backend.name)


def candidates_of(night: NightCells, known: Known, wanted: int) -> list[Candidate]:
    """What the planner needs to know about each cell, in the order of the cells."""
    new = _new_specs(night, known, wanted)
    return [_candidate(cell, night, known, wanted, is_new=str(cell.spec) in new) for cell in night.cells]


def _candidate(cell: Cell, night: NightCells, known: Known, wanted: int, *, is_new: bool) -> Candidate:
    """A cell that will be refused before anything is installed wants one boot, which says so."""
    outcomes = [boot["outcome"] for boot in known.counts(cell)]
    return Candidate(
        name=name_of(cell),
        path=f"{cell.spec} {cell.backend.name}",
        is_canary=cell.recipe.kind == "canary",
        is_shape=cell.recipe.dummy,
        wanted=wanted if why_not(cell, known.node) is None else 1,
        made=len(outcomes),
        failed=sum(outcome not in (Outcome.PASS, Outcome.UNSUPPORTED) for outcome in outcomes),
        unsupported=outcomes.count(Outcome.UNSUPPORTED),
        faults=len(known.faults(cell)),
        is_new=is_new,
        is_anchor=cell == night.anchor,
        family_broken=known.failed_before(cell),
        seconds=known.seconds(cell),
    )


def _new_specs(night: NightCells, known: Known, wanted: int) -> set[str]:
    """Releases newer than the newest one of their engine that is completely measured; the newest one where none is.

    Specs without a place in the order (an image of a nightly build) are new until they are complete.
    """
    complete: dict[str, bool] = {}
    for cell in night.cells:
        plain = _candidate(cell, night, known, wanted, is_new=False)
        complete[str(cell.spec)] = complete.get(str(cell.spec), True) and plain.needed == 0
    specs = {str(cell.spec): cell.spec for cell in night.cells if night.anchor is None or cell.spec != night.anchor.spec}
    new: set[str] = set()
    for engine in {(spec.name, spec.distribution) for spec in specs.values()}:
        mine = {name: spec for name, spec in specs.items() if (spec.name, spec.distribution) == engine}
        new |= {name for name, spec in mine.items() if spec.release is None and not complete[name]}
        ordered = {name: spec.release for name, spec in mine.items() if spec.release is not None}
        done = [release for name, release in ordered.items() if complete[name]]
        if done:
            new |= {name for name, release in ordered.items() if release > max(done)}
        elif ordered:
            new.add(max(ordered, key=lambda name: ordered[name]))
    return new
