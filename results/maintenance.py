"""Is the database what the files say, and is it no larger than it has to be.

Trap: a database keeps the room of what was deleted, a derived table that went wrong is believed, and a folder that was never stored is not
missed. Rule: `check` compares every derived number with its formula and every boot with its folder, and names what differs; `vacuum` writes
a new file and puts it in the old one's place in one step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb

from results.boot_folder import all_folders
from results.errors import StoreError
from results.records import BOOT_ROWS
from results.schema import create
from results.store import Store

_FORMULAS = {"stored_medians": "sample_medians", "boot_facts": "boot_facts_of_rows"}
_MOST_NAMED = 20


@dataclass(frozen=True)
class CheckReport:
    """`problems` in words, each with what to do; empty when all is well."""

    tables: dict[str, int]
    problems: tuple[str, ...] = ()
    without_folder: tuple[str, ...] = ()
    """Boots in the database whose folder is gone: nothing is wrong with them, but a rebuild leaves them behind."""
    unstored: tuple[str, ...] = ()
    """Folders that the database does not hold yet: the next start stores them."""


@dataclass(frozen=True)
class VacuumReport:
    """Size of the database file, before and after."""

    before_bytes: int
    after_bytes: int
    tables: dict[str, int] = field(default_factory=dict)


def check(store: Store) -> CheckReport:
    """Read everything and compare. Raises StoreError for a database that cannot be read at all."""
    problems: list[str] = []
    with store.reading() as connection:
        tables = {name: _count(connection, f"SELECT count(*) FROM {name}") for name in _tables(connection)}
        for table, formula in _FORMULAS.items():
            wrong = _count(connection, f"SELECT count(*) FROM (({_both_ways(table, formula)}))")
            if wrong:
                problems.append(f"{table}: {wrong} rows differ from their formula; run `sparkproof rebuild`")
        for table in [rows.table for rows in BOOT_ROWS.values()] + list(_FORMULAS):
            orphans = _count(connection, f"SELECT count(*) FROM {table} WHERE run_id NOT IN (SELECT run_id FROM runs)")
            if orphans:
                problems.append(f"{table}: {orphans} rows belong to no boot; run `sparkproof rebuild`")
        if stale := tables["stale_histories"]:
            problems.append(f"{stale} histories wait for their verdicts; the next start judges them")
        unjudged = connection.execute("SELECT engine, recipe_name, backend_name, error FROM histories WHERE error IS NOT NULL").fetchall()
        problems += [f"{engine} / {recipe} / {backend} cannot be judged: {why}" for engine, recipe, backend, why in unjudged]
        stored = {row[0] for row in connection.execute("SELECT run_id FROM runs").fetchall()}
    folders = {folder.run_id for folder in all_folders(store.boots)}
    return CheckReport(tables, tuple(problems), tuple(sorted(stored - folders)), tuple(sorted(folders - stored)))


def vacuum(store: Store) -> VacuumReport:
    """Write the database anew, rows in the order of their boots, and put it in the old one's place; nobody else may write meanwhile.

    Raises StoreError when the disk does not hold both, StoreLocked when somebody else keeps the database; the old one stays in place.
    """
    fresh = store.database.with_name("sparkproof.vacuum.duckdb")
    before = store.database.stat().st_size if store.database.exists() else 0
    fresh.unlink(missing_ok=True)
    try:
        with store.exclusive() as old:
            try:
                tables = _copy(old, str(fresh))
            except duckdb.Error as error:
                raise StoreError(
                    f"the new file cannot be written: {str(error).splitlines()[0][:200]}", where=str(fresh), todo=_SPACE
                ) from error
            fresh.replace(store.database)
    finally:
        fresh.unlink(missing_ok=True)
    return VacuumReport(before, store.database.stat().st_size, tables)


_SPACE = "The old database is as it was. Free as much space as it takes and try again."


def _copy(old: duckdb.DuckDBPyConnection, fresh: str) -> dict[str, int]:
    """All rows into a new file; its tables are made by the schema, so that they are what a new store has."""
    with duckdb.connect(fresh) as connection:
        create(connection)
    old.execute("CHECKPOINT")  # nothing of the old file may be left in a log beside the new one
    old.execute(f"ATTACH '{_quoted(fresh)}' AS fresh")
    counts: dict[str, int] = {}
    for name in _tables(old):
        columns = {row[0] for row in old.execute("SELECT column_name FROM duckdb_columns() WHERE table_name = ?", [name]).fetchall()}
        order = "ORDER BY run_id" if "run_id" in columns else ""
        counts[name] = _count(old, f"INSERT INTO fresh.{name} BY NAME SELECT * FROM {name} {order}")
    old.execute("DETACH fresh")
    return counts


def _quoted(path: str) -> str:
    return path.replace("'", "''")


def _both_ways(table: str, formula: str) -> str:
    return (
        f"(SELECT * FROM {table} EXCEPT ALL SELECT * FROM {formula}) UNION ALL (SELECT * FROM {formula} EXCEPT ALL SELECT * FROM {table})"
    )


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    sql = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND table_name <> 'schema_version'"
    return sorted(str(row[0]) for row in connection.execute(sql).fetchall())


def _count(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    return int(connection.execute(sql).fetchall()[0][0])
