"""Results of boots that the database could not take: the same table, from the boots' folders or at least from memory.

Trap: a run of an hour ends with the database locked by somebody's notebook, and prints nothing. Rule: what was measured is shown whatever
became of the commit; the next start stores it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from results.boot_folder import BootFolder
from results.errors import FolderError, StoreError
from results.records import RunRecord
from results.store import Store
from results.summary import CellSummary, summarise
from results.vocabulary import Outcome


def summaries_of(folders: Path, runs: Sequence[RunRecord]) -> list[CellSummary]:
    """One summary per cell of these boots, read from their folders below `folders` into a store that is thrown away.

    A boot whose folder cannot be read is a row with its outcome alone. There is no change to a previous version: that is in the database.
    """
    cells: list[CellSummary] = []
    readable: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="sparkproof-") as folder:
            store = Store(Path(folder))
            for run in runs:
                try:
                    store.ingest(BootFolder(folders, run.run_id))
                    readable.append(run.run_id)
                except (FolderError, StoreError):
                    continue
            cells = summarise(store, readable)
    except (OSError, StoreError):
        readable = []
    return [*cells, *(outcome_alone(run) for run in runs if run.run_id not in readable)]


def outcome_alone(run: RunRecord) -> CellSummary:
    """What the boot's own record says, without its samples."""
    outcome = run.outcome or Outcome.INFRASTRUCTURE
    return CellSummary(
        engine=run.engine,
        engine_version=run.engine_version,
        recipe_name=run.recipe_name,
        backend_name=run.backend_name,
        outcome=outcome,
        outcomes={str(outcome): 1},
        reason=run.reason,
        launch_bound=False,
        decode_tok_s=None,
        aggregate_tok_s=None,
        ttft_s=None,
        memory_used_bytes=None,
        max_model_len=run.max_model_len,
        kv_cache_tokens=run.kv_cache_tokens,
        kernels=dict(run.actual),
        configured=dict(run.configured),
        gate_prompts=0,
        gate_matched=0,
        phase_s={},
        previous=None,
        run_ids=(run.run_id,),
        warnings=run.warnings,
        weights=run.weights,
    )
