"""The cell of a boot that was made before, from its record.

Trap: "the same boot again" is put together from today's recipe and backend files and is another one. Rule: recipe, backend arguments and
version come from the boot's own record; what was hidden there for secrecy cannot be repeated, and that is said.
"""

from __future__ import annotations

from pydantic import ValidationError

from results.boot_folder import BootFolder, BootSummary
from results.records import RunRecord
from results.redact import HIDDEN
from results.store import Store
from runners.errors import UsageError
from runners.plan import Cell
from runners.spec import EngineSpec
from suites.backends import Backend, Expressed, Expression
from suites.recipes import Recipe
from suites.suite_files import suite_for


def cell_of_run(store: Store, run_id: str) -> tuple[RunRecord, Cell]:
    """The boot's row and its cell. Raises UsageError where the record does not say enough, FolderError without a usable folder."""
    summary = BootFolder(store.boots, run_id).summary()
    run = summary.run
    if summary.recipe is None or summary.backend is None:
        todo = "Name the cell instead: sparkproof diagnose --engine ... --model ... --backend ..."
        raise UsageError("the boot ended before recipe and backend were recorded.", where=run_id, todo=todo)
    try:
        recipe = Recipe.model_validate(summary.recipe.definition)
    except ValidationError as error:
        raise UsageError(f"its recipe cannot be read any more: {error.errors()[0]['msg']}", where=run_id) from error
    backend, expressed = _backend(summary)
    spec = EngineSpec.parse(_spec_text(summary))
    return run, Cell(spec, recipe, backend, tuple(suite_for("smoke").workloads), expressed)


def _spec_text(summary: BootSummary) -> str:
    run = summary.run
    if run.distribution == "venv":
        return f"{run.engine}=={run.engine_version}"
    todo = "Give it again: sparkproof diagnose --engine NAME==VERSION@... --model ... --backend ..."
    raise UsageError(f"image or address of a boot @{run.distribution} are not part of its record.", where=run.run_id, todo=todo)


def _backend(summary: BootSummary) -> tuple[Backend, Expressed]:
    record, run = summary.backend, summary.run
    assert record is not None
    if any(HIDDEN in text for text in (*record.arguments, *record.environment.values())):
        raise UsageError("a value of its backend was hidden as a secret and cannot be repeated.", where=run.run_id)
    entry = Expression(arguments=record.arguments, environment=record.environment, kernels=run.configured)
    backend = Backend(name=record.name, description="As recorded.", engines={record.engine: (entry,)})
    return backend, Expressed(record.arguments, dict(record.environment), dict(run.configured))
