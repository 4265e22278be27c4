"""Synthetic release days with a known truth, for choosing between variants of a rule.

Trap: a rule tuned on one file knows that file. Rule: between variants of our rule this grid decides. It does not make the shipped data file
held out: README.md says which ideas came from looking at that file.

A session adds one offset to all its boots (drift), and every night is a session of its own. The re-run is a session too, shared by both
releases, so its offset cancels; the nights do not have that luck. Scatter inside a session comes in six kinds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.verdict.days import Day, Values

SLOW_STATE = 0.15
"""How much slower a boot in the hidden slow state of kind `two_states` is."""


@dataclass(frozen=True)
class Scenario:
    """`scatter`: standard deviation inside a session; `drift`: of the session offsets, which remember the one before by `memory`."""

    kind: str
    scatter: float
    drift: float
    memory: float

    @property
    def name(self) -> str:
        drift = f", drift {self.drift:.0%}" if self.drift else ""
        return f"{self.kind} {self.scatter:.1%}{drift}"


def grid() -> list[Scenario]:
    """Six kinds of scatter x three sizes x (no drift, slow drift, independent sessions)."""
    return [
        Scenario(kind, scatter, drift, memory)
        for kind in _KINDS
        for scatter in (0.005, 0.01, 0.02)
        for drift, memory in ((0.0, 0.0), (0.01, 0.7), (0.02, 0.0))
    ]


def synthetic_days(scenario: Scenario, boots: int, count: int, seed: int) -> Iterator[Day]:
    """`count` release days after 5 to 12 earlier nights, nothing planted."""
    for number in range(count):
        chance = random.Random(f"{seed}/{scenario}/{boots}/{number}")
        offset = 0.0
        record: list[Values] = []
        for _ in range(chance.randint(6, 13)):
            fresh = chance.gauss(0.0, scenario.drift)
            offset = scenario.memory * offset + math.sqrt(1 - scenario.memory**2) * fresh
            record.append(_session(scenario, boots, offset, chance))
        shared = chance.gauss(0.0, scenario.drift)
        slow_share = _slow_share(scenario, chance)
        rerun = [_boots(scenario, boots, shared, slow_share, chance) for _ in range(2)]
        yield Day(scenario.name, str(number), tuple(record), rerun[0], rerun[1])


def _session(scenario: Scenario, boots: int, offset: float, chance: random.Random) -> Values:
    return _boots(scenario, boots, offset, _slow_share(scenario, chance), chance)


def _slow_share(scenario: Scenario, chance: random.Random) -> float:
    """Share of boots in the slow state, one for each session, for the kinds that have one."""
    return {"two_states": chance.betavariate(0.6, 2.5), "bimodal": chance.betavariate(1.0, 3.0)}.get(scenario.kind, 0.0)


def _boots(scenario: Scenario, boots: int, offset: float, slow_share: float, chance: random.Random) -> Values:
    draw = _KINDS[scenario.kind]
    return tuple(math.exp(offset + draw(scenario.scatter, slow_share, chance)) for _ in range(boots))


def _gaussian(scatter: float, _: float, chance: random.Random) -> float:
    return chance.gauss(0.0, scatter)


def _heavy_tailed(scatter: float, _: float, chance: random.Random) -> float:
    """Student t with 3 degrees of freedom, scaled to this standard deviation."""
    return scatter * chance.gauss(0.0, 1.0) / math.sqrt(chance.gammavariate(1.5, 2.0))


def _slow_outliers(scatter: float, _: float, chance: random.Random) -> float:
    """One boot in eight is late by four times the scatter on average."""
    late = chance.expovariate(1 / (4 * scatter)) if chance.random() < 0.125 else 0.0
    return chance.gauss(0.0, scatter / 2) + late


def _slow_fifth(scatter: float, _: float, chance: random.Random) -> float:
    """One boot in five is slower by 6 %, always."""
    return chance.gauss(0.0, scatter / 2) + (chance.gauss(0.06, 0.01) if chance.random() < 0.2 else 0.0)


def _bimodal(scatter: float, slow_share: float, chance: random.Random) -> float:
    """Two speeds three scatters apart, in a proportion that each session draws anew."""
    return chance.gauss(0.0, scatter / 2) + (3 * scatter if chance.random() < slow_share else 0.0)


def _two_states(scatter: float, slow_share: float, chance: random.Random) -> float:
    """A hidden slow state, met in a proportion that each session draws anew."""
    return chance.gauss(0.0, scatter / 2) + (SLOW_STATE if chance.random() < slow_share else 0.0)


_KINDS: dict[str, Callable[[float, float, random.Random], float]] = {
    "gaussian": _gaussian,
    "heavy_tailed": _heavy_tailed,
    "slow_outliers": _slow_outliers,
    "slow_fifth": _slow_fifth,
    "bimodal": _bimodal,
    "two_states": _two_states,
}
