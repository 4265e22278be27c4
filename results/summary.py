"""What one invocation measured, per cell, with the plain difference to the previous version in the store.

Trap: a table that shows only what passed, or a median whose spread is hidden. Rule: every cell asked for is a row, whatever became of it,
and a number comes with its range and its count. Verdict words (faster, slower) need more than one boot and are not said here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from packaging.version import InvalidVersion, Version

from results.store import Store
from results.vocabulary import Outcome


@dataclass(frozen=True)
class Spread:
    """A median with its range over `count` values (samples of one boot, or boots)."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Previous:
    """The newest older version of the same series; `decode_change` is relative (None: not comparable)."""

    engine_version: str
    outcome: str
    decode_change: float | None


@dataclass(frozen=True)
class CellSummary:
    """One row of the result table. `outcomes` counts the boots; `outcome` is theirs if they agree, else "flaky"."""

    engine: str
    engine_version: str
    recipe_name: str
    backend_name: str
    outcome: str
    outcomes: dict[str, int]
    reason: str | None
    launch_bound: bool
    decode_tok_s: Spread | None
    aggregate_tok_s: Spread | None
    ttft_s: Spread | None
    memory_used_bytes: int | None
    max_model_len: int | None
    kv_cache_tokens: int | None
    kernels: dict[str, str]
    configured: dict[str, str]
    gate_prompts: int
    gate_matched: int
    phase_s: dict[str, float]
    previous: Previous | None
    run_ids: tuple[str, ...]
    warnings: tuple[str, ...] = field(default=())


def summarise(store: Store, run_ids: Sequence[str]) -> list[CellSummary]:
    """One summary per cell of these runs, in the order the runs were made."""
    if not run_ids:
        return []
    runs = store.query("SELECT * FROM runs WHERE run_id IN (SELECT unnest(?)) ORDER BY started_at, run_id", [list(run_ids)])
    samples = store.query("SELECT * FROM samples WHERE run_id IN (SELECT unnest(?)) AND valid AND NOT cold", [list(run_ids)])
    phases = store.query("SELECT * FROM phases WHERE run_id IN (SELECT unnest(?))", [list(run_ids)])
    gate = store.query(
        "SELECT run_id, count(DISTINCT prompt_name) AS prompts, count(DISTINCT prompt_name) FILTER (broken = 0) AS matched FROM ("
        "SELECT run_id, prompt_name, count(*) FILTER (verdict NOT IN ('match', 'tie', 'pass_structure')) AS broken"
        " FROM coherence_results WHERE run_id IN (SELECT unnest(?)) GROUP BY run_id, prompt_name) GROUP BY run_id",
        [list(run_ids)],
    )
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in runs:
        cells.setdefault((run["series_id"], run["engine"], run["engine_version"]), []).append(run)
    return [_cell(store, boots, samples, phases, gate) for boots in cells.values()]


def _cell(
    store: Store,
    boots: list[dict[str, Any]],
    samples: list[dict[str, Any]],
    phases: list[dict[str, Any]],
    gate: list[dict[str, Any]],
) -> CellSummary:
    ids = {run["run_id"] for run in boots}
    mine = [s for s in samples if s["run_id"] in ids]
    last = boots[-1]
    outcomes = Counter(str(run["outcome"] or "running") for run in boots)
    kernels, configured = json.loads(last["actual"] or "{}"), json.loads(last["configured"] or "{}")
    decode = _spread(mine, "decode_tok_s", concurrency=1)
    broken = next((run for run in boots if run["outcome"] != Outcome.PASS), last)
    return CellSummary(
        engine=last["engine"],
        engine_version=last["engine_version"],
        recipe_name=last["recipe_name"],
        backend_name=last["backend_name"],
        outcome=next(iter(outcomes)) if len(outcomes) == 1 else "flaky",
        outcomes=dict(outcomes),
        reason=broken["reason"],
        launch_bound=any(s["launch_bound"] for s in mine),
        decode_tok_s=decode,
        aggregate_tok_s=_spread([s for s in mine if s["concurrency"] > 1 and s["stream"] == 0], "aggregate_tok_s"),
        ttft_s=_spread(mine, "ttft_s", concurrency=1),
        memory_used_bytes=_memory(last),
        max_model_len=last["max_model_len"],
        kv_cache_tokens=last["kv_cache_tokens"],
        kernels=kernels,
        configured=configured,
        gate_prompts=max((g["prompts"] for g in gate if g["run_id"] in ids), default=0),
        gate_matched=min((g["matched"] for g in gate if g["run_id"] in ids), default=0),
        phase_s={p["phase"]: p["duration_s"] for p in phases if p["run_id"] == last["run_id"]},
        previous=_previous(store, last, decode),
        run_ids=tuple(run["run_id"] for run in boots),
        warnings=tuple(last["warnings"] or ()),
    )


def _memory(run: dict[str, Any]) -> int | None:
    """Memory the server took: after load minus before launch (M20); None where either was not measured."""
    before, after = run["memory_baseline_bytes"], run["memory_after_load_bytes"]
    return None if before is None or after is None else max(0, after - before)


def _spread(samples: list[dict[str, Any]], column: str, concurrency: int | None = None) -> Spread | None:
    values = [s[column] for s in samples if s[column] is not None and concurrency in (None, s["concurrency"])]
    return Spread(median(values), min(values), max(values), len(values)) if values else None


def _previous(store: Store, run: dict[str, Any], decode: Spread | None) -> Previous | None:
    """The newest older release of the same series that has a finished boot; fork builds are never sorted as releases."""
    rows = store.query(
        "SELECT r.engine_version, r.outcome, m.decode_tok_s, r.started_at FROM runs r"
        " LEFT JOIN boot_medians m ON m.run_id = r.run_id AND m.concurrency = 1"
        " WHERE r.series_id = ? AND r.engine = ? AND r.engine_version <> ? AND r.outcome IS NOT NULL"
        " AND r.outcome NOT IN ('infrastructure', 'interrupted') ORDER BY r.started_at",
        [run["series_id"], run["engine"], run["engine_version"]],
    )
    this = _release(run["engine_version"])
    older = [row for row in rows if this and (other := _release(row["engine_version"])) and other < this]
    if not older:
        return None
    newest = max((_release(row["engine_version"]) for row in older), key=lambda v: v or Version("0"))
    same = [row for row in older if _release(row["engine_version"]) == newest]
    outcomes = {row["outcome"] for row in same}
    rates = [row["decode_tok_s"] for row in same if row["decode_tok_s"] is not None]
    change = decode.median / median(rates) - 1 if decode and rates else None
    return Previous(same[-1]["engine_version"], outcomes.pop() if len(outcomes) == 1 else "flaky", change)


def _release(version: str) -> Version | None:
    """The release, or None for a build that is no release (`0.1.dev21830+g1234`, or not PEP 440 at all)."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return None
    return None if parsed.is_devrelease else parsed
