"""How fast boots go from their folders into a store, verdicts included: whole cells at once, a night of many cells, one by one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from results.boot_folder import BootFolder, BootSummary
from results.records import BackendRecord, CoherenceRecord, NodeRecord, PhaseRecord, RecipeRecord, RunRecord, SampleRecord
from results.store import Store
from results.vocabulary import Outcome, Phase

_START = datetime(2027, 3, 1, tzinfo=UTC)
_RELEASES, _BOOTS = 40, 8
"""Of each cell in a rebuild: what the made-up history has (plan.py)."""
_NODE = NodeRecord("node-0", "spark 0", "NVIDIA GB10", "12.1", "620.95", "13.0", "6.14.0", memory_total_bytes=128 * 10**9)


@dataclass(frozen=True)
class IngestSpeed:
    """`seconds` of wall time and of processor time for `samples` samples of `boots` boots, verdicts included."""

    boots: int
    samples: int
    seconds: float
    cpu_s: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds


def make_folders(boots_root: Path, boots: int, samples: int, *, cells: int, first: int = 0) -> list[BootFolder]:
    """Folders of a new release, with `samples` samples each, over so many cells of node-0."""
    return [_make_folder(boots_root, number, number % cells, "0.99.0", samples) for number in range(first, first + boots)]


def make_cells(boots_root: Path, cells: int, samples: int) -> int:
    """Folders of whole cells: _BOOTS boots of each of _RELEASES releases. Returns how many."""
    boots = [(release, cell) for release in range(_RELEASES) for _ in range(_BOOTS) for cell in range(cells)]
    for number, (release, cell) in enumerate(boots):
        _make_folder(boots_root, number, cell, f"0.{release + 1}.0", samples)
    return len(boots)


def _make_folder(boots_root: Path, number: int, cell: int, version: str, samples: int) -> BootFolder:
    start = _START + timedelta(minutes=4 * number)
    folder = BootFolder(boots_root, f"{start:%Y%m%dT%H%M%SZ}-{number:08x}")
    folder.create()
    _write(folder, start, cell, version, samples)
    return folder


def _write(folder: BootFolder, start: datetime, cell: int, version: str, samples: int) -> None:
    rid, moment = folder.run_id, start.isoformat()
    recipe, backend = f"{cell % 16:02d}", f"{cell // 16 % 12:02d}"
    run = RunRecord(
        run_id=rid,
        session_id=f"ingest-{start:%Y%m%d}",
        cell_id="cell",
        series_id="series",
        engine="vllm",
        engine_version=version,
        distribution="venv",
        recipe_name=f"model-{recipe}",
        backend_name=f"backend-{backend}",
        node_id="node-0",
        protocol_version=1,
        started_at=moment,
        finished_at=(start + timedelta(minutes=3)).isoformat(),
        phase=Phase.TEARDOWN,
        outcome=Outcome.PASS,
        recipe_id=f"recipe-{recipe}",
        backend_id=f"vllm-{backend}",
        kv_cache_tokens=100_000,
    )
    summary = BootSummary(
        run,
        _NODE,
        recipe=RecipeRecord(f"recipe-{recipe}", f"model-{recipe}", "owner/model", None, None, "model"),
        backend=BackendRecord(f"vllm-{backend}", "vllm", f"backend-{backend}"),
    )
    folder.write_summary(summary)
    folder.append(PhaseRecord(rid, phase, moment, 1.0, True) for phase in Phase)
    folder.append(CoherenceRecord(rid, "A", f"p{number}", "golden", "match", "", "text", (1, 2), (1, 2)) for number in range(3))
    folder.append(_sample(rid, number, samples) for number in range(samples))


def _sample(run_id: str, number: int, samples: int) -> SampleRecord:
    alone = number < samples // 2
    return SampleRecord(
        run_id,
        "decode_c1" if alone else "decode_c8",
        number if alone else (number - samples // 2) // 8,
        0 if alone else (number - samples // 2) % 8,
        1 if alone else 8,
        cold=False,
        launch_bound=False,
        prompt_tokens=128,
        completion_tokens=256,
        ttft_s=0.1,
        decode_tok_s=50.0 + number % 7,
        prefill_tok_s=1000.0,
        itl_p50_s=0.02,
        itl_p99_s=0.03,
        e2e_s=5.0,
        aggregate_tok_s=50.0 if alone else 300.0,
    )


def batch_speed(store: Store, boots: int, samples: int, *, cells: int, first: int = 0) -> IngestSpeed:
    """Store so many new folders into what is there, as the end of a night or `sparkproof import` does."""
    make_folders(store.boots, boots, samples, cells=cells, first=first)
    wall, cpu = time.perf_counter(), time.process_time()
    report = store.ingest_pending()
    if len(report.ingested) != boots:
        raise RuntimeError(f"{len(report.ingested)} of {boots} folders were stored: {report.skipped}")
    return IngestSpeed(boots, boots * samples, time.perf_counter() - wall, time.process_time() - cpu)


def rebuild_speed(store: Store, cells: int, samples: int) -> IngestSpeed:
    """Make an empty store from the folders of so many whole cells, as `sparkproof rebuild` does."""
    boots = make_cells(store.boots, cells, samples)
    wall, cpu = time.perf_counter(), time.process_time()
    report = store.rebuild()
    if len(report.ingested) != boots:
        raise RuntimeError(f"{len(report.ingested)} of {boots} folders were stored: {report.skipped}")
    return IngestSpeed(boots, boots * samples, time.perf_counter() - wall, time.process_time() - cpu)


def commit_seconds(store: Store, boots: int, samples: int, *, cells: int, first: int) -> list[float]:
    """Seconds of the commit of each of so many boots, as a runner makes them."""
    seconds: list[float] = []
    for folder in make_folders(store.boots, boots, samples, cells=cells, first=first):
        started = time.perf_counter()
        store.ingest(folder)
        seconds.append(time.perf_counter() - started)
    return seconds
