"""What one invocation measured, per cell, with the stored verdict against the release before.

Trap: a table that shows only what passed, or a median whose spread is hidden. Rule: every cell asked for is a row, whatever became of it,
and a number comes with its range and its count. Verdict words (faster, slower) are the stored verdicts', never made up here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from results.roofline import Roofline, rooflines_of
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
    """The verdict against the newest older release with evidence. `decode_change` is relative to `last_good` (None: not comparable)."""

    engine_version: str
    outcome: str
    verdict: str | None
    reason: str
    last_good: str | None
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
    counters: dict[str, dict[str, float]] = field(default_factory=dict)
    """What the engine itself counted over the timed repeats of the last boot: workload to our name of the number to its value."""
    weights: str = "real"
    """`dummy` for a shape."""
    roofline: Roofline | None = None
    """How near the last boot that has one came to what the memory allows."""


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
        previous=_previous(store, last),
        run_ids=tuple(run["run_id"] for run in boots),
        warnings=tuple(last["warnings"] or ()),
        counters=_counters(store, last["run_id"]),
        weights=last["weights"],
        roofline=_roofline(store, [run["run_id"] for run in boots]),
    )


def _roofline(store: Store, run_ids: Sequence[str]) -> Roofline | None:
    """Of the last boot that has one, for the workload that stands for a boot."""
    found = {one.run_id: one for one in reversed(rooflines_of(store, run_ids))}
    return next((found[run_id] for run_id in reversed(run_ids) if run_id in found), None)


def _counters(store: Store, run_id: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in store.query("SELECT workload, metric, value FROM engine_counters WHERE run_id = ? ORDER BY workload, metric", [run_id]):
        found.setdefault(row["workload"], {})[row["metric"]] = row["value"]
    return found


def _memory(run: dict[str, Any]) -> int | None:
    """Memory the server took: after load minus before launch (M20); None if unknown, or if others gave back more meanwhile."""
    before, after = run["memory_baseline_bytes"], run["memory_after_load_bytes"]
    return after - before if before is not None and after is not None and after > before else None


def _spread(samples: list[dict[str, Any]], column: str, concurrency: int | None = None) -> Spread | None:
    values = [s[column] for s in samples if s[column] is not None and concurrency in (None, s["concurrency"])]
    return Spread(median(values), min(values), max(values), len(values)) if values else None


def _previous(store: Store, run: dict[str, Any]) -> Previous | None:
    """What the stored verdict on this release says; None for the first release with evidence and for what is no release."""
    rows = store.query(
        "SELECT v.headline, v.after, v.last_good, v.decode_change, v.reason, before.state FROM runs r"
        " JOIN engine_versions e ON e.engine = r.engine AND e.version = r.engine_version"
        " JOIN verdicts v ON v.history_id = r.history_id AND v.release = e.release"
        " LEFT JOIN verdicts before ON before.history_id = v.history_id AND before.release = v.after WHERE r.run_id = ?",
        [run["run_id"]],
    )
    if not rows or rows[0]["after"] is None:
        return None
    row = rows[0]
    return Previous(row["after"], row["state"], row["headline"], row["reason"], row["last_good"], row["decode_change"])
