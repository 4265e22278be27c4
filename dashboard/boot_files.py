"""Files of one boot's folder, as a page may show them.

Trap: an id from an address bar, or a link planted in a boot's folder, makes a page show any file of the machine. Rule: the id has the shape
of ours, the name is one of two, the file is a plain file that no link leads to, and only so many bytes of it are read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from results.boot_folder import BootFolder
from results.redact import plain, redact
from results.store import Store

LOG, SERVE_SCRIPT = "server.log", "serve.sh"
_MOST_BYTES = 4 * 2**20
_LONGEST_LINE = 2_000


@dataclass(frozen=True)
class LogLine:
    """One line of a log; `number` counts from 1."""

    number: int
    text: str
    decisive: bool


def read(store: Store, run_id: str, name: str) -> str | None:
    """The end of the file (4 MiB at most), secrets hidden; None if there is none. Raises FolderError for what is no run id."""
    if name not in (LOG, SERVE_SCRIPT):
        raise ValueError(f"no file of a boot that is shown: {name!r}")
    folder = BootFolder(store.boots, run_id).path
    if folder.is_symlink():
        return None
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        file.seek(max(0, status.st_size - _MOST_BYTES))
        return redact(file.read(_MOST_BYTES).decode("utf-8", "replace"))


def log_lines(log: str, excerpt: str | None, around: int = 150, at_end: int = 300) -> list[LogLine]:
    """The lines around the first decisive one, or the last ones if none is known. `excerpt`: the decisive lines as the store has them."""
    lines = [plain(text, _LONGEST_LINE) for text in log.splitlines()]
    decisive = _decisive(lines, excerpt)
    if not decisive:
        return [LogLine(number, text, False) for number, text in enumerate(lines, 1)][-at_end:]
    first = decisive[0]
    return [LogLine(index + 1, lines[index], index in decisive) for index in range(max(0, first - around), min(len(lines), first + around))]


def _decisive(lines: Sequence[str], excerpt: str | None) -> range | None:
    """Where the excerpt stands in the log."""
    wanted = [text for text in plain(excerpt or "").splitlines() if text.strip()]
    if not wanted:
        return None
    wanted = [plain(text, _LONGEST_LINE) for text in wanted]
    for index, text in enumerate(lines):
        if text == wanted[0]:
            own = [other for other in lines[index : index + 2 * len(wanted)] if other.strip()]
            if own[: len(wanted)] == wanted:
                return range(index, index + len(wanted))
    return None
