"""The DuckDB store: one file, one writer or many readers, and nothing lost.

Trap: DuckDB lets one process write *or* several read; a writer that keeps the file open for a boot of twenty minutes breaks every
dashboard, and a reader that keeps it open loses the run. Rule: both sides open, work and close; a commit holds the lock for milliseconds
and retries with back-off, and a boot's rows always come from its folder (`results/boot_folder.py`), so a commit that could not be made is
made later by `ingest_pending` or `rebuild`.
"""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from filelock import FileLock, Timeout

from results.boot_folder import BootContent, BootFolder, all_folders
from results.errors import FolderError, StoreError, StoreLocked
from results.records import BOOT_ROWS, BackendRecord, EngineBuildRecord, NodeRecord, RecipeRecord, RunRecord

_HERE = Path(__file__).parent
SCHEMA_VERSION = 2
DEFAULT_WAIT_S = 60.0

_DIMENSIONS: dict[type[Any], str] = {
    NodeRecord: "nodes",
    EngineBuildRecord: "engine_builds",
    RecipeRecord: "recipes",
    BackendRecord: "backends",
    RunRecord: "runs",
}


@dataclass(frozen=True)
class IngestReport:
    """What an ingest of several folders did: `skipped` maps a folder's id to the reason it was left out."""

    ingested: tuple[str, ...]
    skipped: dict[str, str]
    cut_lines: int = 0


