"""Was it memory? What the kernel and the log say about a server's end.

Trap: on unified memory the kernel's OOM killer ends an engine with SIGKILL and nothing in its log: it looks like a crash of the engine,
or like a hang of the survivor. Rule: the kernel is asked. `oom_kill` in `/proc/vmstat` (readable by everyone, counts cgroup kills too)
is compared with its value before the launch; kernel log lines since the launch are read where allowed (driver failures such as
NV_ERR_NO_MEMORY appear only there, vllm-project/vllm#56824).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KERNEL_OOM = re.compile(r"Out of memory: Killed process|Memory cgroup out of memory: Killed process|oom-kill:|NV_ERR_NO_MEMORY")
_MOST_RECORDS = 20_000
_RECORD_BYTES = 8192


def parse_kernel_record(record: str) -> tuple[int, str] | None:
    """(sequence number, message) of one `/dev/kmsg` record, `prio,seq,usec,flags;message`; None for anything else."""
    head, _, message = record.partition(";")
    fields = head.split(",")
    if len(fields) < 3 or not fields[1].isdecimal():
        return None
    return int(fields[1]), message.split("\n", 1)[0]


def read_kernel_log(after: int, device: Path = Path("/dev/kmsg")) -> tuple[tuple[int, str], ...] | None:
    """Kernel log records with a sequence number above `after`; None where we may not read them."""
    try:
        fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    found: list[tuple[int, str]] = []
    try:
        for _ in range(_MOST_RECORDS):
            try:
                raw = os.read(fd, _RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten while we read: the next read continues at the oldest that is left
                    continue
                return tuple(found) if error.errno == errno.EAGAIN else None
            parsed = parse_kernel_record(raw.decode(errors="replace"))
            if parsed is not None and parsed[0] > after:
                found.append(parsed)
            if not raw:
                break
    finally:
        os.close(fd)
    return tuple(found)


def parse_oom_kills(vmstat: str) -> int | None:
    """The kernel's count of processes ended by its OOM killer since boot, None if this kernel does not count."""
    for line in vmstat.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return None


def read_oom_kills(path: Path = Path("/proc/vmstat")) -> int | None:
    """`parse_oom_kills` of this machine now."""
    try:
        return parse_oom_kills(path.read_text())
    except OSError:
        return None


@dataclass(frozen=True)
class KernelWitness:
    """Where the kernel's counters stood before the launch. None: cannot be read here."""

    oom_kills: int | None
    last_record: int | None

    @classmethod
    def now(cls) -> KernelWitness:
        """Look at this machine now."""
        records = read_kernel_log(-1)
        return cls(read_oom_kills(), None if records is None else max((seq for seq, _ in records), default=-1))

    def kernel_lines(self) -> tuple[str, ...] | None:
        """Messages of the kernel since then (hostile: driver and process names are in them); None where we may not read them."""
        records = None if self.last_record is None else read_kernel_log(self.last_record)
        return None if records is None else tuple(message for _, message in records)

    def report(self) -> KernelReport:
        """What has happened since then."""
        now = read_oom_kills()
        kills = None if now is None or self.oom_kills is None else now - self.oom_kills
        return KernelReport(kills, self.kernel_lines())


@dataclass(frozen=True)
class KernelReport:
    """What the kernel says about the time since the launch; None: it does not say."""

    oom_kills: int | None
    lines: tuple[str, ...] | None

    def memory_reason(self) -> str | None:
        """A sentence if the kernel says that memory ran out, else None."""
        told = next((line for line in self.lines or () if KERNEL_OOM.search(line)), None)
        if told is not None:
            return f"the kernel log says: {told[:300]}"
        if self.oom_kills:
            return f"the kernel's OOM killer ended {self.oom_kills} process(es) since the launch"
        return None


def matching_line(log_end: str, patterns: Sequence[re.Pattern[str]], last_lines: int = 400) -> str | None:
    """The last line, among the `last_lines` last ones, that matches one of the patterns; lines are cut to 2000 characters first."""
    for line in reversed(log_end.splitlines()[-last_lines:]):
        if any(p.search(line[:2000]) for p in patterns):
            return line[:2000].strip()
    return None
