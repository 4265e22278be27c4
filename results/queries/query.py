"""A question to the store that can be shown, repeated elsewhere and exported.

Trap: a page shows a number and nobody can get at the rows it came from; or a name from the store is pasted into SQL and becomes SQL. Rule:
a question is text that we wrote, with every value as a parameter, and whoever shows its answer can show the question too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from results.store import Store

Parameter = str | int | float | bool | datetime | tuple[str, ...] | None


@dataclass(frozen=True)
class Query:
    """SQL with `$name` parameters. Frozen and hashable: what it was asked before can be kept under it."""

    sql: str
    parameters: tuple[tuple[str, Parameter], ...] = ()

    def frame(self, store: Store) -> pd.DataFrame:
        """The rows, times in UTC. Raises StoreError (no store yet, locked, damaged)."""
        with store.reading() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            frame: pd.DataFrame = connection.execute(self.sql, self._values()).df()
        return frame

    def rows(self, store: Store) -> list[dict[str, Any]]:
        """The rows as dictionaries, None for null."""
        with store.reading() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            cursor = connection.execute(self.sql, self._values())
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

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
