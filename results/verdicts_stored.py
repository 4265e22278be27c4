"""Verdicts and findings as rows, kept up to date with every boot that is stored.

Trap: a page that computes verdicts is slow, and a stored verdict that nobody renews is wrong. Rule: whatever changes a history marks it
stale in the same transaction, `refresh_stale` judges exactly the stale ones anew, and the rows depend on nothing but the boots, so that a
rebuild gives the same ones.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import duckdb

from results.history import Row, Standing, StoredHistory, cell_histories, exclusions_json
from results.ingest import insert_rows
from results.settled import Former, Touched, evidence_text
from results.verdict.cell import CellVerdict, ReleaseVerdict, judge_admitted
from results.verdict.facts import AdmittedHistory, SeriesKey, StandingChangedError, VerdictInputError, admit, parse_time
from results.verdict.findings import OUTCOME, Finding, Ignore, findings_of
from results.verdict.metrics import LAUNCH_BOUND, metric_of
from results.verdict.words import Verdict
from results.vocabulary import Outcome

CHUNK = 200
"""Histories judged between two inserts."""
_TABLES = ("verdicts", "number_verdicts", "findings", "histories")
_Rows = dict[str, list[dict[str, Any]]]
_Measured = dict[tuple[str, str], list[float]]
_Notes = Mapping[SeriesKey, Sequence[Ignore]]
_NOTHING = Standing(0, (), {}, frozenset(), (), frozenset(), {}, None)


def refresh_stale(connection: duckdb.DuckDBPyConnection, limit: int | None = None) -> int:
    """Judge stale histories anew (at most `limit`), inside the caller's transaction. Returns how many were."""
    sql = "SELECT history_id, list(version) FROM stale_histories GROUP BY history_id ORDER BY history_id LIMIT ?"
    touched = dict(connection.execute(sql, [limit or 2**62]).fetchall())
    ids = list(touched)
    for start in range(0, len(ids), CHUNK):
        refresh(connection, {history: touched[history] for history in ids[start : start + CHUNK]})
    return len(ids)


def refresh(connection: duckdb.DuckDBPyConnection, touched: Touched) -> None:
    """Judge these histories anew, as far as their changed boots reach, and replace their rows."""
    with _no_collecting():
        _refresh(connection, touched)


