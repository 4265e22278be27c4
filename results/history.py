"""From rows to the histories that verdicts are judged from.

Trap: a control boot, which is meant to fail, a boot of a void visit, or one on a throttled node becomes evidence about a release. Rule:
only boots made for evidence count, a boot of a void visit is handed on as the node's fault, and numbers measured while the node's own probe
was off are left out and counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import duckdb

from results.engine_versions import releases_of
from results.series import series_key
from results.verdict.cell import ReleaseVerdict
from results.verdict.facts import NO_RELEASE, BootFact, CellHistory, Exclusion, NodeState
from results.verdict.metrics import RECALLED_ALL, series_name
from results.vocabulary import Outcome, Purpose

Row = dict[str, Any]
Shape = tuple[str, str]
"""A workload and the token counts that it had."""

EVIDENCE = (Purpose.MEASURE, Purpose.CONFIRM, Purpose.ANCHOR, Purpose.BISECT)

_ALONE = ("decode_tok_s", "ttft_s", "itl_p99_s")
"""Metrics judged where one stream runs; prefill and median step say the same once more."""
_TOGETHER = ("aggregate_tok_s", "ttft_s", "itl_p99_s")
_OF_THE_BOOT = (
    "memory_used_bytes",
    "memory_peak_used_bytes",
    "memory_leak_bytes",
    "swap_used_bytes",
    "model_memory_bytes",
    "kv_cache_bytes",
    "kv_cache_tokens",
    "verified_context_tokens",
    "nll_drift_rms",
    "margin_drift_rms",
)

_OF_THE_RUN = frozenset({"swap_used_bytes", "model_memory_bytes", "kv_cache_bytes", "kv_cache_tokens"})
"""Those that the run itself carries; the others are derived from its rows."""

_BOOTS = f"""
SELECT
    r.history_id, r.run_id, r.session_id, r.engine, r.engine_version, r.distribution, r.recipe_name, r.backend_name, r.node_id,
    r.recipe_id, r.protocol_version, r.started_at, r.finished_at, r.outcome, coalesce(s.void, false) AS void,
    n.driver_version, n.kernel, n.firmware, n.sm_clock_cap_mhz, f.health, f.throttled, f.decode_tok_s, f.ttft_s, f.aggregate_tok_s,
    f.launch_bound, f.failed_context_tokens, {", ".join(("r." if name in _OF_THE_RUN else "f.") + name for name in _OF_THE_BOOT)}
FROM runs r
JOIN (SELECT unnest($histories) AS history_id, unnest($since) AS since) w ON w.history_id = r.history_id
LEFT JOIN boot_facts f ON f.run_id = r.run_id
LEFT JOIN sessions s ON s.session_id = r.session_id
LEFT JOIN node_states n ON n.node_state_id = r.node_state_id
LEFT JOIN engine_versions v ON v.engine = r.engine AND v.version = r.engine_version
WHERE r.outcome IS NOT NULL AND NOT r.in_process AND coalesce(v.position >= w.since, true)
  AND r.purpose IN (SELECT unnest($evidence)) AND ($releases IS NULL OR list_contains($releases, v.release))
