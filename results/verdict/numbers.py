"""One number of two releases: screen, then confirm by an interleaved re-run.

Trap: every test applied once to every cell of every release finds something each day (tried on 13 nights of one unchanged binary: 0.5 % to
20 % false reports a comparison). Rule: a moved median only asks for a re-run. A change is told when
1. the medians of the boots on record moved by the floor or more (the screen),
2. the re-run of both releases, interleaved, moved by the floor or more in the same direction on its own,
3. so did all boots of the two pooled,
4. so did its median against the *level* (all boots of passing releases since the last confirmed change, the baseline's among them), and
   there the exact Mann-Whitney test gives p < 0.01, and
5. no side ran at two speeds.

Point 2 is what a slow session cannot fake, because it slows both sides; point 4 keeps one odd baseline from making news twice, and gives
the test more boots than one release has. With no earlier release the level is the baseline alone. All values are medians inside one boot;
changes are logarithms of ratios, so nothing depends on the unit and swapping the sides flips the sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from results.verdict.metrics import Metric
from results.verdict.ranks import Shift, mann_whitney_p, shift_of, smallest_p
from results.verdict.words import Verdict

MIN_BOOTS = 3
"""Boots a side before anything is said of a speed, on record and again in the re-run (M15)."""
ALPHA = 0.01
INTERVAL_LEVEL = 0.99
FEW_BOOTS = 5
"""With fewer boots a side than this a 5 % change of a noisy cell is missed more often than one time in ten."""

_SAME_SPEED = 3.0
"""A boot within so many robust standard deviations of a level ran at that level."""
_APART = 10.0
"""Two levels so many robust standard deviations apart cannot be mistaken for each other by an ordinary boot."""
_RESOLUTION = 1e-3
"""Scatter (0.1 %) below which boots count as equal."""
_TINY = 1e-9


@dataclass(frozen=True)
class Side:
    """Boots of one release under one node state: medians inside each boot, on record and in the interleaved re-run (any order)."""

    release: str
    record: tuple[float, ...]
    rerun: tuple[float, ...] = ()

    @property
    def boots(self) -> tuple[float, ...]:
        return self.record + self.rerun


@dataclass(frozen=True)
class NumberVerdict:
    """What the candidate did to one series. Changes are relative: -0.06 is 6 % lower than the baseline. None: not computed."""

    verdict: Verdict
    reason: str
    baseline: str | None
    candidate: str
    n_baseline: int = 0
    n_candidate: int = 0
    n_level: int = 0
    """Boots of the level that the test used: the baseline's and those of earlier releases at the same level."""
    n_rerun: int = 0
    """Boots on the smaller side of the interleaved re-run."""
    effect: float | None = None
    interval: tuple[float, float] | None = None
    interval_level: float | None = None
    p: float | None = None
    """Exact Mann-Whitney p against the level; None when the screen did not ask for it."""
    moved: bool = False
    """The screen asks for a re-run or asked for one."""
    boots_to_decide: int | None = None
    """Boots a side, in all, that would decide an `inconclusive` verdict; None where more boots would not."""
    differs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def judge_numbers(metric: Metric, baseline: Side, candidate: Side, earlier: Sequence[float] = ()) -> NumberVerdict:
    """Verdict on `candidate` against `baseline` (the last passing release); both sides passed the gate.

    `earlier`: boots of passing releases before the baseline back to the last confirmed change, under the same node state.
    Raises ValueError on a value that is not positive and finite.
    """
    old, new = _logs(baseline.boots), _logs(candidate.boots)
    if not old or not new:
        missing = baseline.release if not old else candidate.release
        return NumberVerdict(
            Verdict.INCONCLUSIVE,
            f"{metric.name}: no boot of {missing} has this number",
            baseline.release,
            candidate.release,
            len(old),
            len(new),
            boots_to_decide=MIN_BOOTS,
        )
    comparison = _Comparison(metric, baseline, candidate, (*earlier, *baseline.boots))
    return comparison.verdict()


