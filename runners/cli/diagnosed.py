"""What the commands that make control boots show of them: the diagnosis of each failed cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from results.records import DiagnosisRecord, RunRecord
from results.vocabulary import Outcome, Purpose
from runners.cli.shell import out, shown
from runners.diagnose.follow_up import Controls
from runners.pipeline import BootResult


def outcomes_asked_for(results: Sequence[BootResult]) -> list[Outcome]:
    """Outcomes that decide the exit code: a control boot is no cell that anybody asked for, unless it was interrupted."""
    outcomes = [(r.planned.purpose, r.run.outcome or Outcome.INFRASTRUCTURE) for r in results]
    return [outcome for purpose, outcome in outcomes if purpose is not Purpose.CONTROL or outcome is Outcome.INTERRUPTED]


def diagnoses_as_json(controls: Controls) -> list[dict[str, Any]]:
    """One object per diagnosed boot."""
    return [as_json(run, diagnosis) for run, diagnosis in controls.diagnoses]


def as_json(run: RunRecord, diagnosis: DiagnosisRecord) -> dict[str, Any]:
    """A diagnosis with the cell that it is about."""
    return {
        "run_id": run.run_id,
        "engine": run.engine,
        "engine_version": run.engine_version,
        "recipe_name": run.recipe_name,
        "backend_name": run.backend_name,
        "outcome": run.outcome,
        "conclusion": diagnosis.conclusion,
        "detail": diagnosis.detail,
        "sentence": diagnosis.sentence,
        "use_instead": list(diagnosis.use_instead),
        "controls": list(diagnosis.controls),
    }


def print_diagnoses(controls: Controls) -> None:
    """One paragraph per diagnosed boot."""
    for run, diagnosis in controls.diagnoses:
        detail = f" ({diagnosis.detail})" if diagnosis.detail else ""
        cell = f"{run.engine} {run.engine_version}, {run.recipe_name}, {run.backend_name}"
        out.print(shown(f"\nwhy {cell} is {run.outcome}: {diagnosis.conclusion}{detail}", 1_000), markup=False, style="bold")
        out.print(shown(f"  {diagnosis.sentence}", 2_000), markup=False)
        for line in diagnosis.use_instead:
            out.print(shown(f"  use instead: {line}", 400), markup=False)
        if diagnosis.controls:
            out.print(shown(f"  controls: {', '.join(diagnosis.controls)}", 1_000), markup=False)
