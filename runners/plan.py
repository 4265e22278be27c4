"""Which cells one invocation measures, in which order, and what makes two of them the same.

Trap: another configuration's result is read back as this one's (M16). Rule: a cell's identity hashes everything that could change the
number: engine build, recipe, backend, workloads, node and our own protocol version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from results.records import PROTOCOL_VERSION
from results.vocabulary import Purpose
from runners.spec import EngineSpec
from suites.backends import AnyBackend, Expressed, Unsupported, express
from suites.recipes import Recipe
from suites.workloads import Workload


@dataclass(frozen=True)
class Cell:
    """Engine spec x recipe x backend x workload set. `expressed` is the backend in this version's own flags, or why it has none."""

    spec: EngineSpec
    recipe: Recipe
    backend: AnyBackend
    workloads: tuple[Workload, ...]
    expressed: Expressed | Unsupported
    context: tuple[int, ...] = ()
    """Depths at which recall is tried after timing, in tokens; not part of the identity, because nothing is timed after it."""

    def series_id(self, node_id: str) -> str:
        """Identity without the engine version: boots of different versions with one series id are comparable."""
        return _digest({**self._common(node_id), "engine": self.spec.name})

    def cell_id(self, node_id: str, build_id: str | None) -> str:
        """Identity of the cell (M16). `build_id` is None until the environment is known; the folder of a given one is no part of it."""
        spec = replace(self.spec, target="") if self.spec.distribution == "venv" else self.spec
        return _digest({**self._common(node_id), "spec": str(spec), "build": build_id})

    def _common(self, node_id: str) -> dict[str, Any]:
        return {
            "recipe": self.recipe.recipe_id,
            "backend": self.backend.name,
            "workloads": [asdict(w) for w in self.workloads],
            "node": node_id,
            "protocol": PROTOCOL_VERSION,
        }


@dataclass(frozen=True)
class PlannedBoot:
    """One boot to make: `number` of `of` boots of its cell, why it is made, and the run that it confirms or is a control of.

    `timed` False: it ends after its gate.
    """

    cell: Cell
    number: int
    of: int
    purpose: Purpose = Purpose.MEASURE
    control_of: str | None = None
    timed: bool = True


def plan_boots(
    specs: Sequence[EngineSpec],
    recipes: Sequence[Recipe],
    backends: Sequence[AnyBackend],
    workloads: Sequence[Workload],
    boots: int,
    context: Sequence[int] = (),
) -> list[PlannedBoot]:
    """Every boot in the order it is made: canaries first, then shapes, so that a broken path costs a minute, and rounds rather than one
    cell's boots in a row, so that a slow drift of the node does not look like a difference between cells."""
    ordered = sorted(recipes, key=lambda r: r.turn)
    cells = [
        Cell(spec, recipe, backend, tuple(workloads), express(backend, spec.name, spec.version or ""), tuple(context))
        for spec in specs
        for recipe in ordered
        for backend in backends
    ]
    return [PlannedBoot(cell, number, boots) for number in range(1, boots + 1) for cell in cells]


def backend_id(engine: str, backend: AnyBackend, expressed: Expressed) -> str:
    """Hash of what the backend sets in this version."""
    return _digest({"engine": engine, "name": backend.name, "arguments": expressed.arguments, "environment": dict(expressed.environment)})


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=list).encode()).hexdigest()[:16]
