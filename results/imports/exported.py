"""An export in Parquet back into boot folders, so that it is imported like any other node's boots.

Trap: rows copied straight into the database are gone after the next rebuild. Rule: what is imported becomes folders and files first.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from pydantic import TypeAdapter, ValidationError

from results.boot_folder import BootFolder, BootSummary
from results.errors import FolderError
from results.export import MANIFEST
from results.kept_files import KeptFiles
from results.kept_records import ClaimRecord, IgnoreRecord, SessionRecord
from results.records import BOOT_ROWS, BackendRecord, EngineBuildRecord, NodeRecord, RecipeRecord, RunRecord
from results.schema import SCHEMA_VERSION

_DIMENSIONS: Mapping[str, tuple[type[Any], str, str]] = {
    "build": (EngineBuildRecord, "engine_builds", "build_id"),
    "recipe": (RecipeRecord, "recipes", "recipe_id"),
    "backend": (BackendRecord, "backends", "backend_id"),
}
_KEPT: tuple[tuple[type[Any], str], ...] = ((SessionRecord, "sessions"), (ClaimRecord, "claims"), (IgnoreRecord, "ignores"))
_JSON_FIELDS = frozenset({"environment", "configured", "actual", "definition"})
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (RunRecord, NodeRecord, *(d[0] for d in _DIMENSIONS.values()), *BOOT_ROWS, *(k[0] for k in _KEPT))
}
_WITHOUT_DEFAULT: Mapping[type[Any], Set[str]] = {
    kind: {own.name for own in dataclasses.fields(kind) if own.default is own.default_factory is dataclasses.MISSING} for kind in _ADAPTERS
}
"""Fields whose null has to be said."""
Row = dict[str, Any]


def is_export(path: Path) -> bool:
    """Whether a folder was made by `sparkproof export`."""
    return (path / MANIFEST).is_file()


def restore(export: Path, target: Path) -> Path:
    """Write the boots and kept files of an export below `target` as a store has them. Raises FolderError for what is no Parquet export."""
    _check(export)
    with duckdb.connect() as connection:
        dimensions = {field: _by_key(connection, export, *found) for field, found in _DIMENSIONS.items()}
        nodes = {row["node_id"]: row for row in _rows(connection, export / "nodes.parquet")}
        states = {row["node_state_id"]: row for row in _rows(connection, export / "node_states.parquet")}
        for row in _rows(connection, export / "runs.parquet"):
            run = _record(RunRecord, row)
            node = _record(NodeRecord, {**nodes[run.node_id], **states.get(row["node_state_id"], {})})
            found: Row = {field: dimensions[field].get(getattr(run, key)) for field, (_, _, key) in _DIMENSIONS.items()}
            folder = BootFolder(target / "boots", run.run_id)
            folder.create()
            folder.write_summary(BootSummary(run, node, **found))
        for kind, rows in BOOT_ROWS.items():
            _append(connection, export / f"{rows.table}.parquet", kind, target / "boots")
        for kind, table in _KEPT:
            for row in _rows(connection, export / f"{table}.parquet"):
                KeptFiles(target).write(_record(kind, row))
    return target


def _check(export: Path) -> None:
    try:
        manifest = json.loads((export / MANIFEST).read_bytes())
        version, form = int(manifest["schema_version"]), str(manifest["format"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FolderError(f"{MANIFEST} is damaged: {error}", where=str(export)) from error
    if form != "parquet":
        raise FolderError(f"an export as {form[:20]} cannot be imported", where=str(export), todo="Export with --format parquet.")
    if version != SCHEMA_VERSION:
        todo = "Update both Sparkproofs and export again."
        raise FolderError(f"written with schema version {version}, this Sparkproof has {SCHEMA_VERSION}", where=str(export), todo=todo)


def _by_key(connection: duckdb.DuckDBPyConnection, export: Path, kind: type[Any], table: str, key: str) -> dict[str, Any]:
    return {row[key]: _record(kind, row) for row in _rows(connection, export / f"{table}.parquet")}


def _append(connection: duckdb.DuckDBPyConnection, path: Path, kind: type[Any], boots: Path) -> None:
    """Rows of one kind to the folders of their boots, in the order they had."""
    pending: list[Any] = []
    for row in _rows(connection, path, order="run_id"):
        record = _record(kind, row)
        if pending and pending[0].run_id != record.run_id:
            BootFolder(boots, pending[0].run_id).append(pending)
            pending = []
        pending.append(record)
    if pending:
        BootFolder(boots, pending[0].run_id).append(pending)


def _rows(connection: duckdb.DuckDBPyConnection, path: Path, order: str | None = None) -> Iterator[Row]:
    try:
        first = f"{order}, " if order else ""
        cursor = connection.cursor()
        cursor.execute(f"SELECT * FROM read_parquet(?, file_row_number = true) ORDER BY {first}file_row_number", [str(path)])
        names = [column[0] for column in cursor.description or ()]
        while batch := cursor.fetchmany(10_000):
            for values in batch:
                yield {name: _value(name, value) for name, value in zip(names, values, strict=True)}
    except duckdb.Error as error:
        raise FolderError(f"cannot be read: {str(error).splitlines()[0][:200]}", where=str(path)) from error


def _record(kind: type[Any], row: Mapping[str, Any]) -> Any:
    found = {field.name: row.get(field.name) for field in dataclasses.fields(kind)}
    missing = {name for name, value in found.items() if value is None} - _WITHOUT_DEFAULT[kind]
    try:
        return _ADAPTERS[kind].validate_python({name: value for name, value in found.items() if name not in missing})
    except ValidationError as error:
        first = error.errors()[0]
        raise FolderError(f"holds a row that is no {kind.__name__}: {first['msg']} at {'.'.join(map(str, first['loc']))}") from error


def _value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if name in _JSON_FIELDS and isinstance(value, str):
        return json.loads(value)
    return value