@contextmanager
def _no_collecting() -> Iterator[None]:
    """The boots of a chunk are many objects of which none is garbage; looking for some among them takes a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _refresh(connection: duckdb.DuckDBPyConnection, touched: Touched) -> None:
    ids = list(touched)
    rows: _Rows = {table: [] for table in _TABLES}
    notes = _notes(connection)
    former = Former.read(connection, ids)
    standing = former.standing(connection, touched)
    whole = {history for history in ids if history not in standing}
    found = cell_histories(connection, ids, standing=standing)
    for history_id in sorted(standing):
        try:
            if history_id not in found:
                raise StandingChangedError("all boots that do not stand are gone")
            _add(rows, _judged(found[history_id], notes, former, standing[history_id]))
        except (StandingChangedError, VerdictInputError):
            del standing[history_id]
    again = [history for history in ids if history not in whole and history not in standing]
    found |= cell_histories(connection, again)
    for history_id in (*sorted(whole), *again):
        if history_id in found:
            _add(rows, _judged_whole(found[history_id], notes, former))
    former.forget(connection, standing)
    for table in _TABLES:
        if table not in ("verdicts", "number_verdicts"):
            connection.execute(f"DELETE FROM {table} WHERE history_id IN (SELECT unnest(?))", [ids])
        if rows[table]:
            insert_rows(connection, table, rows[table])
    connection.execute("DELETE FROM stale_histories WHERE history_id IN (SELECT unnest(?))", [ids])


def _add(rows: _Rows, new: _Rows) -> None:
    for table, some in new.items():
        rows[table].extend(some)


def _judged_whole(history: StoredHistory, notes: _Notes, former: Former) -> _Rows:
    try:
        return _judged(history, notes, former, _NOTHING)
    except VerdictInputError as error:
        return {"histories": [_history_row(history, _NOTHING, None, None, str(error))]}


def _judged(history: StoredHistory, notes: _Notes, former: Former, standing: Standing) -> _Rows:
    """Rows of what does not stand. Raises StandingChangedError when more would have to be judged, VerdictInputError."""
    if standing.unlike - {history.unlike}:
        raise StandingChangedError("a workload was given other token counts, or is alike again")
    admitted = admit(history.history, standing.boots, standing.clock_went_back)
    cell = judge_admitted(admitted, standing.verdicts)
    new = cell.releases[len(standing.verdicts) :]
    by_release: dict[str, list[Row]] = {}
    for row in history.rows:
        by_release.setdefault(history.release_of.get(row["engine_version"], ""), []).append(row)
    measured = _measured(history, admitted, new)
    exclusions = exclusions_json([standing.left_out, *history.left_out.values(), *admitted.left_out.values()])
    return {
        "histories": [_history_row(history, standing, cell, exclusions, None)],
        "verdicts": [
            {**row, "evidence": evidence_text(history, admitted, row["release"])}
            for row in _verdict_rows(history.history_id, new, by_release, standing.last_good)
        ],
        "number_verdicts": [row for release in new for row in _number_rows(history.history_id, release, measured)],
        "findings": [
            _finding_row(history.history_id, finding, cell, by_release)
            | (_last_run(former, finding) if finding.release in standing.boots else {})
            for finding in findings_of(cell, notes.get(cell.series, ()))
        ],
    }


def _last_run(former: Former, finding: Finding) -> dict[str, Any]:
    if finding.finding_id not in former.last_runs:
        raise StandingChangedError("a finding on a release that stands was not one before")
    run, started = former.last_runs[finding.finding_id]
    return {"last_run_id": run, "last_started_at": started}


def _history_row(
    history: StoredHistory, standing: Standing, cell: CellVerdict | None, exclusions: str | None, error: str | None
) -> dict[str, Any]:
    rows = history.rows
    newest = cell.newest if cell else None
    ends = [boot for boots in standing.boots.values() if boots for boot in (boots[0], boots[-1])]
    started = [rows[0]["started_at"], rows[-1]["started_at"], *(parse_time(boot.started_at) for boot in ends)]
    return {
        "history_id": history.history_id,
        **{name: rows[0][name] for name in ("engine", "distribution", "recipe_name", "backend_name", "node_id")},
        "recipe_id": _newest_recipe(rows, standing),
        "boots": len(rows) + sum(map(len, standing.boots.values())),
        "newest_release": newest.release if newest else None,
        "last_passing": cell.last_passing if cell else None,
        "first_started_at": min(started),
        "last_started_at": max(started),
        "not_releases": list(cell.not_releases) if cell else None,
        "exclusions": exclusions,
        "error": error,
    }


def _newest_recipe(rows: Sequence[Row], standing: Standing) -> str | None:
    """Of the last boot that knows its recipe; in each standing release the boots are in the order they started."""
    known = [(row["started_at"], row["run_id"], row["recipe_id"]) for row in rows if row["recipe_id"] is not None]
    for boots in standing.boots.values():
        last = next((boot for boot in reversed(boots) if boot.node_state.recipe_revision is not None), None)
        if last is not None:
            known.append((parse_time(last.started_at), last.run_id, last.node_state.recipe_revision))
    return max(known)[2] if known else None


def _verdict_rows(
    history_id: str, releases: Sequence[ReleaseVerdict], by_release: Mapping[str, Sequence[Row]], good: tuple[str, float | None] | None
) -> list[dict[str, Any]]:
    """`good`: the last passing release before these, and its decode rate."""
    rows: list[dict[str, Any]] = []
    last_good: dict[str, Any] | None = {"release": good[0], "decode_tok_s": good[1]} if good else None
    for release in releases:
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


def _measured(history: StoredHistory, admitted: AdmittedHistory, releases: Iterable[ReleaseVerdict]) -> _Measured:
    """By release (of these) and series, the numbers that entered the verdict, as measured (a verdict counts none below its resolution)."""
    raw = {boot.run_id: boot.metrics for boot in history.history.boots}
    measured: _Measured = {}
    for release in releases:
        for boot in admitted.boots[release.release]:
            for name in boot.metrics:
                measured.setdefault((release.release, name), []).append(raw[boot.run_id][name])
    return measured


def _values(boots: Sequence[Row], column: str) -> list[float]:
    return [boot[column] for boot in boots if boot[column] is not None]


def _median(boots: Sequence[Row], column: str) -> float | None:
    values = _values(boots, column)
    return median(values) if values else None


def _text(verdict: Verdict | None) -> str | None:
    return None if verdict is None else str(verdict)
