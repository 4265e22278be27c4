"""Verdicts, findings and chart bands as rows, kept up to date with every boot that is stored.

Trap: a page that computes verdicts is slow, and a stored verdict that nobody renews is wrong. Rule: whatever changes a history marks it
stale in the same transaction, `refresh_stale` judges exactly the stale ones anew, and the rows depend on nothing but the boots, so that a
rebuild gives the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import duckdb

from results.history import Row, StoredHistory, cell_histories, exclusions_json
from results.ingest import insert_rows
from results.settled import Former, rule
from results.verdict.cell import CellVerdict, ReleaseVerdict, judge_admitted
from results.verdict.facts import AdmittedHistory, SeriesKey, VerdictInputError, admit, evidence_of
from results.verdict.findings import OUTCOME, Finding, Ignore, findings_of
from results.verdict.metrics import LAUNCH_BOUND, metric_of
from results.verdict.segments import segment
from results.verdict.words import Verdict
from results.vocabulary import Outcome

CHUNK = 200
"""Histories judged between two inserts."""
_TABLES = ("verdicts", "number_verdicts", "levels", "findings", "histories")
_Rows = dict[str, list[dict[str, Any]]]
_Measured = dict[tuple[str, str], list[float]]


def refresh_stale(connection: duckdb.DuckDBPyConnection, limit: int | None = None) -> int:
    """Judge stale histories anew (at most `limit`), inside the caller's transaction. Returns how many were."""
    found = connection.execute("SELECT history_id FROM stale_histories ORDER BY history_id LIMIT ?", [limit or 2**62]).fetchall()
    ids = [row[0] for row in found]
    for start in range(0, len(ids), CHUNK):
        refresh(connection, ids[start : start + CHUNK])
    return len(ids)


def refresh(connection: duckdb.DuckDBPyConnection, history_ids: Sequence[str]) -> None:
    """Judge these histories anew and replace their rows."""
    ids = list(history_ids)
    rows: _Rows = {table: [] for table in _TABLES}
    notes = _notes(connection)
    former = Former.read(connection, ids)
    for history in cell_histories(connection, ids).values():
        for table, new in _judged(history, notes, former).items():
            rows[table].extend(new)
    former.forget_unsettled(connection)
    for table in _TABLES:
        if table != "number_verdicts":
            connection.execute(f"DELETE FROM {table} WHERE history_id IN (SELECT unnest(?))", [ids])
        if rows[table]:
            insert_rows(connection, table, rows[table])
    connection.execute("DELETE FROM stale_histories WHERE history_id IN (SELECT unnest(?))", [ids])


def _judged(history: StoredHistory, notes: Mapping[SeriesKey, Sequence[Ignore]], former: Former) -> _Rows:
    try:
        admitted = admit(history.history)
        evidence = {release: f"{rule()}-{evidence_of(boots)}" for release, boots in admitted.boots.items()}
        settled = former.settle(history.history_id, admitted.releases, evidence)
        cell = judge_admitted(admitted, settled)
    except VerdictInputError as error:
        return {"histories": [_history_row(history, None, None, str(error))]}
    by_release: dict[str, list[Row]] = {}
    for row in history.rows:
        by_release.setdefault(history.release_of.get(row["engine_version"], ""), []).append(row)
    measured = _measured(history, admitted)
    findings = findings_of(cell, notes.get(cell.series, ()))
    return {
        "histories": [_history_row(history, cell, exclusions_json(history, cell.exclusions), None)],
        "verdicts": [{**row, "evidence": evidence[row["release"]]} for row in _verdict_rows(history.history_id, cell, by_release)],
        "number_verdicts": [
            row
            for release in cell.releases
            if release.release not in settled
            for row in _number_rows(history.history_id, release, measured)
        ],
        "levels": _level_rows(history.history_id, cell, measured),
        "findings": [_finding_row(history.history_id, finding, cell, by_release) for finding in findings],
    }


def _history_row(history: StoredHistory, cell: CellVerdict | None, exclusions: str | None, error: str | None) -> dict[str, Any]:
    rows = history.rows
    newest = cell.newest if cell else None
    return {
        "history_id": history.history_id,
        **{name: rows[0][name] for name in ("engine", "distribution", "recipe_name", "backend_name", "node_id")},
        "recipe_id": next((row["recipe_id"] for row in reversed(rows) if row["recipe_id"] is not None), None),
        "boots": len(rows),
        "newest_release": newest.release if newest else None,
        "last_passing": cell.last_passing if cell else None,
        "first_started_at": rows[0]["started_at"],
        "last_started_at": rows[-1]["started_at"],
        "not_releases": list(cell.not_releases) if cell else None,
        "exclusions": exclusions,
        "error": error,
    }


