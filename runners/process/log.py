"""The server's log file: bounded in size, read only in bounded pieces.

Trap: an engine in an error loop writes 100 GB in a night, the disk fills and every later result is lost. Rule: the server writes straight
into a file (it must survive our death, so no pipe), and whoever watches it ends the boot when the file or the disk passes its limit.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_GIB = 1 << 30


@dataclass(frozen=True)
class LogLimits:
    """How large the log may become, and how much of its disk must stay free."""

    largest_bytes: int = _GIB
    least_free_bytes: int = 2 * _GIB


LOG_LIMITS = LogLimits()


def log_trouble(path: Path, limits: LogLimits = LOG_LIMITS) -> str | None:
    """Why the server must be stopped (log too large, disk nearly full), or None. The sentence says what to do next."""
    size = path.stat().st_size if path.exists() else 0
    if size > limits.largest_bytes:
        return f"the server log {path.name} passed {_gib(limits.largest_bytes)}: the engine floods it, see its end"
    free = shutil.disk_usage(path.parent).free
    if free < limits.least_free_bytes:
        return f"only {_gib(free)} free on the disk of the boot folder: free at least {_gib(limits.least_free_bytes)}"
    return None


def _gib(size: int) -> str:
    return f"{size / _GIB:.3g} GiB"


def read_end(path: Path, most_bytes: int = 256 << 10) -> str:
    """The last `most_bytes` of the log; empty if it does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes).decode(errors="replace")
    except FileNotFoundError:
        return ""


def shorten(path: Path, head_bytes: int = 8 << 20, end_bytes: int = 8 << 20) -> bool:
    """Keep the first and last bytes of a log whose server is gone, so that it can be stored; False if it was short enough already."""
    size = path.stat().st_size
    if size <= head_bytes + end_bytes:
        return False
    with path.open("r+b") as file:
        file.seek(size - end_bytes)
        end = file.read(end_bytes)
        file.seek(head_bytes)
        file.write(f"\n[{size - head_bytes - end_bytes} bytes left out here]\n".encode() + end)
        file.truncate()
    return True


class LogTail:
    """Reads what was appended since the last look, at most `most_bytes` of it (the rest of a flood is skipped)."""

    def __init__(self, path: Path, most_bytes: int = 1 << 20) -> None:
        self._path = path
        self._most = most_bytes
        self._read_to = 0

    def appended(self) -> str:
        """The text added since the last call; empty if nothing was."""
        try:
            with self._path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self._read_to, end - self._most))
                text = file.read(self._most)
        except FileNotFoundError:
            return ""
        self._read_to = end
        return text.decode(errors="replace")