class Store:
    """The result store under `root`: `sparkproof.duckdb` and `boots/`.

    `clock` and `sleep` are injected so that waiting for a lock can be tested without waiting.
    """

    def __init__(
        self,
        root: Path,
        *,
        wait_s: float = DEFAULT_WAIT_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.root = root
        self.database = root / "sparkproof.duckdb"
        self.boots = root / "boots"
        self._wait_s = wait_s
        self._clock = clock
        self._sleep = sleep

    # -- opening ---------------------------------------------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-write connection inside one transaction; committed at the end, rolled back on an error. Raises StoreLocked."""
        with self._open_for_writing() as connection, _transaction(connection):
            yield connection

    @contextmanager
    def _open_for_writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self._make_root()
        connection = self._open(read_only=False)
        try:
            self._migrate(connection)
            yield connection
        except duckdb.Error as error:
            raise self._damaged(error) from error
        finally:
            connection.close()

    def _make_root(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store's folder cannot be made: {error.strerror}", where=str(self.root), todo=_HOME) from error

    def _damaged(self, error: duckdb.Error) -> StoreError:
        return StoreError(f"the database cannot be used: {_first_line(error)}", where=str(self.database), todo=_REBUILD)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection. Raises StoreError when there is no store yet, StoreLocked when a writer does not let go."""
        if not self.database.exists():
            raise StoreError("there are no results yet", where=str(self.database), todo="Make some: sparkproof run --engine vllm==0.32.0")
        connection = self._open(read_only=True)
        try:
            found = _version(connection)
            if found != SCHEMA_VERSION:
                raise StoreError(
                    f"the database has schema version {found}, this Sparkproof reads {SCHEMA_VERSION}",
                    where=str(self.database),
                    todo="Run `sparkproof rebuild` to migrate it." if found < SCHEMA_VERSION else "Update Sparkproof.",
                )
            yield connection
        except duckdb.Error as error:
            raise self._damaged(error) from error
        finally:
            connection.close()

    def _open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        """Open, waiting with growing, jittered pauses while another process holds the file."""
        deadline = self._clock() + self._wait_s
        pause = 0.005
        while True:
            try:
                return duckdb.connect(str(self.database), read_only=read_only)
            except duckdb.Error as error:
                if not _is_lock_conflict(error):
                    raise self._damaged(error) from error
                if self._clock() + pause > deadline:
                    raise StoreLocked(
                        f"another process kept the database for more than {self._wait_s:.0f} s: {_first_line(error)}",
                        where=str(self.database),
                        todo="Nothing is lost: the boot's folder is complete and the next run stores it. Close the other program.",
                    ) from error
            self._sleep(pause * (0.5 + random.random()))
            pause = min(pause * 1.6, 0.25)

    def _migrate(self, connection: duckdb.DuckDBPyConnection) -> None:
        found = _version(connection)
        if found > SCHEMA_VERSION:
            raise StoreError(f"the database has schema version {found}", where=str(self.database), todo="Update Sparkproof.")
        if found == SCHEMA_VERSION:
            return
        with _transaction(connection):
            if found == 0:
                connection.execute((_HERE / "schema.sql").read_text(encoding="utf-8"))
                connection.execute("INSERT INTO schema_version (version) VALUES (?)", [SCHEMA_VERSION])
            for number in range(found + 1, SCHEMA_VERSION + 1) if found else ():
                connection.execute((_HERE / "migrations" / f"{number:04d}.sql").read_text(encoding="utf-8"))
                connection.execute("INSERT INTO schema_version (version) VALUES (?)", [number])

    # -- writing ---------------------------------------------------------------------------------------------------------------------

    def ingest(self, folder: BootFolder) -> None:
        """Store one boot folder, replacing what was stored of the same run."""
        content = folder.read()
        with self.writing() as connection:
            _store(connection, content)

    def ingest_pending(self) -> IngestReport:
        """Store every folder that the database does not hold in its final state (a commit that could not be made before)."""
        known: dict[str, str | None] = {}
        if self.database.exists():
            with self.reading() as connection:
                known = dict(connection.execute("SELECT run_id, outcome FROM runs").fetchall())
        pending = [f for f in all_folders(self.boots) if known.get(f.run_id) is None]
        return self._ingest_all(pending) if pending else IngestReport((), {})

    def rebuild(self) -> IngestReport:
        """Make the database anew from the boot folders alone; the old file is replaced only when the new one is complete."""
        fresh = Store(self.root, wait_s=self._wait_s, clock=self._clock, sleep=self._sleep)
        fresh.database = self.root / "sparkproof.rebuilding.duckdb"
        lock = FileLock(str(self.root / "rebuild.lock"))
        self._make_root()
        try:
            with lock.acquire(timeout=0):
                fresh.database.unlink(missing_ok=True)
                report = fresh._ingest_all(all_folders(self.boots))
                with fresh.writing():
                    pass  # an empty store is a database with tables, too
                self._set_aside()
                fresh.database.replace(self.database)
        except Timeout as error:
            raise StoreLocked("another rebuild is at work", where=str(self.root)) from error
        return report

    def _set_aside(self) -> None:
        """Wait until nobody uses the old file; a damaged one is kept beside the new one. Its log (.wal) must not meet the new file."""
        if not self.database.exists():
            return
        wal = self.database.with_name(self.database.name + ".wal")
        try:
            self._open(read_only=False).close()
        except StoreLocked:
            raise
        except StoreError:
            self.database.replace(self.database.with_suffix(".damaged"))
            if wal.exists():
                wal.replace(wal.with_suffix(".damaged-wal"))
        wal.unlink(missing_ok=True)

    def _ingest_all(self, folders: Sequence[BootFolder]) -> IngestReport:
        done: list[str] = []
        skipped: dict[str, str] = {}
        cut = 0
        with self._open_for_writing() as connection:
            for folder in folders:
                try:
                    content = folder.read()
                    with _transaction(connection):
                        _store(connection, content)
                except FolderError as error:
                    skipped[folder.run_id] = str(error)
                    continue
                cut += content.skipped_lines
                done.append(folder.run_id)
        return IngestReport(tuple(done), skipped, cut)

    # -- reading ---------------------------------------------------------------------------------------------------------------------

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a parameterised query as dictionaries."""
        with self.reading() as connection:
            cursor = connection.execute(sql, list(parameters))
            names = [d[0] for d in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


_HOME = "Set SPARKPROOF_HOME to a folder that can be written."
_REBUILD = "The boot folders hold every result: run `sparkproof rebuild`."
_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError, duckdb.DataError)
"""What pyarrow and DuckDB raise for a value that no column can hold."""


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit at the end, roll back on whatever goes wrong."""
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _store(connection: duckdb.DuckDBPyConnection, content: BootContent) -> None:
    """Store one boot. Raises FolderError for a value that the database cannot hold."""
    try:
        _store_rows(connection, content)
    except _UNFIT as error:
        where = content.summary.run.run_id
        raise FolderError(f"holds a value that the database cannot: {str(error).splitlines()[0][:200]}", where=where) from error


def _store_rows(connection: duckdb.DuckDBPyConnection, content: BootContent) -> None:
    summary = content.summary
    for record in (summary.node, summary.build, summary.recipe, summary.backend, summary.run):
        if record is not None:
            _insert(connection, _DIMENSIONS[type(record)], [record], replace=True)
    for kind, rows in content.rows.items():
        table = BOOT_ROWS[kind].table
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [summary.run.run_id])
        if rows:
            _insert(connection, table, rows, replace=False)


def _insert(connection: duckdb.DuckDBPyConnection, table: str, records: Sequence[Any], *, replace: bool) -> None:
    columns = {f.name: [_cell(getattr(r, f.name)) for r in records] for f in dataclasses.fields(records[0])}
    connection.register("incoming", pa.table({name: pa.array(values) for name, values in columns.items()}))
    connection.execute(f"INSERT {'OR REPLACE ' if replace else ''}INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True, allow_nan=False)
    return list(value) if isinstance(value, tuple) else value


def _version(connection: duckdb.DuckDBPyConnection) -> int:
    tables = connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'schema_version'").fetchall()
    if not tables:
        return 0
    row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(row[0]) if row and row[0] is not None else 0


def _is_lock_conflict(error: Exception) -> bool:
    """DuckDB's words when another process (IOException) or this one (different configuration) holds the file, duckdb 1.0 to 2.0."""
    text = str(error)
    return "Could not set lock" in text or "Conflicting lock" in text or "different configuration" in text


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:300]
