"""Nightly re-measurements of an unchanged program, read from a file.

Trap: a repeat that is missing or broken silently shortens a night. Rule: what is not a positive finite number is left out and counted, a
file of another shape is refused with the place where it differs.

Shape: `{"source": text, "nights": [name, ...], "series": {name: [[repeat, ...] for each night]}}`; lower is better, units do not matter.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 256 * 1024 * 1024


class NightsFileError(ValueError):
    """A file that is not of the shape above."""


@dataclass(frozen=True)
class Nights:
    """Repeats of every series on every night; `excluded` counts the repeats that were no positive finite numbers."""

    source: str
    nights: tuple[str, ...]
    series: dict[str, tuple[tuple[float, ...], ...]]
    excluded: int


def read_nights(path: Path) -> Nights:
    """Read a file of the shape above. Raises NightsFileError, OSError."""
    if path.stat().st_size > MAX_BYTES:
        raise NightsFileError(f"{path}: larger than {MAX_BYTES} bytes")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NightsFileError(f"{path}: no JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("series"), dict) or not isinstance(content.get("nights"), list):
        raise NightsFileError(f"{path}: expected an object with 'nights' (a list) and 'series' (an object)")
    nights = tuple(str(night) for night in content["nights"])
    series: dict[str, tuple[tuple[float, ...], ...]] = {}
    excluded = 0
    for name, rows in content["series"].items():
        if not isinstance(rows, list) or len(rows) != len(nights) or not all(isinstance(row, list) for row in rows):
            raise NightsFileError(f"{path}: series {name!r} is not one list of repeats for each of the {len(nights)} nights")
        kept = tuple(tuple(float(value) for value in row if _is_measurement(value)) for row in rows)
        excluded += sum(map(len, rows)) - sum(map(len, kept))
        series[name] = kept
    return Nights(str(content.get("source", "")), nights, series, excluded)


def _is_measurement(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
