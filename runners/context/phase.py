"""The context phase of a boot: ask at growing depth, keep every row, and say how far it really reaches."""

from __future__ import annotations

from results.records import ContextRecord
from runners.boot import Boot
from runners.context.probe import ContextPlan, verify_context
from runners.phases import server_failure


def verify(boot: Boot) -> None:
    """Find the verified context of a running server that has been timed. Raises PhaseFailure if the server dies or hangs over it.

    What is not recalled is a row and a warning, not a failure of the boot: how far a model recalls is a property of the model too.
    """
    assert boot.fields is not None, "the context phase comes after the warm-up"
    run = boot.recorder.run
    limits = [limit for limit in (run.max_model_len or boot.cell.recipe.max_model_len, run.kv_cache_tokens) if limit]
    plan = ContextPlan(run.run_id, boot.cell.context, min(limits), boot.fields.accepted, boot.require_model().canary)

    def keep(record: ContextRecord) -> None:
        boot.recorder.append([record])

    result = verify_context(boot.target, boot.adapter, plan, keep, boot.progress)
    if result.failure is not None:
        raise server_failure(boot, f"context: {result.stopped}", is_hang=result.is_hang)
    if result.stopped is not None:
        verified = "nothing" if result.verified_tokens is None else f"{result.verified_tokens:,} tokens"
        boot.recorder.warn(f"context verified to {verified}: {result.stopped}")
