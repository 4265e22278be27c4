"""The kernel's process table, read in one cheap pass.

Trap: a process is named by a number that the kernel gives to somebody else later, and a wall-clock start time moves when the clock is
set (a node that has just booted sets it within seconds). Rule: a process is identified by pid AND start time in clock ticks since the
machine booted (field 22 of `/proc/PID/stat`), which never moves; across reboots the kernel's boot id is part of the identity.

One pass costs a few tens of microseconds per process, so that a sampler can afford it. Fields: proc_pid_stat(5).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_ENVIRONMENT_BYTES = 8 << 20
_MOST_ROUNDS = 20


@dataclass(frozen=True)
class ProcessStat:
    """One process. `cpu_s` is its own user and system time, `waited_cpu_s` that of its children that have ended (compilers)."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    start_ticks: int
    state: str
    name: str
    cpu_s: float
    waited_cpu_s: float
    threads: int
    rss_bytes: int

    @property
    def alive(self) -> bool:
        """False for a zombie. A zombie whose other threads still run (a thread stuck in a driver call) holds its memory: alive."""
        return self.state not in ("Z", "X") or self.threads > 1


def parse_stat(text: str) -> ProcessStat:
    """Read one `/proc/PID/stat` line; ValueError for anything else. The name is free text: it may hold spaces, parentheses, newlines."""
    head, opened, rest = text.partition(" (")
    name, closed, tail = rest.rpartition(")")
    fields = tail.split()
    if not opened or not closed or len(fields) < 22:
        raise ValueError(f"not a /proc/PID/stat line: {text[:80]!r}")
    number = [int(f) for f in fields[1:22]]
    return ProcessStat(
        pid=int(head),
        ppid=number[0],
        pgid=number[1],
        sid=number[2],
        start_ticks=number[18],
        state=fields[0],
        name=name,
        cpu_s=(number[10] + number[11]) / TICKS_PER_S,
        waited_cpu_s=(number[12] + number[13]) / TICKS_PER_S,
        threads=number[16],
        rss_bytes=number[20] * PAGE_BYTES,
    )


def read_stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """The process now, or None when it is gone."""
    try:
        return parse_stat((proc / str(pid) / "stat").read_text(errors="replace"))
    except (OSError, ValueError):
        return None


def read_table(proc: Path = PROC) -> dict[int, ProcessStat]:
    """Every process, by pid. Those that end while we look are left out.

    A process may fork and end between our list and our look at it. So the list is read again until it names nobody new: whoever was born
    before a process that we found dead is then in the table too.
    """
    table: dict[int, ProcessStat] = {}
    looked_at: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        new = {int(entry) for entry in os.listdir(proc) if entry.isdecimal()} - looked_at  # noqa: PTH208 (Path objects double the cost)
        if not new:
            break
        looked_at |= new
        table.update((p.pid, p) for p in (read_stat(pid, proc) for pid in new) if p is not None)
    return table


def read_io_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Bytes this process has read and written, from any kind of file and from the disk (memory-mapped loading); None where unreadable."""
    try:
        lines = (proc / str(pid) / "io").read_text().splitlines()
        return sum(int(line.partition(":")[2]) for line in lines if line.startswith(("rchar", "wchar", "read_bytes")))
    except (OSError, ValueError):
        return None


def carries(pid: int, name: str, value: str, proc: Path = PROC) -> bool:
    """Whether the process was started with exactly `name=value` in its environment; False where that cannot be read."""
    try:
        with (proc / str(pid) / "environ").open("rb") as file:
            environment = file.read(_MOST_ENVIRONMENT_BYTES)
    except OSError:
        return False
    return f"\0{name}={value}\0".encode() in b"\0" + environment + b"\0"


def machine_boot_id(proc: Path = PROC) -> str:
    """The kernel's random id of this boot of the machine: process numbers of another boot mean nothing now."""
    return (proc / "sys/kernel/random/boot_id").read_text().strip()
