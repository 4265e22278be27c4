"""Text from outside as it may be shown.

Trap: a model's answer, a log line or a model's name that is Markdown or HTML becomes a link, an image request or a script. Rule: text that
we did not write ourselves goes through here and then only to `st.text`, `st.code`, a data frame, a chart's text or our own table, never to
a Streamlit element that draws Markdown (captions, headings, labels, badges, `st.write`).
"""

from __future__ import annotations

import math
from datetime import datetime

from results.redact import plain
from results.vocabulary import SHAPE_PREFIX

BLOCK_LIMIT = 20_000


def line(text: object, limit: int = 300) -> str:
    """One bounded line without control characters."""
    if isinstance(text, str) and len(text) <= limit and text.isprintable():  # nearly all: a table has thousands
        return text
    return " ".join(plain(str(text), limit).split("\n"))


def block(text: object, limit: int = BLOCK_LIMIT) -> str:
    """Several bounded lines without control characters or terminal escapes."""
    return plain(str(text), limit)


def number(value: object, digits: int = 3, unit: str = "") -> str:
    """A number with `digits` significant digits, thousands grouped; "–" when it was not measured."""
    if value is None or not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    if isinstance(value, int) or abs(value) >= 10 ** (digits - 1):
        text = f"{value:,.0f}"
    else:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:.{min(decimals, 6)}f}"
    return f"{text} {unit}".rstrip()


def model_name(recipe: object) -> str:
    """A recipe's name, with the word that keeps random weights apart from real ones."""
    return f"{recipe} (dummy weights)" if str(recipe).startswith(SHAPE_PREFIX) else str(recipe)


def count(number_: int, noun: str) -> str:
    """`1 boot`, `2 boots`."""
    return f"{number_:,} {noun}{'' if number_ == 1 else 's'}"


def measured(name: str, value: object) -> str:
    """A number in the unit that the name of its metric ends in (`results.records`)."""
    metric = next((part for part in reversed(name.split("/")) if part != "launch_bound"), name)
    if metric.endswith("_bytes"):
        return gib(value)
    if metric.endswith("_tok_s"):
        return number(value, 4, "tok/s")
    return seconds(value) if metric.endswith("_s") else number(value, 4)


def percent(value: object) -> str:
    """A relative change such as "+3.1 %"; "–" when unknown."""
    if value is None or not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    return f"{value * 100:+.1f} %"


def gib(value: object) -> str:
    """Bytes as GiB."""
    return number(value / 2**30, 3, "GiB") if isinstance(value, (int, float)) and math.isfinite(value) else "–"


def seconds(value: object) -> str:
    """A duration: milliseconds below one second, minutes above two, hours above two."""
    if value is None or not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(value, 60)
    if minutes < 120:
        return f"{minutes:.0f} min {rest:02.0f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,.0f} h {minutes:02.0f} min"


def when(value: object) -> str:
    """A moment in UTC, to the minute."""
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else "–"


def ago(value: object, now: datetime) -> str:
    """How long before `now`, in the unit that fits; "never" for none."""
    if not isinstance(value, datetime):
        return "never"
    passed = (now - value).total_seconds()
    if passed < 90:
        return "just now"
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = round(passed / length)
        if count >= 2 or unit == "minute":
            return f"{count} {unit}s ago"
    return "just now"
