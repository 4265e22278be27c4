"""The levels that the numbers of a cell ran at, for the bands of a chart.

Trap: bands of every number of every cell, stored with each boot, cost more than all its verdicts, and next to none is ever looked at.
Rule: they are worked out from the stored medians of the one cell that somebody looks at; no verdict reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from results.verdict.segments import segment


@dataclass(frozen=True)
class Level:
    """Neighbouring releases that ran at one level, oldest first; `spread` is the mean relative deviation from it."""

    series: str
    releases: tuple[str, ...]
    level: float
    spread: float


def levels_of(numbers: Iterable[Mapping[str, Any]]) -> list[Level]:
    """Bands of each series over the medians of the passing releases, oldest first. `numbers` are rows of the view `numbers` of one cell.

    Node states are mixed: a band shows what was measured, a verdict says why. A series that is ever zero or less has none.
    """
    by_series: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(numbers, key=lambda row: (row["series"], row["position"])):
        by_series.setdefault(row["series"], []).append(row)
    return [level for series, rows in by_series.items() for level in _bands(series, rows)]


def _bands(series: str, rows: list[Mapping[str, Any]]) -> list[Level]:
    medians = [row["median"] for row in rows]
    return [
        Level(series, tuple(row["release"] for row in rows[band.start : band.stop]), band.level, band.spread)
        for band in (segment(medians) if min(medians) > 0 else ())
    ]
