"""From boot folders and kept files to rows, many at once.

Trap: one statement per row makes a rebuild of a year take a day, and one bad value takes the whole batch with it. Rule: a batch is one
insert per table; if the database refuses a value, nothing of the batch is stored and the caller tries its boots one by one. What is derived
from the rows is computed in the same transaction by the formulas of `views.sql`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from types import TracebackType
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from results.boot_folder import BootContent
from results.engine_versions import add_versions, drop_unused
from results.errors import FolderError
from results.kept_records import TIMES, ClaimRecord, IgnoreRecord, KeptRecord, SessionRecord
from results.records import BOOT_ROWS, NodeRecord
from results.series import WHEEL, history_id_of, node_state_row, series_key, series_key_of
from results.verdict.facts import SeriesKey

Connection = duckdb.DuckDBPyConnection

UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError, duckdb.DataError, duckdb.ConstraintException)
"""What pyarrow and DuckDB raise for a value that no column can hold."""

_DIMENSIONS: tuple[tuple[str, str, Callable[[BootContent], Any]], ...] = (
    ("nodes", "node_id", lambda content: content.summary.node),
    ("engine_builds", "build_id", lambda content: content.summary.build),
    ("recipes", "recipe_id", lambda content: content.summary.recipe),
    ("backends", "backend_id", lambda content: content.summary.backend),
)
_KEPT: Mapping[type[Any], tuple[str, str]] = {
    SessionRecord: ("sessions", "session_id"),
    ClaimRecord: ("claims", "claim_id"),
    IgnoreRecord: ("ignores", "finding_id"),
}


def store_boots(connection: Connection, contents: Sequence[BootContent]) -> None:
    """Store boots, replacing what was stored of the same runs, and mark the histories they belong to as stale.

    Call it inside a transaction. Raises FolderError for a value that the database cannot hold.
    """
    if not contents:
        return
    try:
        _store(connection, contents)
    except UNFIT as error:
        where = ", ".join(content.summary.run.run_id for content in contents[:3])
        raise FolderError(f"holds a value that the database cannot: {str(error).splitlines()[0][:200]}", where=where) from error


def _store(connection: Connection, contents: Sequence[BootContent]) -> None:
    ids = [content.summary.run.run_id for content in contents]
    before = connection.execute(
        "SELECT run_id, history_id, engine, engine_version FROM runs WHERE run_id IN (SELECT unnest(?))", [ids]
    ).fetchall()
    known = {run_id for run_id, *_ in before}
    for table, key, record_of in _DIMENSIONS:
        _insert_newest(connection, table, key, [(record, content) for content in contents if (record := record_of(content)) is not None])
    _insert_states(connection, [content.summary.node for content in contents])
    _insert(connection, "runs", [_run_row(content) for content in contents], replace=True)
    if known:
        _forget_rows(connection, sorted(known))
    for kind, rows in BOOT_ROWS.items():
        records = [row for content in contents for row in content.rows[kind]]
        if records:
            _insert(connection, rows.table, _columns(records), replace=False)
    derive_numbers(connection, ids)
    runs = [content.summary.run for content in contents]
    stale = {(history_id_of(series_key_of(run)), run.engine_version) for run in runs if run.outcome is not None or run.run_id in known}
    stale |= {(history_id, version) for _, history_id, _, version in before if history_id is not None}
    mark_stale(connection, stale)
    mark_whole(connection, drop_unused(connection, {(engine, version) for *_, engine, version in before}))
    mark_whole(connection, add_versions(connection, ((run.engine, run.engine_version) for run in runs)))


def derive_numbers(connection: Connection, run_ids: Sequence[str]) -> None:
    """Fill stored_medians and boot_facts for these runs (of which neither may hold anything yet)."""
    span = [min(run_ids), max(run_ids), list(run_ids)]
    wanted = "WHERE run_id BETWEEN ? AND ? AND run_id IN (SELECT unnest(?))"
    connection.execute(f"INSERT INTO stored_medians SELECT * FROM sample_medians {wanted}", span)
    connection.execute(f"INSERT INTO boot_facts SELECT * FROM boot_facts_of_rows {wanted}", span)


def mark_stale(connection: Connection, changed: Iterable[tuple[str, str | None]]) -> None:
    """Remember that these histories have to be judged anew, because of boots of these versions (None: of any)."""
    rows = sorted(set(changed), key=lambda row: (row[0], row[1] or ""))
    if rows:
        histories, versions = (list(column) for column in zip(*rows, strict=True))
        connection.execute("INSERT INTO stale_histories SELECT unnest(?), unnest(?::VARCHAR[])", [histories, versions])


def mark_whole(connection: Connection, history_ids: Iterable[str]) -> None:
    """Remember that all of these histories has to be judged anew."""
    mark_stale(connection, ((history, None) for history in history_ids))


def derive_all(connection: Connection, *, numbers: bool, verdicts: bool) -> None:
    """After a migration: fill what is derived from the rows if `numbers`, have all cells judged if `verdicts`."""
    if numbers:
        _derive_names_and_numbers(connection)
    if verdicts:
        mark_whole(connection, (row[0] for row in connection.execute("SELECT DISTINCT history_id FROM runs").fetchall()))


def _derive_names_and_numbers(connection: Connection) -> None:
    """Node states come from the newest node records: a former version knew no others."""
    cells = connection.execute("SELECT DISTINCT engine, distribution, recipe_name, backend_name, node_id FROM runs").fetchall()
    for cell in cells:
        connection.execute(
            "UPDATE runs SET history_id = ? WHERE engine = ? AND distribution = ? AND recipe_name = ? AND backend_name = ? AND node_id = ?",
            [history_id_of(series_key(*cell)), *cell],
        )
    names = [field.name for field in dataclasses.fields(NodeRecord)]
    for values in connection.execute(f"SELECT {', '.join(names)} FROM nodes").fetchall():
        fields: dict[str, Any] = {name: _tuple(value) for name, value in zip(names, values, strict=True)}
        node = NodeRecord(**fields)
        _insert_states(connection, [node])
        connection.execute("UPDATE runs SET node_state_id = ? WHERE node_id = ?", [node_state_row(node)["node_state_id"], node.node_id])
    for table, key, _ in _DIMENSIONS:
        connection.execute(f"UPDATE {table} SET last_run_id = (SELECT max(run_id) FROM runs WHERE runs.{key} = {table}.{key})")
    connection.execute("INSERT INTO stored_medians SELECT * FROM sample_medians")
    connection.execute("INSERT INTO boot_facts SELECT * FROM boot_facts_of_rows")
    add_versions(connection, connection.execute("SELECT DISTINCT engine, engine_version FROM runs").fetchall())


# -- kept files -------------------------------------------------------------------------------------------------------------------------


def store_kept(connection: Connection, records: Sequence[KeptRecord]) -> None:
    """Store sessions, claims and ignores, replacing what was stored under the same ids, and mark the histories they concern as stale."""
    for kind, (table, key) in _KEPT.items():
        mine = [record for record in records if isinstance(record, kind)]
        if mine:
            mark_stale(connection, _concerned(connection, kind, [getattr(record, key) for record in mine], mine))
            try:
                _insert(connection, table, _columns(mine), replace=True)
            except UNFIT as error:
                what = f"{table} hold a value that the database cannot: {str(error).splitlines()[0][:200]}"
                raise FolderError(what, where=str(getattr(mine[0], key))) from error


def unstored_kept(connection: Connection, records: Sequence[KeptRecord]) -> list[KeptRecord]:
    """Those of `records` that the database does not hold exactly so."""
    stored: set[tuple[Any, ...]] = set()
    for kind, (table, _) in _KEPT.items():
        names = ", ".join(field.name for field in dataclasses.fields(kind))
        stored |= {(kind, *values) for values in connection.execute(f"SELECT {names} FROM {table}").fetchall()}
    return [record for record in records if (type(record), *_as_stored(record)) not in stored]


def _as_stored(record: KeptRecord) -> tuple[Any, ...]:
    return tuple(
        datetime.fromisoformat(value) if field.name in TIMES and isinstance(value, str) else value
        for field in dataclasses.fields(record)
        for value in [getattr(record, field.name)]
    )


def forget_kept(connection: Connection, kind: type[Any], ids: Sequence[str]) -> None:
    """Take records of one kind out again."""
    table, key = _KEPT[kind]
    mark_stale(connection, _concerned(connection, kind, ids, ()))
    connection.execute(f"DELETE FROM {table} WHERE {key} IN (SELECT unnest(?))", [list(ids)])


def _concerned(connection: Connection, kind: type[Any], ids: Sequence[str], new: Sequence[Any]) -> set[tuple[str, str | None]]:
    """Histories whose verdicts may change with these records, and the versions of the boots concerned."""
    if kind is SessionRecord:
        void = {record.session_id: record.void for record in new}
        before = dict(
            connection.execute("SELECT session_id, void FROM sessions WHERE session_id IN (SELECT unnest(?))", [list(ids)]).fetchall()
        )
        changed = [session_id for session_id in ids if void.get(session_id, False) != before.get(session_id, False)]
        sql = "SELECT DISTINCT history_id, engine_version FROM runs WHERE session_id IN (SELECT unnest(?))"
        return set(connection.execute(sql, [changed]).fetchall())
    if kind is IgnoreRecord:
        columns = "engine, recipe_name, backend_name, node_id"
        rows = connection.execute(f"SELECT {columns} FROM ignores WHERE finding_id IN (SELECT unnest(?))", [list(ids)]).fetchall()
        rows += [(note.engine, note.recipe_name, note.backend_name, note.node_id) for note in new]
        return {(history_id_of(_key_of_note(*row)), None) for row in rows}
    return set()


def _key_of_note(engine: str, recipe: str, backend: str, node_id: str) -> SeriesKey:
    name, _, distribution = engine.partition("@")
    return series_key(name, distribution or WHEEL, recipe, backend, node_id)


# -- rows -------------------------------------------------------------------------------------------------------------------------------

_Columns = dict[str, Any]
_PLAIN = frozenset({"str", "int", "bool", "Phase", "Outcome", "Purpose"})
"""Annotations of fields whose values go in as they are."""


def _run_row(content: BootContent) -> dict[str, Any]:
    run = content.summary.run
    row = {field.name: _cell(getattr(run, field.name)) for field in dataclasses.fields(run)}
    state = node_state_row(content.summary.node)["node_state_id"]
    return {**row, "history_id": history_id_of(series_key_of(run)), "node_state_id": state}


def _insert_newest(connection: Connection, table: str, key: str, found: Sequence[tuple[Any, BootContent]]) -> None:
    """Of each key the record of its newest boot, whichever is ingested first."""
    newest: dict[str, dict[str, Any]] = {}
    for record, content in found:
        row = {field.name: _cell(getattr(record, field.name)) for field in dataclasses.fields(record)}
        row["last_run_id"] = content.summary.run.run_id
        if row[key] not in newest or newest[row[key]]["last_run_id"] <= row["last_run_id"]:
            newest[row[key]] = row
    if newest:
        with _Incoming(connection, _turned(list(newest.values()))):
            connection.execute(
                f"INSERT OR REPLACE INTO {table} BY NAME SELECT i.* FROM incoming i LEFT JOIN {table} t ON t.{key} = i.{key}"
                " WHERE t.last_run_id IS NULL OR i.last_run_id >= t.last_run_id"
            )


def _insert_states(connection: Connection, nodes: Sequence[NodeRecord]) -> None:
    rows = {row["node_state_id"]: row for node in nodes for row in [node_state_row(node)]}
    with _Incoming(connection, _turned(list(rows.values()))):
        connection.execute("INSERT OR IGNORE INTO node_states BY NAME SELECT * FROM incoming")


def _forget_rows(connection: Connection, run_ids: Sequence[str]) -> None:
    tables = [rows.table for rows in BOOT_ROWS.values()] + ["stored_medians", "boot_facts"]
    span = [min(run_ids), max(run_ids), list(run_ids)]
    for table in tables:
        connection.execute(f"DELETE FROM {table} WHERE run_id BETWEEN ? AND ? AND run_id IN (SELECT unnest(?))", span)


def insert_rows(connection: Connection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows of equal keys, column by name."""
    _insert(connection, table, rows, replace=False)