@dataclass(frozen=True)
class _Comparison:
    metric: Metric
    baseline: Side
    candidate: Side
    level: tuple[float, ...]
    """The boots of the level."""

    def verdict(self) -> NumberVerdict:
        effect = shift_of(_logs(self.baseline.boots), _logs(self.candidate.boots), INTERVAL_LEVEL)
        shared = replace(self._frame(effect), warnings=self._warnings())
        if min(len(self.baseline.record), len(self.candidate.record)) < MIN_BOOTS:
            return self._too_few(shared)
        moved = median(_logs(self.candidate.record)) - median(_logs(self.baseline.record))
        if not self._reaches_floor(moved):
            return replace(shared, reason=f"{self.metric.name} moved {_percent(moved)}: below the floor of {self.metric.floor:.0%}")
        shared = replace(shared, moved=True)
        return self._not_rerun(shared, moved, effect) if shared.n_rerun < MIN_BOOTS else self._confirm(shared, moved, effect)

    def _confirm(self, shared: NumberVerdict, moved: float, pooled: Shift) -> NumberVerdict:
        sign = math.copysign(1.0, moved)
        new = _logs(self.candidate.boots)
        again = shift_of(_logs(self.baseline.rerun), _logs(self.candidate.rerun)).estimate
        level = _logs(self.level)
        against_level = median(new) - median(level)
        shared = replace(shared, p=mann_whitney_p(level, new))
        steps = {
            f"the interleaved re-run moved {_percent(again)}": again,
            f"all boots together moved {_percent(pooled.estimate)}": pooled.estimate,
            f"it moved {_percent(against_level)} against the level of the {len(self.level)} boots before it": against_level,
        }
        for why, change in steps.items():
            if not self._reaches_floor(change * sign, one_sided=True):
                return replace(shared, reason=f"{self.metric.name}: a first {_percent(moved)} was not confirmed: {why}")
        if shared.p is not None and shared.p >= ALPHA:
            return self._not_significant(shared)
        if two_speeds(_logs(self.baseline.boots), new):
            return self._two_speeds(shared)
        better = (sign > 0) == self.metric.higher_is_better
        return replace(
            shared,
            verdict=Verdict.FASTER if better else Verdict.SLOWER,
            reason=(
                f"{self.metric.name} is {_percent(pooled.estimate)} against {self.baseline.release}, {_percent(again)} in the interleaved "
                f"re-run ({shared.n_baseline} and {shared.n_candidate} boots; p {shared.p:.2g} against {shared.n_level} boots of its level)"
            ),
        )

    def _frame(self, effect: Shift) -> NumberVerdict:
        return NumberVerdict(
            verdict=Verdict.UNCHANGED,
            reason="",
            baseline=self.baseline.release,
            candidate=self.candidate.release,
            n_baseline=len(self.baseline.boots),
            n_candidate=len(self.candidate.boots),
            n_level=len(self.level),
            n_rerun=min(len(self.baseline.rerun), len(self.candidate.rerun)),
            effect=math.expm1(effect.estimate),
            interval=(math.expm1(effect.low), math.expm1(effect.high)),
            interval_level=effect.level,
        )

    def _warnings(self) -> tuple[str, ...]:
        fewest = min(len(self.baseline.boots), len(self.candidate.boots))
        return (f"few boots: {fewest} on the smaller side",) if fewest < FEW_BOOTS else ()

    def _reaches_floor(self, change: float, one_sided: bool = False) -> bool:
        return (change if one_sided else abs(change)) >= self.metric.log_floor - _TINY

    def _too_few(self, shared: NumberVerdict) -> NumberVerdict:
        on_record = f"{len(self.baseline.record)} and {len(self.candidate.record)} boots on record"
        reason = f"{self.metric.name}: {on_record}; {MIN_BOOTS} a side are needed"
        undecided = replace(shared, verdict=Verdict.INCONCLUSIVE, boots_to_decide=MIN_BOOTS, reason=reason)
        return replace(undecided, interval=None, interval_level=None)  # of one boot a side it would have no width and cover nothing

    def _not_rerun(self, shared: NumberVerdict, moved: float, pooled: Shift) -> NumberVerdict:
        """The reason names both numbers: the screen's, which asked for more, and the one beside it everywhere (`effect`).

        Few and scattered boots may have medians that moved one way while most pairs of boots moved the other: then there is no effect to
        tell yet, and no finding.
        """
        more = self._boots_missing(shared)
        undecided = replace(shared, verdict=Verdict.INCONCLUSIVE, boots_to_decide=max(shared.n_baseline, shared.n_candidate) + more)
        still = f"not yet confirmed: run {more} more boots of each release, interleaved"
        if moved * pooled.estimate < 0:
            way = f"its medians moved {_percent(moved)}, most of its boots the other way ({_percent(pooled.estimate)})"
            return replace(undecided, effect=None, interval=None, interval_level=None, reason=f"{self.metric.name}: {way}; {still}")
        reason = f"{self.metric.name} moved {_percent(pooled.estimate)} (its medians {_percent(moved)}), {still}"
        return replace(undecided, reason=reason)

    def _boots_missing(self, shared: NumberVerdict) -> int:
        """More interleaved boots of each side with which the exact test could reach p < ALPHA at all, at least MIN_BOOTS in the re-run."""
        more = max(1, MIN_BOOTS - shared.n_rerun)
        while smallest_p(shared.n_level + more, shared.n_candidate + more) >= ALPHA:
            more += 1
        return more

    def _not_significant(self, shared: NumberVerdict) -> NumberVerdict:
        boots = f"{shared.n_level} and {shared.n_candidate} boots"
        if smallest_p(shared.n_level, shared.n_candidate) < ALPHA:
            return replace(
                shared,
                reason=f"{self.metric.name}: the screen was not confirmed: p = {shared.p:.2g} with {boots}",
                warnings=(*shared.warnings, "the change is above the floor but within the scatter of the boots; more boots may tell"),
            )
        more = self._boots_missing(shared)
        return replace(
            shared,
            verdict=Verdict.INCONCLUSIVE,
            boots_to_decide=max(shared.n_baseline, shared.n_candidate) + more,
            reason=f"{self.metric.name}: {boots} cannot reach p < {ALPHA}; run {more} more of each, interleaved",
        )

    def _two_speeds(self, shared: NumberVerdict) -> NumberVerdict:
        return replace(
            shared,
            verdict=Verdict.INCONCLUSIVE,
            reason=(
                f"{self.metric.name}: some boots of one release ran at the speed of the other, and the ends of their ranges did not move: "
                "two speeds, not one step; look for what differs between the boots (node state, kernels chosen)"
            ),
        )


