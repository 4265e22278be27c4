"""Release days: what each method sees of one series on one day.

Trap: methods compared on different draws are compared on luck. Rule: one seeded draw for each series, day and number of boots; every method
and every planted shift gets that same draw.

Protocol: each repeat of a night plays one boot. Release days are nights 6 to N of a series. On a day, 2R repeats of each night so far are
drawn without replacement; the first R are the boots on record, and the other R of the newest and the previous night are the confirming
re-run. A shift is planted by multiplying all 2R draws of the newest night, so lower stays better and a planted shift is a slowdown.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.verdict.nights import Nights

FIRST_DAY = 5
"""Index of night 6, the first release day."""

Values = tuple[float, ...]


@dataclass(frozen=True)
class Day:
    """One series on one release day: boots on record of each night so far (newest last) and the re-run of the last two nights."""

    series: str
    night: str
    record: tuple[Values, ...]
    rerun_before: Values
    rerun_newest: Values

    @property
    def before(self) -> Values:
        """All boots of the previous night."""
        return self.record[-2] + self.rerun_before

    @property
    def newest(self) -> Values:
        """All boots of the newest night."""
        return self.record[-1] + self.rerun_newest

    @property
    def per_night(self) -> tuple[Values, ...]:
        """All boots of each night so far: what a method that knows no re-run is given."""
        return (*self.record[:-2], self.before, self.newest)


def planted(day: Day, shift: float) -> Day:
    """The same day with every boot of the newest night multiplied by 1 + shift."""
    newest = tuple(value * (1 + shift) for value in day.record[-1])
    return replace(day, record=(*day.record[:-1], newest), rerun_newest=tuple(value * (1 + shift) for value in day.rerun_newest))


def release_days(nights: Nights, boots: int, seed: int) -> Iterator[Day | None]:
    """Every release day of every series; None for a day on which a night has fewer than 2 x `boots` repeats."""
    for name, rows in nights.series.items():
        for index in range(FIRST_DAY, len(rows)):
            if min(map(len, rows[: index + 1])) < 2 * boots:
                yield None
                continue
            chance = random.Random(f"{seed}/{name}/{index}/{boots}")
            drawn = [tuple(chance.sample(row, 2 * boots)) for row in rows[: index + 1]]
            yield Day(
                series=name,
                night=nights.nights[index],
                record=tuple(row[:boots] for row in drawn),
                rerun_before=drawn[-2][boots:],
                rerun_newest=drawn[-1][boots:],
            )
