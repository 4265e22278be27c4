"""Boot folders as a real boot leaves them, made in a few lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from results.boot_folder import BootFolder, BootSummary, new_run_id
from results.records import CoherenceRecord, NodeRecord, PhaseRecord, ResourceRecord, RunRecord, SampleRecord
from results.store import Store
from results.vocabulary import Outcome, Phase, Purpose

MakeBoot = Callable[..., BootFolder]
NODE = NodeRecord("node", "my spark", driver_version="580.95", kernel="6.14.0", firmware="1.2.3", sm_clock_cap_mhz=2400)


def dump(store: Store) -> dict[str, list[dict[str, object]]]:
    """Every row of every table, in an order that does not depend on when it was stored."""
    names = [row["table_name"] for row in store.query("SELECT table_name FROM duckdb_tables() WHERE table_name <> 'schema_version'")]
    return {name: store.query(f"SELECT * FROM {name} ORDER BY ALL") for name in sorted(names)}


def minutes(number: int) -> str:
    """The time so many minutes after the first boot of a test."""
    return (datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=number)).isoformat()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", wait_s=5)


@pytest.fixture
def make_boot(store: Store) -> MakeBoot:
    def make(
        *,
        version: str = "0.32.0",
        outcome: Outcome | None = Outcome.PASS,
        decode: tuple[float, ...] = (100.0, 101.0, 102.0),
        started_at: str = "2026-11-30T13:00:00+00:00",
        series: str = "series",
        broken_prompts: int = 0,
        session: str = "session",
        purpose: Purpose = Purpose.MEASURE,
        node: NodeRecord = NODE,
        root: Path | None = None,
        launch_bound: bool = True,
        **fields: Any,
    ) -> BootFolder:
        folder = BootFolder(root or store.boots, new_run_id(datetime.fromisoformat(started_at)))
        folder.create()
        rid = folder.run_id
        run = RunRecord(
            run_id=rid,
            session_id=session,
            cell_id=f"{series}-{version}",
            series_id=series,
            engine="vllm",
            engine_version=version,
            distribution="venv",
            recipe_name="canary-dense",
            backend_name="eager",
            node_id=node.node_id,
            protocol_version=1,
            started_at=started_at,
            phase=Phase.TEARDOWN,
            outcome=outcome,
            reason=None if outcome is Outcome.PASS else "because",
            command=("python", "-m", "server"),
            environment={"HF_HUB_OFFLINE": "1"},
            configured={"attention": "TRITON_ATTN"},
            actual={"attention": "unknown"},
            memory_baseline_bytes=1_000,
            memory_after_load_bytes=5_000,
            warnings=("a warning",),
            purpose=purpose,
        )
        run = dataclasses.replace(run, **fields)
        folder.write_summary(BootSummary(run, node))
        folder.append([PhaseRecord(rid, Phase.LAUNCH, started_at, 1.5, True)])
        folder.append(
            CoherenceRecord(rid, "A", f"p{i}", "golden", "wrong" if i < broken_prompts else "match", "reason", "text", (1, 2), (1, 2))
            for i in range(3)
        )
        folder.append(
            SampleRecord(rid, "decode_c1", i, 0, 1, cold=False, launch_bound=launch_bound, decode_tok_s=rate, ttft_s=0.1)
            for i, rate in enumerate(decode)
        )
        folder.append([SampleRecord(rid, "decode_c1", 0, 0, 1, cold=True, launch_bound=launch_bound, decode_tok_s=1.0)])
        folder.append([ResourceRecord(rid, 0.5, Phase.LAUNCH, memory_used_bytes=1_000)])
        return folder

    return make
