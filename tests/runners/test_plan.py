from __future__ import annotations

import dataclasses

from runners.plan import Cell, plan_boots
from runners.spec import EngineSpec
from suites.backends import Unsupported, backend_for, express
from suites.recipes import recipe_for
from suites.workloads import STANDARD_WORKLOADS

SPEC = EngineSpec.parse("vllm==0.32.0")
CANARY, GEMMA = recipe_for("canary-dense"), recipe_for("gemma3-270m")
EAGER = backend_for("eager")


def _cell() -> Cell:
    return Cell(SPEC, CANARY, EAGER, STANDARD_WORKLOADS, express(EAGER, "vllm", "0.32.0"))


def test_canaries_are_measured_first_and_boots_in_rounds() -> None:
    boots = plan_boots([SPEC], [GEMMA, CANARY], [EAGER], STANDARD_WORKLOADS, 2)
    assert [(b.cell.recipe.name, b.number) for b in boots] == [
        ("canary-dense", 1),
        ("gemma3-270m", 1),
        ("canary-dense", 2),
        ("gemma3-270m", 2),
    ]


def test_everything_that_could_change_a_number_changes_the_cell() -> None:
    cell = _cell()
    base = cell.cell_id("node", "build")
    longer = dataclasses.replace(STANDARD_WORKLOADS[0], completion_tokens=512)
    others = [
        cell.cell_id("other node", "build"),
        cell.cell_id("node", "other build"),
        dataclasses.replace(cell, spec=EngineSpec.parse("vllm==0.31.0")).cell_id("node", "build"),
        dataclasses.replace(cell, recipe=GEMMA).cell_id("node", "build"),
        dataclasses.replace(cell, backend=backend_for("default")).cell_id("node", "build"),
        dataclasses.replace(cell, workloads=(longer,)).cell_id("node", "build"),
    ]
    assert len({base, *others}) == 1 + len(others)


def test_two_versions_of_one_cell_share_a_series_and_two_engines_do_not() -> None:
    cell = _cell()
    older = dataclasses.replace(cell, spec=EngineSpec.parse("vllm==0.31.0"))
    other = dataclasses.replace(cell, spec=EngineSpec.parse("sglang==0.5.14"))
    assert cell.series_id("node") == older.series_id("node") != other.series_id("node")


def test_a_backend_that_a_version_lacks_is_planned_as_unsupported_with_its_reason() -> None:
    (boot,) = plan_boots([EngineSpec.parse("vllm==0.16.0")], [CANARY], [backend_for("marlin")], STANDARD_WORKLOADS, 1)
    assert isinstance(boot.cell.expressed, Unsupported)
    assert "--moe-backend exists from 0.17.0" in boot.cell.expressed.reason
