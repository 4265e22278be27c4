"""What uv's output says about a failed install: whose fault it is, in the few lines that decide it.

Trap: a full disk, a cut network and a release that contradicts itself all end as "install failed", and 500 lines hide which. Rule: the
cause is read from uv 0.13.9's own texts, and only the lines from its first `error:` on are kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from results.redact import plain, redact

Cause = Literal["disk_full", "busy", "network", "torch_cpu_missing", "python", "not_found", "build", "conflict", "unknown"]

_MOST_LINES = 12
_LONGEST_LINE = 500
_CAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    ("disk_full", re.compile(r"No space left on device|Disk quota exceeded|os error 28\b|os error 122\b")),
    ("busy", re.compile(r"Bytecode timed out")),
    (
        "network",
        re.compile(
            r"error sending request|dns error|client error \(|HTTP status|Connection refused|Connection reset|connect error|timed out|"
            r"invalid peer certificate|Network connectivity is disabled|Request failed after|Failed to (?:fetch|download)"
        ),
    ),
    ("python", re.compile(r"no wheels with a matching Python|does not satisfy Python|No interpreter found")),
    ("torch_cpu_missing", re.compile(r"no version of torch[^\n]{0,200}\+cpu\b|torch[^\s,]{0,200}==[0-9.]{1,20}\+cpu was not found")),
    ("build", re.compile(r"Failed to build|build backend returned an error")),
    (
        "not_found",
        re.compile(r"was not found in the (?:package registry|provided package locations)|there (?:is no version|are no versions) of"),
    ),
    ("conflict", re.compile(r"No solution found")),
)


@dataclass(frozen=True)
class Failure:
    """`lines` are the decisive lines, without escapes and credentials."""

    cause: Cause
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def diagnose(messages: Sequence[str]) -> Failure:
    """Read the standard error of a failed uv command."""
    start = next((i for i, line in enumerate(messages) if line.lstrip().startswith("error:")), max(0, len(messages) - _MOST_LINES))
    decisive = [plain(redact(line), _LONGEST_LINE) for line in messages[start:] if line.strip()]
    if len(decisive) > _MOST_LINES:
        decisive = [*decisive[:4], "…", *decisive[-(_MOST_LINES - 5) :]]
    text = "\n".join(plain(line, 4 * _LONGEST_LINE) for line in messages[start:])
    cause: Cause = next((name for name, pattern in _CAUSES if pattern.search(text)), "unknown")
    return Failure(cause, tuple(decisive) or ("uv gave no reason",))
