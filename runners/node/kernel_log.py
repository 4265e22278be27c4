"""Lines of the kernel's log that concern the GPU or memory, as they appear while a boot runs.

Traps: a driver that runs out of memory says so in the kernel's log and nowhere else (`NVRM: ... NV_ERR_NO_MEMORY`, `Xid`); and reading the
whole log each second costs more than all telemetry. Rule: `/dev/kmsg` is opened once at its end and only what is new is read; where that
is not allowed the journal is asked once, after the boot; where neither is readable nothing is concluded.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from results.redact import plain, redact
from runners.process.oom import KERNEL_OOM, parse_kernel_record

CONCERNS_US = re.compile(rf"NVRM|\bXid\b|nvidia-modeset|oom_reaper|{KERNEL_OOM.pattern}")
MOST_LINES = 200
_LINE_CHARACTERS = 500
_RECORD_BYTES = 8192
_MOST_RECORDS_AT_ONCE = 500
_JOURNAL_TIMEOUT_S = 10.0
_JOURNAL_LINE = re.compile(r"^([0-9]{1,12}\.[0-9]{1,9}) \S{1,255} kernel: (.*)$")


@dataclass(frozen=True)
class KernelLine:
    """A line and when it appeared: seconds since the epoch, None for "now"."""

    line: str
    epoch_s: float | None = None


class KernelTail:
    """Follows `/dev/kmsg` from now on. `readable` is False where the kernel does not let us."""

    def __init__(self, device: Path = Path("/dev/kmsg")) -> None:
        self._fd: int | None = None
        try:
            self._fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self.close()

    @property
    def readable(self) -> bool:
        """Whether new lines can be read."""
        return self._fd is not None

    def close(self) -> None:
        """Stop following."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def new_lines(self) -> tuple[str, ...]:
        """What concerns us among the records since the last call, at most a few hundred at once."""
        found: list[str] = []
        for _ in range(_MOST_RECORDS_AT_ONCE):
            raw = self._read()
            if not raw:
                break
            parsed = parse_kernel_record(raw.decode(errors="replace"))
            if parsed is not None and CONCERNS_US.search(parsed[1]):
                found.append(shown(parsed[1]))
        return tuple(found)

    def _read(self) -> bytes:
        while self._fd is not None:
            try:
                return os.read(self._fd, _RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:  # records were overwritten before we read them: go on with the oldest that is left
                    continue
                if error.errno != errno.EAGAIN:
                    self.close()
                return b""
        return b""


def shown(message: str) -> str:
    """A kernel message as it may be stored: one bounded line without escapes (names in it are hostile) or serial numbers."""
    return plain(redact(" ".join(plain(message, _LINE_CHARACTERS).split())), _LINE_CHARACTERS)


def ask_journal(since_epoch_s: float) -> str | None:
    """The kernel's part of the journal since then, or None where there is no journal or we may not read it."""
    command = ("journalctl", "--dmesg", "--no-pager", "--quiet", "--output=short-unix", f"--since=@{since_epoch_s:.0f}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_JOURNAL_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def journal_lines(since_epoch_s: float, ask: Callable[[float], str | None] = ask_journal) -> tuple[KernelLine, ...]:
    """What concerns us in the journal since then; empty where it cannot be read."""
    found = (_JOURNAL_LINE.match(line[:2000]) for line in (ask(since_epoch_s) or "").splitlines())
    lines = (KernelLine(shown(match.group(2)), float(match.group(1))) for match in found if match and CONCERNS_US.search(match.group(2)))
    return tuple(lines)[:MOST_LINES]
