"""Every table as a file that other programs read.

Trap: an export that breaks off looks complete, and one that is written over an older one mixes two states. Rule: tables are read in one
read-only transaction, the manifest that makes a folder an export is written last, and only an empty folder or an older export is used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb

from results.errors import StoreError
from results.schema import SCHEMA_VERSION
from results.store import Store

MANIFEST = "sparkproof-export.json"
Format = Literal["parquet", "csv"]


@dataclass(frozen=True)
class ExportReport:
    """Rows written, by table, and the bytes on disk."""

    folder: Path
    tables: dict[str, int]
    size_bytes: int


def export(store: Store, folder: Path, form: Format) -> ExportReport:
    """Write every table, and the view `boots`, below `folder`. Raises StoreError if the folder holds something else or the disk refuses."""
    tables: dict[str, int] = {}
    with store.reading() as connection:
        _prepare(folder)
        connection.execute("SET TimeZone = 'UTC'")
        connection.begin()
        for name in [*_tables(connection), "boots"]:
            path = folder / f"{name}.{form}"
            _write(connection, name, path, form)
            tables[name] = int(connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0])
    _write_manifest(folder, form, tables)
    return ExportReport(folder, tables, sum(path.stat().st_size for path in folder.iterdir()))


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
        if names and MANIFEST not in names:
            raise StoreError(
                "the folder is not empty and is no earlier export", where=str(folder), todo="Give --to an empty or new folder."
            )
        (folder / MANIFEST).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.suffix in (".parquet", ".csv"):
                path.unlink()
    except OSError as error:
        raise StoreError(f"the folder cannot be written: {error.strerror}", where=str(folder)) from error


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    rows = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND table_name NOT IN ('schema_version')"
    ).fetchall()
    return sorted(str(row[0]) for row in rows)


def _write(connection: duckdb.DuckDBPyConnection, name: str, path: Path, form: Format) -> None:
    relation = connection.table(name) if name != "boots" else connection.view(name)
    try:
        if form == "parquet":
            relation.write_parquet(str(path), compression="zstd")
        else:
            relation.write_csv(str(path), header=True)
    except duckdb.IOException as error:
        path.unlink(missing_ok=True)
        todo = "Free space on that disk and export again; what is there is no complete export."
        raise StoreError(f"cannot write {path.name}: {str(error).splitlines()[0][:200]}", where=str(path.parent), todo=todo) from error


def _write_manifest(folder: Path, form: Format, tables: dict[str, int]) -> None:
    text = json.dumps({"format": form, "schema_version": SCHEMA_VERSION, "tables": tables}, indent=1)
    try:
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"the manifest cannot be written: {error.strerror}", where=str(folder)) from error
