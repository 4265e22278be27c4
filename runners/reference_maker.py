"""Make a known good reference from one trusted boot, and let the user widen it.

Trap: whatever a new release answers becomes the reference it is judged by. Rule: a reference is made only on request, by a boot of its own
(purpose `reference`) that has passed its gate, and never changed by a later boot; only an explicit word of the user adds an answer.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path

from results.records import RunRecord
from results.store import Store
from results.vocabulary import Outcome, Purpose
from runners.boot import Boot
from runners.coherence.collecting import Collected, collect, widened
from runners.coherence.gate import over_http
from runners.coherence.reference_file import FOLDER, Answer, Key, Made, Reference
from runners.errors import InfrastructureError, UsageError
from runners.failure import PhaseFailure
from runners.model_references import key_of
from runners.recorder import utc_now
from runners.session import Plan


@dataclass
class Collector:
    """Called by the boot once its gate has passed; keeps what the reference is made of."""

    key: Key | None = None
    path: str | None = None
    collected: Collected | None = field(default=None)

    def __call__(self, boot: Boot) -> None:
        """Ask the boot's server for everything. A server that stops answering or answers brokenly ends the boot."""
        target = boot.gate_target()
        found = over_http(target, lambda send: collect(send, target, boot.adapter, boot.progress, time.monotonic))
        for note in found.notes:
            boot.recorder.warn(note)
        if found.problem is not None:
            raise PhaseFailure(Outcome.WRONG, f"no reference can be made of this boot: {found.problem}")
        self.key, self.path, self.collected = key_of(boot.cell.recipe, boot.require_model()), target.path, found


def reference_plan(plan: Plan) -> Plan:
    """The plan's only boot, made as a reference: it ends after its gate. Raises UsageError if it has several."""
    if len(plan.boots) != 1:
        todo = "Give one --engine, --model and --backend."
        raise UsageError(f"a reference is made by one boot, this plan has {len(plan.boots)}.", todo=todo)
    if plan.boots[0].cell.recipe.dummy:
        raise UsageError(f"{plan.boots[0].cell.recipe.name} has random weights: nothing it says is a reference.", todo="Give a real model.")
    return dataclasses.replace(plan, boots=(dataclasses.replace(plan.boots[0], purpose=Purpose.REFERENCE, timed=False),))


def reference_of(collector: Collector, run: RunRecord) -> Reference:
    """The reference that a passed boot gave."""
    if collector.key is None or collector.collected is None:
        raise InfrastructureError("the boot passed but nothing was collected.", todo="This is a fault of Sparkproof; please report it.")
    made = Made(
        run_id=run.run_id,
        made_at=utc_now(),
        engine=run.engine,
        engine_version=run.server_version or run.engine_version,
        backend=run.backend_name,
        node=run.node_id,
        kernels=run.actual,
    )
    collected = collector.collected
    passages = {collector.path: collected.passages} if collector.path is not None and collected.passages else {}
    return Reference(key=collector.key, made=(made,), answers=collected.answers, texts=collected.texts, passages=passages)


def store_path(store_root: Path, key: Key) -> Path:
    """Where the user's own reference of `key` lies."""
    return store_root / FOLDER / key.file_name


def widen(reference: Reference, store: Store, run_id: str, prompt: str, why: str) -> tuple[Reference, int]:
    """The reference with every answer that run gave to `prompt`, and how many were new. Raises UsageError for one that cannot be added."""
    if prompt not in reference.answers:
        known = ", ".join(sorted(reference.answers)) or "none"
        raise UsageError(f"the reference has no prompt {prompt[:80]!r}.", todo=f"Its prompts: {known}.")
    found = store.query(
        "SELECT text, token_ids, verdict FROM coherence_results WHERE run_id = ? AND prompt_name = ? ORDER BY step", [run_id, prompt]
    )
    if not found:
        raise UsageError(f"run {run_id[:40]} has no answer to {prompt!r}.", todo="sparkproof runs lists the runs of this store.")
    answers = reference.answers[prompt]
    before = len(answers)
    for row in found:
        if row["verdict"] in ("match", "tie", "wrong", "pass_structure"):  # never a structurally broken answer
            added = Answer(text=row["text"], tokens=tuple(row["token_ids"] or ()), run_id=run_id, why=why)
            answers = widened(answers, added)
    changed = reference.model_copy(update={"answers": {**reference.answers, prompt: answers}})
    return changed, len(answers) - before
