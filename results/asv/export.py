"""From the store to a folder that asv works in: `releases` (git), `results`, `asv.conf.json`, and `run.conf.json` for `asv run`.

Trap: an export into a folder with somebody's files in it deletes them, and one that breaks off leaves half of two histories. Rule: only a
folder that is empty or that an export made is written to, and repository and results are made beside the old ones and replace them
together.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from results.asv.release_repo import make_repository
from results.asv.shape import AsvHistory, benchmarks_file, config_file, history_of, machine_file, result_file, run_config_file
from results.errors import StoreError
from results.queries.query import query
from results.store import Store

MARK = ".sparkproof-asv"
_FRESH = ".new"


@dataclass(frozen=True)
class Exported:
    """What an export wrote. `left_out`: boots of versions that are no releases."""

    folder: Path
    releases: int
    results: int
    left_out: int


def export(store: Store, folder: Path, benchmark_dir: Path, published: Mapping[tuple[str, str], datetime] | None = None) -> Exported:
    """Write the history of `store` into `folder`. `benchmark_dir`: the suite that `asv run` makes boots with.

    Raises StoreError (nothing to export, a folder of somebody else's, no git).
    """
    boots = query(_BOOTS).rows(store)
    history = history_of(boots, query(_MEDIANS).rows(store), published)
    if not history.results:
        raise StoreError(
            "no boot of a release to export", where=str(store.database), todo="Make some: sparkproof run --engine vllm==0.32.0"
        )
    _check(folder)
    try:
        _write(history, folder, benchmark_dir)
    except OSError as error:
        raise StoreError(
            f"cannot be written: {error.strerror}", where=str(error.filename or folder), todo="Give another folder."
        ) from error
    return Exported(folder, len(history.releases), len(history.results), query(_LEFT_OUT).rows(store)[0]["boots"])


def booted_releases(store: Store) -> list[tuple[str, str]]:
    """Engine and release of everything that an export would hold, newest first."""
    rows = query("SELECT DISTINCT engine, release, position FROM boots WHERE is_evidence AND release IS NOT NULL ORDER BY ALL DESC").rows(
        store
    )
    return [(row["engine"], row["release"]) for row in rows]


def _check(folder: Path) -> None:
    if folder.exists() and not (folder / MARK).exists() and (not folder.is_dir() or any(folder.iterdir())):
        todo = "Give a new or empty folder: --to DIR."
        raise StoreError("holds files that no export made; they would be lost", where=str(folder), todo=todo)


def _write(history: AsvHistory, folder: Path, benchmark_dir: Path) -> None:
    fresh = folder / _FRESH
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    commits = make_repository(fresh / "releases", history.releases)
    dates = {(release.engine, release.version): (commits[release.tag], release.date) for release in history.releases}
    files: dict[str, Any] = {"benchmarks.json": benchmarks_file(history.workloads)}
    files |= {f"{node_id}/machine.json": machine_file(node_id, machine) for node_id, machine in history.machines.items()}
    for result in history.results:
        commit, date = dates[result.series.engine, result.release]
        path, content = result_file(result, commit, date, history.workloads)
        files[path] = content
    for path, content in files.items():
        target = fresh / "results" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content), encoding="utf-8")
    configs = {"asv.conf.json": config_file(history.engines), "run.conf.json": run_config_file(history.engines, str(benchmark_dir))}
    for name, config in configs.items():
        (fresh / name).write_text(json.dumps(config, indent=4), encoding="utf-8")
    for name in ("releases", "results", *configs):
        _replace(folder / name, fresh / name)
    fresh.rmdir()


def _replace(old: Path, new: Path) -> None:
    if old.is_dir():
        shutil.rmtree(old)
    new.replace(old)


_BOOTS = """
SELECT run_id, engine, release, distribution, recipe_name, recipe_id, backend_name, node_id, protocol_version, counted_as, started_at,
       driver_version, kernel_version, firmware, sm_clock_cap_mhz, gpu_name, compute_capability, memory_total_bytes
FROM boots WHERE is_evidence AND NOT in_process AND release IS NOT NULL ORDER BY started_at, run_id
"""
_MEDIANS = """
SELECT m.run_id, m.workload, m.concurrency, m.launch_bound, m.decode_tok_s, m.aggregate_tok_s
FROM boot_medians m JOIN boots b ON b.run_id = m.run_id
WHERE b.is_evidence AND NOT b.in_process AND b.release IS NOT NULL AND coalesce(b.health, 'unknown') <> 'void'
"""
_LEFT_OUT = "SELECT count(*) AS boots FROM boots WHERE is_evidence AND release IS NULL"
