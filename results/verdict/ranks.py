"""Exact rank statistics for small samples with ties: the Mann-Whitney test and the Hodges-Lehmann shift with its interval.

Trap: the exact null distribution of `scipy.stats.mannwhitneyu` assumes that no two values are equal, and rounded speeds often are.
Rule: without ties scipy answers; with ties every way of dealing the given midranks is counted. Never the normal approximation at the
sizes we decide on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
import scipy
from numpy.typing import NDArray

MAX_EXACT_PAIRS = 4000
"""With more pairs of values than this, test and interval use the normal approximation (with tie correction)."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Shift:
    """How far `b` lies above `a`: the median of all differences b - a, and the exact interval around it.

    `level` is the coverage that the sizes allow: at least the one asked for if it can be reached (3 against 3 values reach 0.9 at most).
    """

    estimate: float
    low: float
    high: float
    level: float


def mann_whitney_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided p of the hypothesis that `a` and `b` come from one distribution (exact up to MAX_EXACT_PAIRS pairs).

    Mann and Whitney 1947; with ties the permutation distribution of the midrank sum. Raises ValueError on an empty side.
    """
    if not a or not b:
        raise ValueError("a rank test needs at least one value on each side")
    if len(a) * len(b) > MAX_EXACT_PAIRS:
        return float(scipy.stats.mannwhitneyu(a, b, method="asymptotic").pvalue)
    together = [*a, *b]
    if len(set(together)) == len(together):
        return float(scipy.stats.mannwhitneyu(a, b, method="exact").pvalue)
    return _tied_p(together, len(a))


def _tied_p(together: Sequence[float], size_a: int) -> float:
    doubled = np.rint(2 * scipy.stats.rankdata(together)).astype(int)
    size = min(size_a, len(together) - size_a)
    side = doubled[:size_a] if size == size_a else doubled[size_a:]
    counts = _sums_of_choices(tuple(sorted(doubled.tolist())), size)
    at = int(side.sum())
    return float(min(1.0, 2 * min(counts[: at + 1].sum(), counts[at:].sum()) / counts.sum()))


@lru_cache(maxsize=256)
def _sums_of_choices(values: tuple[int, ...], size: int) -> Array:
    """How many ways there are to choose `size` of the ascending `values` with sum s, for each s (index)."""
    top = sum(values[-size:])
    ways = np.zeros((size + 1, top + 1))
    ways[0, 0] = 1.0
    for value in values:
        ways[1:, value:] += ways[:-1, : top + 1 - value].copy()
    counts: Array = ways[size].copy()
    return counts


def smallest_p(size_a: int, size_b: int) -> float:
    """The smallest two-sided p that two sides of these sizes can reach: complete separation."""
    return min(1.0, 2 / comb(size_a + size_b, size_a))


def shift_of(a: Sequence[float], b: Sequence[float], level: float = 0.99) -> Shift:
    """Hodges-Lehmann shift of `b` against `a` with the exact interval of Lehmann (1963): order statistics of all differences.

    With ties the interval is conservative. Raises ValueError on an empty side.
    """
    if not a or not b:
        raise ValueError("a shift needs at least one value on each side")
    differences = np.sort(np.subtract.outer(np.asarray(b, float), np.asarray(a, float)).ravel())
    rank, covered = _interval_rank(len(a), len(b), level)
    middle = (float(differences[(len(differences) - 1) // 2]) + float(differences[len(differences) // 2])) / 2
    return Shift(middle, float(differences[rank]), float(differences[-1 - rank]), covered)


@lru_cache(maxsize=1024)
def _interval_rank(size_a: int, size_b: int, level: float) -> tuple[int, float]:
    """(index of the lower end among the sorted differences, coverage): the narrowest interval that covers `level`, else the widest."""
    small, large = sorted((size_a, size_b))
    if small * large > MAX_EXACT_PAIRS:
        spread = float(np.sqrt(small * large * (small + large + 1) / 12))
        return max(0, int(small * large / 2 + float(scipy.stats.norm.ppf((1 - level) / 2)) * spread)), level
    counts = _sums_of_choices(tuple(range(1, small + large + 1)), small)[small * (small + 1) // 2 :]
    tail = np.cumsum(counts) / counts.sum()
    rank = max(0, int(np.searchsorted(tail, (1 - level) / 2, side="right")) - 1)
    return rank, float(1 - 2 * tail[rank])