def _insert(connection: Connection, table: str, rows: Sequence[dict[str, Any]] | _Columns, *, replace: bool) -> None:
    columns = rows if isinstance(rows, dict) else _turned(rows)
    with _Incoming(connection, columns):
        connection.execute(f"INSERT {'OR REPLACE ' if replace else ''}INTO {table} BY NAME SELECT * FROM incoming")


def _columns(records: Sequence[Any]) -> _Columns:
    """Field name to the values of all records, column by column because rows come in millions."""
    columns: _Columns = {}
    for field in dataclasses.fields(records[0]):
        values = list(map(attrgetter(field.name), records))
        kind = str(field.type).removesuffix(" | None")
        if kind == "float":
            columns[field.name] = _finite(values)
        else:
            columns[field.name] = values if kind in _PLAIN else [_cell(value) for value in values]
    return columns


def _finite(values: list[float | None]) -> pa.Array:
    """Numbers with null for NaN and infinity: no folder of ours holds them, but another tool's may."""
    column = pa.array(values, pa.float64())
    finite = pc.is_finite(column)
    return column if pc.all(finite).as_py() else pc.if_else(finite, column, None)


def _turned(rows: Sequence[Mapping[str, Any]]) -> _Columns:
    return {name: [row[name] for row in rows] for name in rows[0]}


class _Incoming:
    """The table `incoming` of a connection, for as long as the block lasts."""

    def __init__(self, connection: Connection, columns: _Columns) -> None:
        self._connection = connection
        self._table = pa.table({name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()})

    def __enter__(self) -> None:
        self._connection.register("incoming", self._table)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:  # an aborted transaction takes no statement but its rollback
            self._connection.unregister("incoming")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True, allow_nan=False)
    return list(value) if isinstance(value, tuple) else value
