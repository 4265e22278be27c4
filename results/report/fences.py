"""Text from outside in Markdown: shown, never obeyed.

Trap: a model's answer closes the fence with three backticks of its own, and what follows becomes a link, an image that reports who reads
it, a mention that notifies a stranger, or HTML. Rule: text from outside stands in a fence or code span that is longer than any run of
backticks in it (CommonMark 0.31, sections 4.5 and 6.1); nothing is escaped by hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from results.redact import plain

_TICKS = re.compile(r"`+")
_WHITE = re.compile(r"\s+")


def fenced(text: str, limit: int, language: str = "text") -> str:
    """A fenced block of at most `limit` characters of `text`. `language` is ours, never from outside."""
    shown = plain(text, limit)
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}{language}\n{shown.rstrip()}\n{fence}"


def code(text: str, limit: int = 200) -> str:
    """A code span on one line; the empty text is a dash."""
    shown = _WHITE.sub(" ", plain(text, limit)).strip()
    if not shown:
        return "–"
    fence = "`" * (_longest_run(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}"


def cell(text: str, limit: int = 200) -> str:
    """A code span inside a table: a bar, which would end the cell even within a span (GFM 0.29, section 4.10), becomes a look-alike."""
    return code(text.replace("|", "\N{BROKEN BAR}"), limit)


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table. Every cell of `rows` is already safe (`cell`, or words of ours)."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _longest_run(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)
