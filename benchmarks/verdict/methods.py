"""Our rule and every peer's, behind one question: did the newest night change, and which way?

Trap: a peer judged by a bad copy of its rule proves nothing. Rule: each peer is its own package where that can be installed (asv here,
Otava in an environment of its own), else its published rule in our words; each gets all boots of the day, also those of the re-run, as
boots of their night. Thresholds are the peer's own defaults unless its name says otherwise; asv and Otava get our floor (3 %).

A told change is +1 (slower) or -1 (faster); 0 is silence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, quantiles, stdev

from asv.step_detect import detect_regressions, detect_steps
from scipy.stats import mannwhitneyu, t, ttest_ind

from benchmarks.verdict.days import Day
from results.verdict.metrics import Metric
from results.verdict.numbers import Side, judge_numbers
from results.verdict.words import Verdict

FLOOR = 0.03
OURS = "sparkproof"
_DURATION = Metric("duration", "ns/op", higher_is_better=False, floor=FLOOR)


@dataclass(frozen=True)
class Method:
    """`judge_all` answers a batch, one answer for each day in order."""

    name: str
    rule: str
    judge_all: Callable[[Sequence[Day]], list[int]]


def _each(judge: Callable[[Day], int]) -> Callable[[Sequence[Day]], list[int]]:
    return lambda days: [judge(day) for day in days]


def ours(day: Day) -> int:
    """The verdict engine, with the earlier nights as the level."""
    return _told(day, [value for night in day.record[:-2] for value in night])


def ours_without_history(day: Day) -> int:
    """The verdict engine with nothing but the two releases."""
    return _told(day, [])


def _told(day: Day, earlier: Sequence[float]) -> int:
    verdict = judge_numbers(
        _DURATION, Side("before", day.record[-2], day.rerun_before), Side("newest", day.record[-1], day.rerun_newest), earlier
    )
    return {Verdict.SLOWER: 1, Verdict.FASTER: -1}.get(verdict.verdict, 0)


def screen_alone(day: Day) -> int:
    """Our screen without a re-run."""
    return _past(math.log(median(day.record[-1]) / median(day.record[-2])), math.log1p(FLOOR))


def fixed_two_percent(day: Day) -> int:
    """The newest single run against one run before it."""
    return _past(day.record[-1][0] / day.record[-2][0] - 1, 0.02)


def welch(day: Day) -> int:
    """Welch's t test between neighbours, p < 0.01."""
    return _sign(fmean(day.newest) - fmean(day.before)) if ttest_ind(day.before, day.newest, equal_var=False).pvalue < 0.01 else 0


def mann_whitney(day: Day) -> int:
    """Mann-Whitney between neighbours, p < 0.01, no floor."""
    if mannwhitneyu(day.before, day.newest).pvalue >= 0.01:
        return 0
    return _sign(median(day.newest) - median(day.before))


def conbench(day: Day) -> int:
    """Look-back z-score: the newest mean against mean and standard deviation of the means before it, |z| > 5."""
    past = [fmean(night) for night in day.per_night[:-1]]
    spread = stdev(past)
    change = fmean(day.newest) - fmean(past)
    return _past(change / spread, 5.0) if spread else _sign(change)


def lnt(day: Day) -> int:
    """Best of the newest against the nearest sample before it: over 1 %, Mann-Whitney p < 0.05, over 2.576 standard deviations."""
    current = min(day.newest)
    change = min((current - value for value in day.before), key=abs)
    if abs(change) < 0.01 * (current - change) or mannwhitneyu(day.newest, day.before).pvalue >= 0.05:
        return 0
    return _past(change, 2.576 * stdev(day.newest))


def rustc_perf(day: Day) -> int:
    """Relative change beyond the fence Q3 + 3 IQR of the absolute relative changes before it."""
    levels = [median(night) for night in day.per_night]
    changes = [later / earlier - 1 for earlier, later in pairwise(levels)]
    lower, _, upper = quantiles([abs(change) for change in changes[:-1]], n=4, method="inclusive")
    return _past(changes[-1], upper + 3 * (upper - lower))


def inference_doctor(threshold: float) -> Callable[[Day], int]:
    """FAIL when the 90 % Welch interval of the log ratio of means lies wholly past the threshold; a FAIL is always a slowdown."""

    def judge(day: Day) -> int:
        old, new = day.before, day.newest
        parts = [(stdev(side) / fmean(side)) ** 2 / len(side) for side in (old, new)]
        error = sum(parts)
        ratio = math.log(fmean(new) / fmean(old))
        if not error:
            return int(ratio >= math.log1p(threshold))
        freedom = error**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (old, new), strict=True))
        return int(ratio - t.ppf(0.95, freedom) * math.sqrt(error) >= math.log1p(threshold))

    return judge


def asv_steps(day: Day) -> int:
    """asv's own step detection on the medians of the nights; it reports only steps up."""
    steps = detect_steps([median(night) for night in day.per_night])
    _, _, regressions = detect_regressions(steps, threshold=FLOOR)
    return int(any(after == len(day.record) - 1 for _, after, _, _ in regressions or ()))


def _sign(change: float) -> int:
    return (change > 0) - (change < 0)


def _past(change: float, limit: float) -> int:
    return _sign(change) if abs(change) >= limit else 0


METHODS = (
    Method(OURS, "results.verdict.numbers: screen, interleaved re-run, level, exact Mann-Whitney p < 0.01, two speeds", _each(ours)),
    Method(f"{OURS}, no history", "the same with nothing known before the previous release", _each(ours_without_history)),
    Method("screen alone", "median of the boots on record moved by 3 % or more", _each(screen_alone)),
    Method("asv 0.6 steps", "asv.step_detect on medians, threshold 3 % (slowdowns only)", _each(asv_steps)),
    Method("Welch p<.01", "Welch's t test between neighbours", _each(welch)),
    Method("Mann-Whitney p<.01", "Mann-Whitney between neighbours, no floor", _each(mann_whitney)),
    Method("conbench z=5", "newest mean against mean and deviation of the means before", _each(conbench)),
    Method("LLVM LNT", "best against nearest sample: 1 %, Mann-Whitney p < 0.05, 2.576 deviations", _each(lnt)),
    Method("rustc-perf fence", "relative change beyond Q3 + 3 IQR of the changes before", _each(rustc_perf)),
    Method(
        "inference-doctor 10%",
        "90 % Welch interval of the log ratio wholly past 10 % (its default; slowdowns only)",
        _each(inference_doctor(0.10)),
    ),
    Method("inference-doctor 3%", "the same with our floor as its threshold", _each(inference_doctor(0.03))),
    Method("fixed 2%", "newest single run against one run before", _each(fixed_two_percent)),
)
