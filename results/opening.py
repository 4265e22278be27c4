"""Opening the database in turn with other processes.

Trap: DuckDB lets one process write or several read, but (seen in 2.0.1) reads the file's header *before* it takes its lock: whoever opens
while another one closes may go on from a state that is gone, and its commit, or the other's, is lost (2 of 1019 in ten minutes of two
writers and two readers). And readers that overlap leave no moment for a writer. Rule: a lock of our own (flock, gone with its process) is
held from before the file is opened until after it is closed, and everybody gets it through a turnstile: a writer is not overtaken.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from results.errors import StoreLocked

_SHORTEST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1


class _Reading(threading.local):
    """Which databases this thread is reading: a question asked within a question must not wait for the writer that waits for the first."""

    def __init__(self) -> None:
        self.databases: Counter[Path] = Counter()


_reading = _Reading()


class Opening:
    """Opens `database`, waiting at most `wait_s` with growing, jittered pauses. `clock` and `sleep` are injected."""

    def __init__(
        self,
        database: Path,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._database = database
        self._wait_s = wait_s
        self._clock = clock
        self._sleep = sleep

    @contextmanager
    def opened(self, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """The opened database. Raises StoreLocked when others keep it too long, duckdb.Error for a file that is no database."""
        with self.held(shared=read_only):
            connection = self._connect(read_only=read_only)
            try:
                yield connection
            finally:
                connection.close()

    @contextmanager
    def held(self, *, shared: bool) -> Iterator[None]:
        """The right to use the file, without opening it. Raises StoreLocked."""
        if shared and _reading.databases[self._database]:
            yield
            return
        deadline = self._clock() + self._wait_s
        turn, lock = self._file("turn"), self._file("lock")
        try:
            self._take(turn, fcntl.LOCK_EX, deadline)
            self._take(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, deadline)
            _close(turn)
            turn = None
            _reading.databases[self._database] += shared
            try:
                yield
            finally:
                _reading.databases[self._database] -= shared
        finally:
            _close(turn)
            _close(lock)

    def _file(self, kind: str) -> int | None:
        """A lock file beside the database; None on a medium that may only be read, where there is no writer."""
        path = self._database.with_name(f"{self._database.name}.{kind}")
        for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
            try:
                return os.open(path, flags | os.O_CLOEXEC, 0o666)
            except OSError:
                continue
        return None

    def _take(self, file: int | None, how: int, deadline: float) -> None:
        def attempt() -> None:
            if file is not None:
                fcntl.flock(file, how | fcntl.LOCK_NB)

        self._wait_for(attempt, BlockingIOError, deadline)

    def _connect(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        """Opening proper; waits also for another program that has the file and knows nothing of our locks."""
        opened: list[duckdb.DuckDBPyConnection] = []

        def attempt() -> None:
            try:
                opened.append(duckdb.connect(str(self._database), read_only=read_only))
            except duckdb.Error as error:
                if is_lock_conflict(error):
                    raise _TakenError(first_line(error)) from error
                raise

        self._wait_for(attempt, _TakenError, self._clock() + self._wait_s)
        return opened[0]

    def _wait_for(self, attempt: Callable[[], None], taken: type[Exception], deadline: float) -> None:
        pause = _SHORTEST_PAUSE_S
        while True:
            try:
                attempt()
                return
            except taken as error:
                if self._clock() + pause > deadline:
                    raise StoreLocked(
                        f"another process kept the database for more than {self._wait_s:.0f} s: {first_line(error)}",
                        where=str(self._database),
                        todo="Nothing is lost: the boot's folder is complete and the next run stores it. Close the other program.",
                    ) from error
            self._sleep(pause * (0.5 + random.random()))
            pause = min(pause * 1.6, _LONGEST_PAUSE_S)


class _TakenError(Exception):
    """Another program has the database now."""


def _close(file: int | None) -> None:
    if file is not None:
        os.close(file)


def is_lock_conflict(error: Exception) -> bool:
    """DuckDB's words when another process (IOException) or this one (different configuration) holds the file, duckdb 1.0 to 2.0."""
    text = str(error)
    return "Could not set lock" in text or "Conflicting lock" in text or "different configuration" in text


def first_line(error: Exception) -> str:
    """The first line of an error, bounded."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
