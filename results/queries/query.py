"""A question to the store that can be shown, repeated elsewhere and exported.

Trap: a page shows a number and nobody can get at the rows it came from; or a name from the store is pasted into SQL and becomes SQL. Rule:
a question is text that we wrote, with every value as a parameter, and whoever shows its answer can show the question too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import duckdb

from results.store import Store

if TYPE_CHECKING:  # a quarter of a second that only `frame` needs, and duckdb loads it there
    import pandas as pd

Parameter = str | int | float | bool | datetime | tuple[str, ...] | None


@dataclass(frozen=True)
class Query:
    """SQL with `$name` parameters. Frozen and hashable: what it was asked before can be kept under it."""

    sql: str
    parameters: tuple[tuple[str, Parameter], ...] = ()

    def frame(self, store: Store) -> pd.DataFrame:
        """The rows, times in UTC. Raises StoreError (no store yet, locked, damaged)."""
        with store.reading() as connection:
            return self.frame_on(connection)

    def frame_on(self, connection: duckdb.DuckDBPyConnection) -> pd.DataFrame:
        """The same on a connection that is open."""
        frame: pd.DataFrame = self._ask(connection).df()
        return frame

    def rows(self, store: Store) -> list[dict[str, Any]]:
        """The rows as dictionaries, None for null."""
        with store.reading() as connection:
            return self.rows_on(connection)

    def rows_on(self, connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
        """The same on a connection that is open."""
        cursor = self._ask(connection)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _ask(self, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(self.sql, self._values())

    def _values(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in self.parameters}

    def text(self) -> str:
        """The SQL with its parameters as comments on top, to be run in any DuckDB."""
        given = [f"-- ${name} = {value!r}" for name, value in self.parameters]
        return "\n".join([*given, self.sql.strip() + ";"])

    def limited(self, rows: int) -> Query:
        """The same question for at most `rows` rows."""
        return Query(f"SELECT * FROM ({self.sql.strip()}) LIMIT {int(rows)}", self.parameters)


def query(sql: str, **parameters: Parameter) -> Query:
    """A question; a parameter that the SQL does not name is left out."""
    return Query(sql.strip(), tuple((name, value) for name, value in parameters.items() if f"${name}" in sql))
