"""Databases of every former version become what a new one is, and keep their rows."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from results import store as store_module
from results.schema import SCHEMA_VERSION
from results.store import Store
from results.vocabulary import Outcome
from tests.results.conftest import MakeBoot, dump, minutes

SCHEMAS = Path(__file__).parents[1] / "data" / "schemas"
VERSIONS = range(1, SCHEMA_VERSION)


def _columns(store: Store) -> set[tuple[str, str, str]]:
    rows = store.query("SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal")
    return {(row["table_name"], row["column_name"], row["data_type"]) for row in rows}


def _as_version(store: Store, version: int) -> None:
    """Put the rows of the store's database into one made by the schema of a former version."""
    old = store.database.with_suffix(".old")
    with duckdb.connect(str(old)) as connection:
        connection.execute((SCHEMAS / f"version-{version}.sql").read_text())
        connection.execute(f"INSERT INTO schema_version (version) VALUES ({version})")
        connection.execute(f"ATTACH '{store.database}' AS new (READ_ONLY)")
        for (table,) in connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE table_name <> 'schema_version' GROUP BY table_name HAVING count(*) = 2"
        ).fetchall():
            columns = connection.execute(
                "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND database_name <> 'new'", [table]
            )
            names = ", ".join(f'"{row[0]}"' for row in columns.fetchall())
            connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM new.{table}")
    old.replace(store.database)


def _some_history(store: Store, make_boot: MakeBoot) -> None:
    for number, (version, outcome) in enumerate(
        [("0.31.0", Outcome.PASS), ("0.31.0", Outcome.PASS), ("0.32.0", Outcome.CRASH), ("0.32.0", Outcome.CRASH)]
    ):
        decode = (100.0, 101.0) if outcome is Outcome.PASS else ()
        store.ingest(make_boot(version=version, outcome=outcome, decode=decode, started_at=minutes(10 * number), session=f"s{number}"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_a_former_version_becomes_what_a_new_one_is_and_keeps_its_rows(
    store: Store, make_boot: MakeBoot, version: int
) -> None:
    _some_history(store, make_boot)
    columns, before = _columns(store), dump(store)
    _as_version(store, version)
    assert store.ingest_pending().ingested == ()
    assert _columns(store) == columns
    if version < 3:
        before["nodes"][0]["network"] = None  # these did not ask for it
    assert dump(store) == before
    assert [row["verdict"] for row in store.query("SELECT verdict FROM matrix ORDER BY position")] == ["new", "broke"]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_database_of_a_former_version_is_migrated(store: Store, make_boot: MakeBoot, version: int) -> None:
    store.root.mkdir(parents=True)
    with duckdb.connect(str(store.database)) as connection:
        connection.execute((SCHEMAS / f"version-{version}.sql").read_text())
        connection.execute(f"INSERT INTO schema_version (version) VALUES ({version})")
    store.ingest(make_boot())
    assert len(store.query("SELECT * FROM boots")) == 1


def test_a_migration_that_fails_leaves_the_old_version_in_place(store: Store, make_boot: MakeBoot) -> None:
    _some_history(store, make_boot)
    _as_version(store, 1)
    with duckdb.connect(str(store.database)) as connection:
        connection.execute("CREATE TABLE verdicts (in_the_way INTEGER)")
    with pytest.raises(Exception, match="verdicts"):
        store.ingest_pending()
    with duckdb.connect(str(store.database)) as connection:
        assert connection.execute("SELECT max(version) FROM schema_version").fetchall() == [(1,)]
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(4,)]


def test_a_migration_that_is_interrupted_goes_on_where_it_was(store: Store, make_boot: MakeBoot, monkeypatch: pytest.MonkeyPatch) -> None:
    _some_history(store, make_boot)
    store.ingest(make_boot(series="other", recipe_name="another", started_at=minutes(50), session="s9"))
    before = dump(store)
    _as_version(store, 4)
    monkeypatch.setattr("results.store._BATCH", 1)
    judge, judged = store_module._refresh_some, []

    def interrupted(connection: duckdb.DuckDBPyConnection) -> int:
        if judged:
            raise KeyboardInterrupt
        judged.append(judge(connection))
        return judged[0]

    monkeypatch.setattr("results.store._refresh_some", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.ingest_pending()
    assert store.query("SELECT count(*) AS n FROM stale_histories") == [{"n": 1}]
    monkeypatch.setattr("results.store._refresh_some", judge)
    store.ingest_pending()
    assert dump(store) == before


def test_there_is_a_fixture_for_every_former_version() -> None:
    assert sorted(path.name for path in SCHEMAS.glob("*.sql")) == [f"version-{version}.sql" for version in VERSIONS]
