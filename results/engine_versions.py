"""Every engine version that was booted, and its place in the order of releases.

Trap: SQL sorts 0.9 after 0.10, and a release measured late slips between two others whose verdict said "in 0.32.0". Rule: the order comes
from `results.verdict.releases`, is stored as a position, and a release that appears in the middle of a history makes its verdicts stale.
"""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from results.verdict.releases import ReleaseOrder, order_releases

_BETWEEN = """
SELECT v.history_id
FROM verdicts v
JOIN histories h ON h.history_id = v.history_id AND h.engine = ?
JOIN (SELECT DISTINCT release, position FROM engine_versions WHERE engine = ?) e ON e.release = v.release
GROUP BY v.history_id
HAVING min(e.position) < ? AND max(e.position) > ?
"""


def add_versions(connection: duckdb.DuckDBPyConnection, versions: Iterable[tuple[str, str]]) -> set[str]:
    """Add (engine, version) pairs and number the releases anew. Returns the ids of histories whose verdicts this made stale."""
    known = set(connection.execute("SELECT engine, version FROM engine_versions").fetchall())
    new: dict[str, set[str]] = {}
    for engine, version in sorted(set(versions) - known):
        new.setdefault(engine, set()).add(version)
    stale: set[str] = set()
    for engine, fresh in new.items():
        stale |= _add(connection, engine, fresh, {version for name, version in known if name == engine})
    return stale


def drop_unused(connection: duckdb.DuckDBPyConnection, versions: Iterable[tuple[str, str]]) -> set[str]:
    """Drop those of these (engine, version) pairs that no run has any more. Returns the ids of histories that this made stale.

    A boot is stored when it begins, when the version of an endpoint is not known yet, and again when it is.
    """
    stale: set[str] = set()
    for engine, version in set(versions):
        if connection.execute("SELECT 1 FROM runs WHERE engine = ? AND engine_version = ? LIMIT 1", [engine, version]).fetchall():
            continue
        known = {row[0] for row in connection.execute("SELECT version FROM engine_versions WHERE engine = ?", [engine]).fetchall()}
        _number(connection, engine, known - {version})
        if version in order_releases([version]).name_of:
            stale |= {row[0] for row in connection.execute("SELECT history_id FROM histories WHERE engine = ?", [engine]).fetchall()}
    return stale


def _add(connection: duckdb.DuckDBPyConnection, engine: str, fresh: set[str], known: set[str]) -> set[str]:
    before = order_releases(known)
    after = _number(connection, engine, known | fresh)
    position = {name: number for number, name in enumerate(after.names, start=1)}
    if any(after.name_of[version] != name for version, name in before.name_of.items()):
        return {row[0] for row in connection.execute("SELECT history_id FROM histories WHERE engine = ?", [engine]).fetchall()}
    stale: set[str] = set()
    for name in set(after.names) - set(before.names):
        found = connection.execute(_BETWEEN, [engine, engine, position[name], position[name]]).fetchall()
        stale |= {row[0] for row in found}
    return stale


def _number(connection: duckdb.DuckDBPyConnection, engine: str, versions: set[str]) -> ReleaseOrder:
    """Write the versions of an engine with their places."""
    order = order_releases(versions)
    position = {name: number for number, name in enumerate(order.names, start=1)}
    connection.execute("DELETE FROM engine_versions WHERE engine = ?", [engine])
    rows = [(engine, version, name := order.name_of.get(version), position.get(name or "")) for version in sorted(versions)]
    if rows:
        connection.executemany("INSERT INTO engine_versions VALUES (?, ?, ?, ?)", rows)
    return order


def releases_of(connection: duckdb.DuckDBPyConnection, engine: str) -> tuple[list[str], dict[str, str]]:
    """(releases of the engine, oldest first; the release that each admitted version string means)."""
    rows = connection.execute(
        "SELECT version, release, position FROM engine_versions WHERE engine = ? AND release IS NOT NULL", [engine]
    ).fetchall()
    names = {release: position for _, release, position in rows}
    return sorted(names, key=lambda name: names[name]), {version: release for version, release, _ in rows}