def _verdict_rows(history_id: str, cell: CellVerdict, by_release: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    last_good: dict[str, Any] | None = None
    for release in cell.releases:
        row = _verdict_row(history_id, release, by_release.get(release.release, ()), last_good)
        rows.append(row)
        if release.outcome.state is Outcome.PASS:
            last_good = row
    return rows


def _verdict_row(history_id: str, release: ReleaseVerdict, boots: Sequence[Row], last_good: Mapping[str, Any] | None) -> dict[str, Any]:
    outcome = release.outcome
    passed = [boot for boot in boots if outcome.state is Outcome.PASS and boot["outcome"] == Outcome.PASS and not boot["void"]]
    decode = _values(passed, "decode_tok_s")
    before = last_good["decode_tok_s"] if last_good else None
    last = boots[-1] if boots else None
    return {
        "history_id": history_id,
        "release": release.release,
        "state": str(outcome.state),
        "verdict": _text(release.verdict),
        "headline": _text(release.headline),
        "confirmed": outcome.confirmed,
        "alarm": release.alarm,
        "boots": len(boots),
        "counts": json.dumps({str(name): number for name, number in outcome.counts}),
        "boots_needed": outcome.boots_needed,
        "after": outcome.after,
        "since": outcome.since,
        "skipped": list(outcome.skipped),
        "last_good": last_good["release"] if last_good else None,
        "reason": outcome.reason,
        "differs": list(release.differs),
        "suppressed": release.suppressed,
        "decode_tok_s": median(decode) if decode else None,
        "decode_tok_s_low": min(decode, default=None),
        "decode_tok_s_high": max(decode, default=None),
        "decode_change": median(decode) / before - 1 if decode and before else None,
        "ttft_s": _median(passed, "ttft_s"),
        "aggregate_tok_s": _median(passed, "aggregate_tok_s"),
        "launch_bound": next((boot["launch_bound"] for boot in reversed(boots) if boot["launch_bound"] is not None), None),
        "last_run_id": last["run_id"] if last else None,
        "last_started_at": last["started_at"] if last else None,
    }


def _number_rows(history_id: str, release: ReleaseVerdict, measured: _Measured) -> Iterable[dict[str, Any]]:
    for name, number in release.numbers.items():
        values = measured[release.release, name]
        low, high = number.interval or (None, None)
        yield {
            "history_id": history_id,
            "release": release.release,
            "series": name,
            "workload": name.split("/")[0] if "/" in name else None,
            "metric": metric_of(name).name,
            "launch_bound": name.endswith(f"/{LAUNCH_BOUND}"),
            "verdict": str(number.verdict),
            "reason": number.reason,
            "baseline": number.baseline,
            "median": median(values),
            "low": min(values),
            "high": max(values),
            "n_baseline": number.n_baseline,
            "n_candidate": number.n_candidate,
            "n_level": number.n_level,
            "n_rerun": number.n_rerun,
            "effect": number.effect,
            "interval_low": low,
            "interval_high": high,
            "interval_level": number.interval_level,
            "p": number.p,
            "moved": number.moved,
            "boots_to_decide": number.boots_to_decide,
            "differs": list(number.differs),
            "warnings": list(number.warnings),
        }


def _level_rows(history_id: str, cell: CellVerdict, measured: _Measured) -> list[dict[str, Any]]:
    """Bands over the medians of the passing releases, node states mixed: a band shows what was measured, a verdict says why."""
    rows: list[dict[str, Any]] = []
    for name in sorted({name for release in cell.releases for name in release.numbers}):
        releases = [release.release for release in cell.releases if name in release.numbers]
        medians = [median(measured[release, name]) for release in releases]
        for band in segment(medians) if min(medians) > 0 else ():
            rows.append(
                {
                    "history_id": history_id,
                    "series": name,
                    "first_release": releases[band.start],
                    "last_release": releases[band.stop - 1],
                    "level": band.level,
                    "spread": band.spread,
                }
            )
    return rows


def _finding_row(history_id: str, finding: Finding, cell: CellVerdict, by_release: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    release = next(one for one in cell.releases if one.release == finding.release)
    number = release.numbers.get(finding.subject)
    boots = by_release.get(finding.release, ())
    shown = [boot for boot in boots if finding.subject != OUTCOME or boot["outcome"] != Outcome.PASS] or boots
    return {
        "finding_id": finding.finding_id,
        "history_id": history_id,
        "subject": finding.subject,
        "kind": str(finding.kind),
        "after": finding.after,
        "release": finding.release,
        "stage": str(finding.stage),
        "reason": finding.reason,
        "fixed_in": finding.fixed_in,
        "note": finding.note,
        "effect": number.effect if number else None,
        "last_run_id": shown[-1]["run_id"] if shown else None,
        "last_started_at": shown[-1]["started_at"] if shown else None,
    }


def _notes(connection: duckdb.DuckDBPyConnection) -> dict[SeriesKey, list[Ignore]]:
    columns = "engine, recipe_name, backend_name, node_id, subject, kind, after, release, why"
    notes: dict[SeriesKey, list[Ignore]] = {}
    for engine, recipe, backend, node, subject, kind, after, release, why in connection.execute(
        f"SELECT {columns} FROM ignores ORDER BY ignored_at, finding_id"
    ).fetchall():
        key = SeriesKey(engine, recipe, backend, node)
        notes.setdefault(key, []).append(Ignore(key, subject, Verdict(kind), after, release, why))
    return notes


def _measured(history: StoredHistory, admitted: AdmittedHistory) -> _Measured:
    """By release and series, the numbers that entered the verdict, as they were measured (a verdict counts none below its resolution)."""
    raw = {boot.run_id: boot.metrics for boot in history.history.boots}
    measured: _Measured = {}
    for release, boots in admitted.boots.items():
        for boot in boots:
            for name in boot.metrics:
                measured.setdefault((release, name), []).append(raw[boot.run_id][name])
    return measured


def _values(boots: Sequence[Row], column: str) -> list[float]:
    return [boot[column] for boot in boots if boot[column] is not None]


def _median(boots: Sequence[Row], column: str) -> float | None:
    values = _values(boots, column)
    return median(values) if values else None


def _text(verdict: Verdict | None) -> str | None:
    return None if verdict is None else str(verdict)
