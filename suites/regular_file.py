"""Whether a path that a user gave can be read to an end.

Trap: a named pipe has no end until somebody writes to it, and `/dev/zero` has none at all: the program hangs, or eats the memory. Rule:
what a user names to be read must be a regular file, and everything else is refused by what it is.
"""

from __future__ import annotations

import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "is a folder"),
    (stat.S_ISFIFO, "is a pipe, which has no end of its own"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
    (stat.S_ISSOCK, "is a socket"),
)


def not_regular(path: Path) -> str | None:
    """Why `path` is no regular file (links are followed), as the end of a sentence; None if it is one. Raises OSError if it is absent."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return None
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "is no regular file")
