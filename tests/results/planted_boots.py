"""Histories planted in a store: one boot a release and speed, as a real boot leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from results.boot_folder import BootFolder, BootSummary, new_run_id
from results.records import NodeRecord, RunRecord, SampleRecord
from results.store import Store
from results.vocabulary import Outcome, Phase, Purpose

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def plant(
    store: Store,
    speeds: Mapping[str, Sequence[float | Outcome]],
    *,
    engine: str = "vllm",
    model: str = "canary-dense",
    backend: str = "eager",
    node: NodeRecord | None = None,
    purpose: Purpose = Purpose.MEASURE,
) -> list[str]:
    """One boot for each value: a speed in tok/s of a passing one, or the outcome of one that failed. Returns the run ids."""
    run_ids = []
    for day, (version, boots) in enumerate(speeds.items()):
        for number, value in enumerate(boots):
            started = START + timedelta(days=day, hours=number)
            run_ids.append(_boot(store, version, value, started, engine, model, backend, node or NodeRecord("node", "my spark"), purpose))
    store.ingest_pending()
    return run_ids


def _boot(
    store: Store,
    version: str,
    value: float | Outcome,
    started: datetime,
    engine: str,
    model: str,
    backend: str,
    node: NodeRecord,
    purpose: Purpose,
) -> str:
    outcome = value if isinstance(value, Outcome) else Outcome.PASS
    folder = BootFolder(store.boots, new_run_id(started))
    folder.create()
    run = RunRecord(
        run_id=folder.run_id,
        session_id=f"session-{folder.run_id}",
        cell_id=f"{model}-{version}",
        series_id="series",
        engine=engine,
        engine_version=version,
        distribution="venv",
        recipe_name=model,
        recipe_id=f"recipe-{model}",
        backend_name=backend,
        node_id=node.node_id,
        protocol_version=1,
        started_at=started.isoformat(),
        finished_at=(started + timedelta(minutes=3)).isoformat(),
        phase=Phase.TEARDOWN,
        outcome=outcome,
        reason=None if outcome is Outcome.PASS else "because",
        purpose=purpose,
    )
    folder.write_summary(BootSummary(run, node))
    if not isinstance(value, Outcome):
        folder.append(
            SampleRecord(folder.run_id, "decode_c1", repeat, 0, 1, cold=False, launch_bound=False, decode_tok_s=value, ttft_s=0.1)
            for repeat in range(3)
        )
        folder.append(
            SampleRecord(folder.run_id, "decode_c8", 0, stream, 8, cold=False, launch_bound=False, aggregate_tok_s=4 * value)
            for stream in range(8)
        )
    return folder.run_id
