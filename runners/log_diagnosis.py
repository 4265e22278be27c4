"""What a boot that failed died of, from its log: the outcome, a sentence, a signature and the decisive lines.

Trap: "the server exited with code 1" is stored, and six weeks later nobody knows of what. Rule: the log is read for the first cause; what
the kernel or our own limits already proved (out of memory, a taken port) stays, and everything else takes the outcome that the cause names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

from results.redact import plain
from results.vocabulary import Outcome
from runners.engines.known_issues import cited
from runners.engines.signatures import classify
from runners.process.log import read_end

_LONGEST_LINE = 10_000
_BEFORE, _AFTER = 8, 6
_END_LINES = 25
_MOST_ISSUES = 3


@dataclass(frozen=True)
class BootDiagnosis:
    """Conclusion of a failed boot; `signature` and `excerpt` are None where no log says anything."""

    outcome: Outcome
    reason: str
    signature: str | None = None
    excerpt: str | None = None


def diagnose(engine: str, version: str, log: Path, kind: Outcome, reason: str) -> BootDiagnosis:
    """Read the boot's log for the first cause. `kind` is what was seen from outside: crash, hang, oom or infrastructure."""
    if not log.exists():
        return BootDiagnosis(kind, reason)
    with log.open(encoding="utf-8", errors="replace") as lines:
        found = classify(engine, version, _bounded(lines))
    if found is None:
        return BootDiagnosis(kind, reason, excerpt="\n".join(plain(read_end(log)).splitlines()[-_END_LINES:]) or None)
    outcome = found.outcome if kind is Outcome.CRASH and found.outcome is not None else kind
    issues = ", ".join(f"{issue.repo}#{issue.number}" for issue in cited([found.source])[:_MOST_ISSUES])
    reason = reason.rstrip(".")
    sentence = f"{reason}. {found.meaning} Its log says: {plain(found.excerpt, 300)}{f' (reported: {issues})' if issues else ''}"
    return BootDiagnosis(outcome, sentence, found.signature, _around(log, found.line_no))


def _around(log: Path, line_no: int) -> str:
    with log.open(encoding="utf-8", errors="replace") as lines:
        return "".join(plain(line) for line in islice(_bounded(lines), max(0, line_no - 1 - _BEFORE), line_no + _AFTER))


def _bounded(lines: TextIO) -> Iterator[str]:
    """Lines of a log that may hold none: one is never longer than `_LONGEST_LINE` characters."""
    while line := lines.readline(_LONGEST_LINE):
        yield line