def two_speeds(old: Sequence[float], new: Sequence[float]) -> bool:
    """Whether the two sides (logarithms) are one mixture of two speeds rather than two speeds of two releases.

    True when the medians are far apart for the scatter of the quieter side (the other may be the mixture), a boot of one side ran at the
    level of the other, and one end of the two ranges hardly moved: a real step moves the fastest and the slowest boots alike, meeting the
    slow state more often moves only the median.
    """
    level_old, level_new = median(old), median(new)
    apart = abs(level_new - level_old)
    scatter = max(min(_robust_deviation(old), _robust_deviation(new)), _RESOLUTION)
    if apart < _APART * scatter:
        return False
    near = _SAME_SPEED * scatter
    crossed = any(abs(value - level_new) < near for value in old) or any(abs(value - level_old) < near for value in new)
    sign = math.copysign(1.0, level_new - level_old)
    ends = (sign * (max(new) - max(old)), sign * (min(new) - min(old)))
    return crossed and min(ends) < apart / 4


def _robust_deviation(values: Sequence[float]) -> float:
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)


def _logs(values: Sequence[float]) -> list[float]:
    if values and not (min(values) > 0 and all(map(math.isfinite, values))):
        raise ValueError("a number in a verdict must be positive and finite")
    return list(map(math.log, values))


def _percent(log_change: float) -> str:
    return f"{math.expm1(log_change):+.1%}"
