"""Readers and writers as processes of their own on one store: no read may fail, no write may be lost.

Writers make small boot folders and store each by a commit of its own, as runners do; readers ask what a page asks, as often as they can.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from results.boot_folder import BootFolder, BootSummary, new_run_id
from results.errors import StoreError
from results.maintenance import check
from results.records import NodeRecord, PhaseRecord, RunRecord, SampleRecord
from results.store import Store
from results.vocabulary import Outcome, Phase

_READ = """
SELECT (SELECT count(*) FROM runs) AS runs, (SELECT count(*) FROM boot_facts) AS facts, (SELECT count(*) FROM stale_histories) AS stale,
       (SELECT sum(boots) FROM verdicts) AS judged
"""


@dataclass(frozen=True)
class Work:
    """What one process did. `failures` are the first few errors in words."""

    kind: str
    done: int
    failures: tuple[str, ...]
    worst_s: float


@dataclass(frozen=True)
class Contention:
    """What came of it. `lost` are boots that were stored according to their writer and are not in the database."""

    seconds: float
    reads: int
    writes: int
    failed: tuple[str, ...]
    lost: tuple[str, ...]
    problems: tuple[str, ...]
    worst_read_s: float
    worst_write_s: float


def contend(root: Path, seconds: float, *, writers: int = 2, readers: int = 2, wait_s: float = 120.0) -> Contention:
    """Let the processes work on the store below `root` for so long, then look at what is there."""
    store = Store(root, wait_s=wait_s)
    store.ingest(make_boot(store, 0, 0))
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    processes = [context.Process(target=_write, args=(root, number, seconds, wait_s, answers)) for number in range(1, writers + 1)]
    processes += [context.Process(target=_read, args=(root, seconds, wait_s, answers)) for _ in range(readers)]
    started = time.monotonic()
    for process in processes:
        process.start()
    works: Sequence[Work] = [answers.get(timeout=seconds + 10 * wait_s) for _ in processes]
    for process in processes:
        process.join()
    return _result(store, works, time.monotonic() - started)


def _result(store: Store, works: Sequence[Work], seconds: float) -> Contention:
    stored = {row["run_id"] for row in store.query("SELECT run_id FROM runs")}
    folders = {path.name for path in store.boots.iterdir()}
    report = check(store)
    by_kind = {kind: [work for work in works if work.kind == kind] for kind in ("read", "write")}
    return Contention(
        seconds=seconds,
        reads=sum(work.done for work in by_kind["read"]),
        writes=sum(work.done for work in by_kind["write"]),
        failed=tuple(failure for work in works for failure in work.failures),
        lost=tuple(sorted(folders - stored)),
        problems=report.problems,
        worst_read_s=max(work.worst_s for work in by_kind["read"]),
        worst_write_s=max(work.worst_s for work in by_kind["write"]),
    )


def make_boot(store: Store, writer: int, number: int) -> BootFolder:
    """A small boot of one of four cells and one of five releases."""
    folder = BootFolder(store.boots, new_run_id())
    folder.create()
    moment = f"2026-11-{1 + number // 1440 % 28:02d}T{number // 60 % 24:02d}:{number % 60:02d}:00+00:00"
    run = RunRecord(
        run_id=folder.run_id,
        session_id=f"{writer}-{number}",
        cell_id="cell",
        series_id="series",
        engine="vllm",
        engine_version=f"0.{30 + number % 5}.0",
        distribution="venv",
        recipe_name=f"model-{number % 2}",
        backend_name=f"backend-{writer % 2}",
        node_id="node",
        protocol_version=1,
        started_at=moment,
        phase=Phase.TEARDOWN,
        outcome=Outcome.PASS,
    )
    folder.write_summary(BootSummary(run, NodeRecord("node", "a spark")))
    folder.append([PhaseRecord(folder.run_id, Phase.READY, moment, 30.0, True)])
    folder.append(
        SampleRecord(folder.run_id, "decode_c1", repeat, 0, 1, cold=False, launch_bound=False, decode_tok_s=50.0 + repeat, ttft_s=0.1)
        for repeat in range(5)
    )
    return folder


def _write(root: Path, writer: int, seconds: float, wait_s: float, answers: Queue[Work]) -> None:
    store = Store(root, wait_s=wait_s)
    end = time.monotonic() + seconds
    failures: list[str] = []
    done, worst = 0, 0.0
    while time.monotonic() < end:
        folder = make_boot(store, writer, done)
        started = time.monotonic()
        try:
            store.ingest(folder)
            done += 1
        except StoreError as error:
            failures.append(f"write: {error}")
        worst = max(worst, time.monotonic() - started)
    answers.put(Work("write", done, tuple(failures[:5]), worst))


def _read(root: Path, seconds: float, wait_s: float, answers: Queue[Work]) -> None:
    """Read until the end; a number of boots that goes down, or boots without facts or verdict, is a failure."""
    store = Store(root, wait_s=wait_s)
    end = time.monotonic() + seconds
    failures: list[str] = []
    done, seen, worst = 0, 0, 0.0
    while time.monotonic() < end:
        started = time.monotonic()
        try:
            (row,) = store.query(_READ)
            done += 1
            if row["runs"] < seen or row["facts"] != row["runs"] or row["stale"] or row["judged"] != row["runs"]:
                failures.append(f"read: half a commit: {row} after {seen} boots")
            seen = row["runs"]
        except StoreError as error:
            failures.append(f"read: {error}")
        worst = max(worst, time.monotonic() - started)
    answers.put(Work("read", done, tuple(failures[:5]), worst))
