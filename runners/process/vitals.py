"""One look at a server from outside: does it live, does it do anything, may it go on?

Trap: "no log line for three minutes" alone kills an engine that compiles kernels in silence or reads 60 GB of weights; and our own
health polls write access-log lines, so a dead-locked server looks busy. Rule: activity is a log line that is not the access log of our
own requests, or CPU time, or bytes read or written, of ANY process of the boot, compilers included.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from runners.process.log import LOG_LIMITS, LogLimits, LogTail, log_trouble
from runners.process.server import Exit, ServerProcess
from runners.process.table import ProcessStat, read_io_bytes

_ACCESS_LOG = re.compile(r"\"(?:GET|POST|HEAD) /")
"""uvicorn's access log, in both engines: `127.0.0.1:1234 - "GET /health HTTP/1.1" 200 OK`."""

BUSY_CPU_SHARE = 0.05
"""CPU seconds per second, of one core, above which a boot counts as active. Waiting engines poll with well under 1 %."""
BUSY_IO_BYTES_S = 256 << 10
"""Bytes per second read or written above which a boot counts as active."""


@dataclass(frozen=True)
class Vitals:
    """`wrote`: a telling log line appeared since the last look. `cpu_s` and `io_bytes`: used by all processes since the last look.

    `trouble`: why the boot must be ended from our side (log or disk limit). `pids`: the living processes of the boot.
    """

    exit: Exit | None
    wrote: bool
    cpu_s: float
    io_bytes: int
    pids: frozenset[int]
    trouble: str | None = None

    def active(self, elapsed_s: float) -> bool:
        """Whether the boot did anything in the `elapsed_s` since the last look."""
        return self.wrote or self.cpu_s > BUSY_CPU_SHARE * elapsed_s or self.io_bytes > BUSY_IO_BYTES_S * elapsed_s


def is_telling(appended: str) -> bool:
    """Whether new log text holds anything but blank lines and the access log of our own requests."""
    return any(line.strip() and not _ACCESS_LOG.search(line[:2000]) for line in appended.splitlines())


class Watch:
    """Looks at one server again and again, and says what happened in between."""

    def __init__(self, server: ServerProcess, limits: LogLimits = LOG_LIMITS, read_io: Callable[[int], int | None] = read_io_bytes) -> None:
        self._server = server
        self._limits = limits
        self._read_io = read_io
        self._tail = LogTail(server.log_path)
        self._cpu: dict[tuple[int, int], float] = {}
        self._io: dict[tuple[int, int], int] = {}

    def look(self) -> Vitals:
        """What happened since the last look (the first one counts everything since the start)."""
        ours = self._server.members()
        return Vitals(
            exit=self._server.exit(),
            wrote=is_telling(self._tail.appended()),
            cpu_s=self._cpu_since(ours.proven),
            io_bytes=self._io_since(ours.alive),
            pids=ours.pids,
            trouble=log_trouble(self._server.log_path, self._limits),
        )

    def _cpu_since(self, processes: tuple[ProcessStat, ...]) -> float:
        now = {(p.pid, p.start_ticks): p.cpu_s + p.waited_cpu_s for p in processes}
        before, self._cpu = self._cpu, now
        return sum(max(0.0, cpu - before.get(key, 0.0)) for key, cpu in now.items())

    def _io_since(self, processes: tuple[ProcessStat, ...]) -> int:
        read = {(p.pid, p.start_ticks): self._read_io(p.pid) for p in processes}
        now = {key: count for key, count in read.items() if count is not None}
        before, self._io = self._io, now
        return sum(max(0, count - before.get(key, 0)) for key, count in now.items())
