"""What a session says about its boots where nobody watches a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from results.vocabulary import Purpose
from runners.cli import progress
from runners.plan import PlannedBoot, plan_boots
from runners.spec import EngineSpec
from suites.backends import backend_for
from suites.recipes import recipe_for
from suites.workloads import DECODE_C1

CELL = plan_boots([EngineSpec("vllm", "0.32.0")], [recipe_for("canary-dense")], [backend_for("eager")], [DECODE_C1], 1)[0].cell


@pytest.mark.parametrize(
    ("open_ended", "planned", "line"),
    [
        (False, PlannedBoot(CELL, 2, 3), "[2/6] vllm 0.32.0 canary-dense eager boot 2/3"),
        (True, PlannedBoot(CELL, 2, 3), "[2] vllm 0.32.0 canary-dense eager boot 2/3"),
        (True, PlannedBoot(CELL, 1, 1, Purpose.ANCHOR), "[2] vllm 0.32.0 canary-dense eager (anchor)"),
        (True, PlannedBoot(CELL, 1, 6, Purpose.SELF_CHECK), "[2] vllm 0.32.0 canary-dense eager boot 1/6 (self-check)"),
    ],
)
def test_a_boot_is_named_with_its_purpose_and_counted_against_a_total_only_where_there_is_one(
    open_ended: bool, planned: PlannedBoot, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=told, width=200))
    with progress.SessionProgress(open_ended=open_ended) as shown:
        shown.boot(2, 6, planned)
    assert told.getvalue().strip() == line
