"""Counting what each method told, with denominators.

Trap: "0 %" of a handful. Rule: every rate carries its counts and the exact 95 % interval (Clopper and Pearson 1934); a planted slowdown
told as a speed-up is no hit and is counted by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from benchmarks.verdict.days import Day, planted
from benchmarks.verdict.methods import Method

BATCH = 200


@dataclass(frozen=True)
class Count:
    """One method on one set of days: `told` changes in the right direction (any direction when nothing was planted), of `days`."""

    data: str
    method: str
    boots: int
    shift: float
    told: int
    wrong_way: int
    days: int
    told_on: tuple[tuple[str, str], ...] = ()
    """(series, night) of each false alarm; empty where something was planted."""

    @property
    def percent(self) -> float | None:
        return 100 * self.told / self.days if self.days else None

    @property
    def interval_percent(self) -> tuple[float, float] | None:
        if not self.days:
            return None
        interval = binomtest(self.told, self.days).proportion_ci(0.95, method="exact")
        return 100 * float(interval.low), 100 * float(interval.high)


def count(
    data: str, days: Sequence[Day], methods: Iterable[Method], shifts: Iterable[float], boots: int, advance: Callable[[int], None]
) -> list[Count]:
    """Ask every method about every day under every shift; `advance` is told how many questions were answered."""
    counts: list[Count] = []
    for shift in shifts:
        shifted = [planted(day, shift) for day in days]
        for method in methods:
            answers: list[int] = []
            for start in range(0, len(shifted), BATCH):
                answers += method.judge_all(shifted[start : start + BATCH])
                advance(min(BATCH, len(shifted) - start))
            counts.append(_counted(data, method.name, shifted, answers, boots, shift))
    return counts


def _counted(data: str, method: str, days: Sequence[Day], answers: Sequence[int], boots: int, shift: float) -> Count:
    if shift == 0:
        told_on = tuple((day.series, day.night) for day, answer in zip(days, answers, strict=True) if answer)
        return Count(data, method, boots, shift, len(told_on), 0, len(days), told_on)
    return Count(data, method, boots, shift, sum(answer > 0 for answer in answers), sum(answer < 0 for answer in answers), len(days))
