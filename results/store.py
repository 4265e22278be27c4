"""The DuckDB store: one file, one writer or many readers, and nothing lost.

Trap: DuckDB lets one process write *or* several read; a writer that keeps the file open for a boot of twenty minutes breaks every
dashboard, and a reader that keeps it open loses the run. Rule: both sides open, work and close; a commit holds the lock for milliseconds
and retries with back-off, and a boot's rows always come from its folder (`results/boot_folder.py`), so a commit that could not be made is
made later by `ingest_pending` or `rebuild`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
from filelock import FileLock, Timeout

from results.boot_folder import BootContent, BootFolder, all_folders
from results.errors import FolderError, StoreError, StoreLocked
from results.ingest import derive_all, forget_kept, store_boots, store_kept, unstored_kept
from results.kept_files import KeptFiles
from results.kept_records import KeptRecord
from results.opening import Opening, first_line, is_lock_conflict
from results.schema import SCHEMA_VERSION, create, migrate, schema_version
from results.verdicts_stored import refresh_stale

DEFAULT_WAIT_S = 60.0
_DERIVED_SINCE = 3
"""Schema version since which databases hold what is derived from their rows."""
_JUDGED_SINCE = 6
"""Schema version since which their verdicts are as a new database has them."""
_BATCH = 500
"""Boots stored by one commit when many are."""


@dataclass(frozen=True)
class IngestReport:
    """What an ingest of several folders did: `skipped` maps a folder's id to the reason it was left out.

    `cut_lines` and `not_finite` count what of the others could not be used (`BootContent`). `without_folder`: boots that only the former
    database holds, which a rebuild keeps as `former`.
    """

    ingested: tuple[str, ...]
    skipped: dict[str, str]
    cut_lines: int = 0
    not_finite: int = 0
    without_folder: tuple[str, ...] = ()
    former: str | None = None


class Store:
    """The result store under `root`: `sparkproof.duckdb`, `boots/`, and the files of `results.kept_files`.

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
        self.kept = KeptFiles(root)
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
    def exclusive(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-write connection without a transaction: nobody else has the database while it is open. Raises StoreLocked."""
        with self._open_for_writing() as connection:
            yield connection

    @contextmanager
    def _open_for_writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self._make_root()
        try:
            with self._opening().opened(read_only=False) as connection:
                self._migrate(connection)
                yield connection
        except RuntimeError as error:
            _raise_if_interrupted(error)
            raise
        except duckdb.Error as error:
            raise self._damaged(error) from error

    def _make_root(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store's folder cannot be made: {error.strerror}", where=str(self.root), todo=_HOME) from error

    def _damaged(self, error: duckdb.Error) -> StoreError:
        if any(words in str(error) for words in _FULL):
            return StoreError(f"the disk took no more: {first_line(error)}", where=str(self.database), todo=_SPACE)
        return StoreError(f"the database cannot be used: {first_line(error)}", where=str(self.database), todo=_REBUILD)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A read-only connection. Raises StoreError when there is no store yet, StoreLocked when a writer does not let go."""
        if not self.database.exists():
            raise StoreError("there are no results yet", where=str(self.database), todo="Make some: sparkproof run --engine vllm==0.32.0")
        try:
            with self._opening().opened(read_only=True) as connection:
                found = schema_version(connection)
                if found != SCHEMA_VERSION:
                    raise StoreError(
                        f"the database has schema version {found}, this Sparkproof reads {SCHEMA_VERSION}",
                        where=str(self.database),
                        todo="Run `sparkproof db vacuum`: it migrates it." if found < SCHEMA_VERSION else "Update Sparkproof.",
                    )
                yield connection
        except RuntimeError as error:
            _raise_if_interrupted(error)
            raise
        except duckdb.Error as error:
            raise self._damaged(error) from error

    def _opening(self) -> Opening:
        return Opening(self.database, self._wait_s, self._clock, self._sleep)

    def _migrate(self, connection: duckdb.DuckDBPyConnection) -> None:
        found = schema_version(connection)
        if found > SCHEMA_VERSION:
            raise StoreError(f"the database has schema version {found}", where=str(self.database), todo="Update Sparkproof.")
        if found < SCHEMA_VERSION:
            with _transaction(connection):
                if found == 0:
                    create(connection)
                else:
                    migrate(connection, found)
                    derive_all(connection, numbers=found < _DERIVED_SINCE, verdicts=found < _JUDGED_SINCE)
        while _refresh_some(connection):  # cells that a migration, or an ingest that was killed, left to be judged
            pass

    # -- writing ---------------------------------------------------------------------------------------------------------------------

    def ingest(self, folder: BootFolder) -> None:
        """Store one boot folder, replacing what was stored of the same run, and renew the verdicts that it changes."""
        content = folder.read()
        with self.writing() as connection:
            store_boots(connection, [content])
            refresh_stale(connection)

    def keep(self, record: KeptRecord) -> None:
        """Write a session, a claim or an ignore to its file and store it, replacing what was kept under its id."""
        self.kept.write(record)
        with self.writing() as connection:
            store_kept(connection, [record])
            refresh_stale(connection)

    def take_back(self, kind: type[KeptRecord], record_id: str) -> bool:
        """Remove what is kept under this id, file and row; False if there was no file."""
        removed = self.kept.remove(kind, record_id)
        with self.writing() as connection:
            forget_kept(connection, kind, [record_id])
            refresh_stale(connection)
        return removed

    def ingest_pending(self) -> IngestReport:
        """Store every folder and file that the database does not hold in its final state (a commit that could not be made before)."""
        kept, damaged = self.kept.read_all()
        pending = all_folders(self.boots)
        if self.database.exists():
            with self._open_for_writing() as connection:  # for writing, so that an older database is migrated first
                final = _in_final_state(connection, [folder.run_id for folder in pending])
                kept = unstored_kept(connection, kept)
            pending = [folder for folder in pending if folder.run_id not in final]
        return self._ingest_all(pending, kept, damaged) if pending or kept else IngestReport((), damaged)

    def rebuild(self) -> IngestReport:
        """Make the database anew from folders and files alone; the old one is replaced only when the new one is complete.

        One that holds boots whose folders are gone or cannot be read is kept beside the new one.
        """
        fresh = Store(self.root, wait_s=self._wait_s, clock=self._clock, sleep=self._sleep)
        fresh.database = self.root / "sparkproof.rebuilding.duckdb"
        lock = FileLock(str(self.root / "rebuild.lock"))
        self._make_root()
        try:
            with lock.acquire(timeout=0):
                fresh.database.unlink(missing_ok=True)
                kept, damaged = self.kept.read_all()
                report = fresh._ingest_all(all_folders(self.boots), kept, damaged)
                with self._opening().held(shared=False):
                    lost = self._set_aside(report.ingested)
                    fresh.database.replace(self.database)
        except Timeout as error:
            raise StoreLocked("another rebuild is at work", where=str(self.root)) from error
        for name in ("lock", "turn"):
            fresh.database.with_name(f"{fresh.database.name}.{name}").unlink(missing_ok=True)
        return replace(report, without_folder=lost, former=str(self._former) if lost else None)

    @property
    def _former(self) -> Path:
        return self.root / "sparkproof.before-rebuild.duckdb"

    def _set_aside(self, stored: Collection[str]) -> tuple[str, ...]:
        """Make way for a new file with these boots: an old one that is damaged, or holds others (which are returned), is kept beside it.

        The old one's log (.wal) must not meet the new one.
        """
        if not self.database.exists():
            return ()
        wal = self.database.with_name(self.database.name + ".wal")
        lost: tuple[str, ...] = ()
        try:
            with duckdb.connect(str(self.database)) as old:
                lost = tuple(sorted(_run_ids(old) - set(stored)))
        except duckdb.Error as error:
            if is_lock_conflict(error):
                raise StoreLocked(f"another program has the database: {first_line(error)}", where=str(self.database)) from error
            self.database.replace(self.database.with_suffix(".damaged"))
            if wal.exists():
                wal.replace(wal.with_suffix(".damaged-wal"))
        if lost:
            self.database.replace(self._former)
        wal.unlink(missing_ok=True)
        return lost

    def _ingest_all(self, folders: Sequence[BootFolder], kept: Sequence[KeptRecord], damaged: dict[str, str]) -> IngestReport:
        done: list[str] = []
        skipped = dict(damaged)
        cut = not_finite = 0
        with self._open_for_writing() as connection:
            for record in kept:
                _keep(connection, record, skipped)
            for start in range(0, len(folders), _BATCH):
                contents = _readable(folders[start : start + _BATCH], skipped)
                for content in _stored_of(connection, contents, skipped):
                    cut += content.skipped_lines
                    not_finite += content.not_finite
                    done.append(content.summary.run.run_id)
            while _refresh_some(connection):
                pass
        return IngestReport(tuple(done), skipped, cut, not_finite)

    # -- reading ---------------------------------------------------------------------------------------------------------------------

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a parameterised query as dictionaries."""
        with self.reading() as connection:
            cursor = connection.execute(sql, list(parameters))
            names = [d[0] for d in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


_HOME = "Set SPARKPROOF_HOME to a folder that can be written."
_FULL = ("No space left on device", "File too large", "Disk quota exceeded")
_SPACE = (
    "Free space on that disk. Nothing is lost: what is stored can be read, the boot folders are complete, and the next run stores them."
)
_REBUILD = "The boot folders hold every result: run `sparkproof rebuild`."


def _raise_if_interrupted(error: RuntimeError) -> None:
    """A signal ends a query, and DuckDB raises its own error in place of what the handler raised (seen in 2.0.1): Ctrl-C would be lost."""
    if "interrupted" in str(error).lower():
        raise KeyboardInterrupt("while the database worked") from error


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


def _run_ids(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT run_id FROM runs").fetchall()} if schema_version(connection) else set()


def _in_final_state(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> set[str]:
    """Those of these boots that the database holds with their outcome: only they are asked for, since it may hold a million others."""
    sql = "SELECT run_id FROM runs WHERE outcome IS NOT NULL AND run_id IN (SELECT unnest(?::VARCHAR[]))"
    return {row[0] for row in connection.execute(sql, [list(run_ids)]).fetchall()}


def _readable(folders: Sequence[BootFolder], skipped: dict[str, str]) -> list[BootContent]:
    contents: list[BootContent] = []
    for folder in folders:
        try:
            contents.append(folder.read())
        except FolderError as error:
            skipped[folder.run_id] = str(error)
    return contents


def _stored_of(connection: duckdb.DuckDBPyConnection, contents: Sequence[BootContent], skipped: dict[str, str]) -> Sequence[BootContent]:
    """Store a batch; if one of its boots cannot be, each on its own, so that it takes none of the others with it."""
    try:
        with _transaction(connection):
            store_boots(connection, contents)
        return contents
    except FolderError as error:
        if len(contents) == 1:
            skipped[contents[0].summary.run.run_id] = str(error)
            return []
    return [stored for content in contents for stored in _stored_of(connection, [content], skipped)]


def _keep(connection: duckdb.DuckDBPyConnection, record: KeptRecord, skipped: dict[str, str]) -> None:
    try:
        with _transaction(connection):
            store_kept(connection, [record])
    except FolderError as error:
        skipped[error.where] = str(error)


def _refresh_some(connection: duckdb.DuckDBPyConnection) -> int:
    with _transaction(connection):
        return refresh_stale(connection, _BATCH)
