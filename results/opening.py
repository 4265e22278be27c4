"""Opening the database in turn with other processes.

Trap: DuckDB lets one process write or several read, and two dashboards that read all the time overlap, so that there is no moment for a
writer: a runner waits for minutes although nobody reads for longer than an instant. Rule: whoever opens the file goes through a turnstile
first; a writer stays in it until it has the file, so readers that come later wait for it and those inside are out in a moment.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from filelock import FileLock, Timeout

from results.errors import StoreLocked

_SHORTEST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.1


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

    def open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        """The opened database. Raises StoreLocked when others keep it too long, duckdb.Error for a file that is no database."""
        deadline = self._clock() + self._wait_s
        if read_only:
            with self._turnstile(deadline):
                pass
            return self._connect(deadline, read_only=True)
        with self._turnstile(deadline):
            return self._connect(deadline, read_only=False)

    @contextmanager
    def _turnstile(self, deadline: float) -> Iterator[None]:
        lock = FileLock(str(self._database.with_name("sparkproof.turn")))
        try:
            self._wait_for(lambda: lock.acquire(timeout=0), Timeout, deadline)
        except OSError:  # a store that may only be read has no turnstile, and no writer
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def _connect(self, deadline: float, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        opened: list[duckdb.DuckDBPyConnection] = []

        def connect() -> None:
            try:
                opened.append(duckdb.connect(str(self._database), read_only=read_only))
            except duckdb.Error as error:
                if _is_lock_conflict(error):
                    raise _TakenError(first_line(error)) from error
                raise

        self._wait_for(connect, _TakenError, deadline)
        return opened[0]

    def _wait_for(self, attempt: Callable[[], object], taken: type[Exception], deadline: float) -> None:
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
    """Somebody else has the database now."""


def _is_lock_conflict(error: Exception) -> bool:
    """DuckDB's words when another process (IOException) or this one (different configuration) holds the file, duckdb 1.0 to 2.0."""
    text = str(error)
    return "Could not set lock" in text or "Conflicting lock" in text or "different configuration" in text


def first_line(error: Exception) -> str:
    """The first line of an error, bounded."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