ORDER BY r.started_at, r.run_id
"""
_MEDIANS = (
    "SELECT * FROM stored_medians WHERE run_id BETWEEN ? AND ? AND run_id IN (SELECT unnest(?)) ORDER BY run_id, workload, launch_bound"
)


@dataclass(frozen=True)
class StoredHistory:
    """A history with what only the rows say: `rows` are the evidence boots in the order they started.

    Where some releases stand (`Standing`), boots and rows are those of the others.
    """

    history_id: str
    history: CellHistory
    rows: tuple[Row, ...]
    release_of: Mapping[str, str]
    """Version string to release, for the versions that are releases."""
    left_out: Mapping[str, Mapping[Exclusion, int]]
    """By release (or NO_RELEASE), counts of what was."""
    shapes: Mapping[str, frozenset[Shape]]
    """By release (or NO_RELEASE)."""
    unlike: frozenset[str]
    """Workloads that had different token counts under one name: only these tell two states of the prompts apart."""


@dataclass(frozen=True)
class Standing:
    """The oldest releases of a history whose verdicts stand, with their boots as they were admitted (results/settled.py)."""

    since: int
    """Position of the first release that does not stand."""
    verdicts: tuple[ReleaseVerdict, ...]
    boots: Mapping[str, tuple[BootFact, ...]]
    clock_went_back: frozenset[str]
    shapes: Sequence[Shape]
    unlike: Set[frozenset[str]]
    left_out: Mapping[Exclusion, int]
    last_good: tuple[str, float | None] | None
    """The last of them that passed, and its decode rate."""


def cell_history(connection: duckdb.DuckDBPyConnection, history_id: str, purposes: Sequence[Purpose] = EVIDENCE) -> StoredHistory | None:
    """The history of one cell; None if it has no boot made for these purposes."""
    return cell_histories(connection, [history_id], purposes=purposes).get(history_id)


def cell_histories(
    connection: duckdb.DuckDBPyConnection,
    history_ids: Sequence[str],
    releases: Sequence[str] | None = None,
    purposes: Sequence[Purpose] = EVIDENCE,
    standing: Mapping[str, Standing] | None = None,
) -> dict[str, StoredHistory]:
    """The histories of these cells by id, or only their boots of these releases; cells without evidence are missing.

    Of a history in `standing` only the boots of releases that do not stand, and of versions that are no release.
    """
    standing = standing or {}
    wanted = {
        "histories": list(history_ids),
        "since": [standing[history].since if history in standing else 0 for history in history_ids],
        "evidence": list(purposes),
        "releases": None if releases is None else list(releases),
    }
    boots = _rows(connection, _BOOTS, wanted)
    if not boots:
        return {}
    ids = [boot["run_id"] for boot in boots]
    medians: dict[str, list[Row]] = {}
    for row in _rows(connection, _MEDIANS, [min(ids), max(ids), ids]):
        medians.setdefault(row["run_id"], []).append(row)
    orders = {engine: releases_of(connection, engine) for engine in {boot["engine"] for boot in boots}}
    cells: dict[str, list[Row]] = {}
    for boot in boots:
        cells.setdefault(boot["history_id"], []).append(boot)
    return {cell: _stored_history(cell, rows, medians, *orders[rows[0]["engine"]], standing.get(cell)) for cell, rows in cells.items()}


def _stored_history(
    history_id: str,
    boots: Sequence[Row],
    medians: Mapping[str, Sequence[Row]],
    releases: Sequence[str],
    release_of: Mapping[str, str],
    standing: Standing | None,
) -> StoredHistory:
    first = boots[0]
    left_out: dict[str, Counter[Exclusion]] = {}
    shapes: dict[str, set[Shape]] = {}
    for boot in boots:
        release = release_of.get(boot["engine_version"], NO_RELEASE)
        shapes.setdefault(release, set()).update((row["workload"], _shape(row)) for row in medians.get(boot["run_id"], ()))
    unlike = _unlike([*shapes.values(), standing.shapes if standing else ()])
    facts = [_fact(boot, medians.get(boot["run_id"], ()), unlike, release_of, left_out) for boot in boots]
    mine = {release for release in shapes if release != NO_RELEASE} | set(standing.boots if standing else ())
    places = [number for number, release in enumerate(releases) if release in mine]
    known = releases[places[0] : places[-1] + 1] if places else ()
    key = series_key(first["engine"], first["distribution"], first["recipe_name"], first["backend_name"], first["node_id"])
    seen = {release: frozenset(here) for release, here in shapes.items()}
    return StoredHistory(history_id, CellHistory(key, facts, known), tuple(boots), release_of, left_out, seen, unlike)


def _fact(
    boot: Row, medians: Sequence[Row], unlike: frozenset[str], release_of: Mapping[str, str], left_out: dict[str, Counter[Exclusion]]
) -> BootFact:
    counts = left_out.setdefault(release_of.get(boot["engine_version"], NO_RELEASE), Counter())
    if boot["void"]:
        counts[Exclusion.VOID_SESSION] += 1
    metrics = metrics_of(boot, medians)
    if boot["health"] == "void":
        counts[Exclusion.NODE_NOT_FIT] += len(metrics)
        metrics = {}
    flags = {
        "node_suspect": boot["health"] == "suspect",
        "throttled": bool(boot["throttled"]),
        RECALLED_ALL: boot["verified_context_tokens"] is not None and boot["failed_context_tokens"] is None,
    }
    return BootFact(
        run_id=boot["run_id"],
        release=release_of.get(boot["engine_version"], boot["engine_version"]),
        outcome=Outcome.INFRASTRUCTURE if boot["void"] else Outcome(boot["outcome"]),
        node_id=boot["node_id"],
        session_id=boot["session_id"],
        started_at=_time(boot["started_at"]) or "",
        finished_at=_time(boot["finished_at"]),
        metrics=metrics,
        node_state=node_state(
            boot["driver_version"],
            boot["kernel"],
            boot["firmware"],
            boot["sm_clock_cap_mhz"],
            boot["protocol_version"],
            boot["recipe_id"],
            " ".join(_shape(row) for row in medians if row["workload"] in unlike),
        ),
        flags=frozenset(flag for flag, raised in flags.items() if raised),
    )


node_state = lru_cache(maxsize=4096)(NodeState)
"""Boots under one state share the object: comparing them is then free."""


def metrics_of(boot: Row, medians: Sequence[Row]) -> dict[str, float]:
    """Series names to the numbers of one boot that a verdict is made of."""
    metrics = {name: float(boot[name]) for name in _OF_THE_BOOT if boot[name] is not None}
    for row in medians:
        for name in _TOGETHER if row["concurrency"] > 1 else _ALONE:
            if row[name] is not None:
                metrics[series_name(name, workload=row["workload"], launch_bound=row["launch_bound"])] = row[name]
    return metrics


def _unlike(shapes: Iterable[Iterable[Shape]]) -> frozenset[str]:
    seen: dict[str, set[str]] = {}
    for workload, shape in chain.from_iterable(shapes):
        seen.setdefault(workload, set()).add(shape)
    return frozenset(workload for workload, several in seen.items() if len(several) > 1)


def _shape(row: Row) -> str:
    return f"{row['workload']} {row['prompt_tokens'] or '?'}+{row['completion_tokens'] or '?'} tokens x{row['concurrency']}"


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat()


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
    cursor = connection.execute(sql, parameters)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def total(counts: Iterable[Mapping[Exclusion, int]]) -> Counter[Exclusion]:
    """What was left out, of all of these together."""
    together: Counter[Exclusion] = Counter()
    for one in filter(None, counts):
        together.update(one)
    return +together


def exclusions_json(counts: Iterable[Mapping[Exclusion, int]]) -> str:
    """Everything that was left out of judging a history, counted, as JSON."""
    return json.dumps({str(reason): number for reason, number in sorted(total(counts).items())})
