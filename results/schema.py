"""The tables and views of the database, and the way to them from every version there ever was.

Trap: a view that changed in one migration and not in the schema of a new database. Rule: a new database is made from `schema.sql`, an old
one by the numbered files in `migrations/`, and both get their views from the one `views.sql`. A test compares the two.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

_HERE = Path(__file__).parent
SCHEMA_VERSION = 7


def schema_version(connection: duckdb.DuckDBPyConnection) -> int:
    """The version of an open database; 0 if it is empty."""
    try:
        connection.execute("PRAGMA table_info('schema_version')")
    except duckdb.CatalogException:
        return 0
    row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(row[0]) if row and row[0] is not None else 0


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """All tables and views in an empty database, inside the caller's transaction."""
    connection.execute((_HERE / "schema.sql").read_text(encoding="utf-8"))
    connection.execute((_HERE / "views.sql").read_text(encoding="utf-8"))
    connection.execute("INSERT INTO schema_version (version) VALUES (?)", [SCHEMA_VERSION])


def migrate(connection: duckdb.DuckDBPyConnection, found: int) -> None:
    """Bring a database of version `found` (1 or later) to this one, inside the caller's transaction. What is derived is left empty."""
    for number in range(found + 1, SCHEMA_VERSION + 1):
        connection.execute((_HERE / "migrations" / f"{number:04d}.sql").read_text(encoding="utf-8"))
        connection.execute("INSERT INTO schema_version (version) VALUES (?)", [number])
    connection.execute((_HERE / "views.sql").read_text(encoding="utf-8"))
