"""One table of what a number means: unit, direction, and the smallest change worth telling.

Trap: a step detector that only knows "up is worse" reports the fix of a throughput as its regression. Rule: direction and floor stand here
and nowhere else, and changes are relative (logarithms of ratios).

A series is named `WORKLOAD/METRIC` or, for a canary, `WORKLOAD/METRIC/launch_bound`: a canary's speed is launch overhead, so it is a series
of its own for every metric and never joins a model's. A number of the whole boot (memory, context, drift) is named by its metric alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

LAUNCH_BOUND = "launch_bound"
RECALLED_ALL = "recalled_all"
"""Flag of a boot that recalled everything it was asked: how far its context reaches was not found out."""
GIB = 2.0**30


class UnknownMetricError(ValueError):
    """A series name whose metric is not in the table."""


@dataclass(frozen=True)
class Metric:
    """`floor` is the smallest relative change that is ever told: 0.03 means 3 %.

    `resolution`: values below it count as equal to it, for numbers whose zero is ordinary (a leak, a drift), where a ratio says nothing.
    `at_least`: flag of boots whose value is a lower bound, because nothing more was asked of them; two releases are compared up to the
    smallest such bound.
    """

    name: str
    unit: str
    higher_is_better: bool
    floor: float
    resolution: float = 0.0
    at_least: str | None = None

    @property
    def log_floor(self) -> float:
        """The floor as a log ratio, so that swapping two releases only flips the sign."""
        return math.log1p(self.floor)


METRICS = {
    metric.name: metric
    for metric in (
        Metric("decode_tok_s", "tok/s", True, 0.03),
        Metric("aggregate_tok_s", "tok/s", True, 0.03),
        Metric("e2e_tok_s", "tok/s", True, 0.03),
        Metric("prefill_tok_s", "tok/s", True, 0.05),
        Metric("ttft_s", "s", False, 0.05),
        Metric("e2e_s", "s", False, 0.03),
        Metric("itl_p50_s", "s", False, 0.03),
        Metric("itl_p90_s", "s", False, 0.05),
        Metric("itl_p99_s", "s", False, 0.10),
        Metric("memory_used_bytes", "byte", False, 0.05, 2 * GIB),
        Metric("memory_peak_used_bytes", "byte", False, 0.05, 2 * GIB),
        Metric("memory_leak_bytes", "byte", False, 1.0, GIB / 2),
        Metric("swap_used_bytes", "byte", False, 1.0, GIB),
        Metric("model_memory_bytes", "byte", False, 0.03, GIB / 4),
        Metric("kv_cache_bytes", "byte", True, 0.03, GIB / 4),
        Metric("kv_cache_tokens", "token", True, 0.03),
        Metric("verified_context_tokens", "token", True, 0.03, 1.0, RECALLED_ALL),
        Metric("nll_drift_rms", "nat/token", False, 0.25, 1e-3),
        Metric("margin_drift_rms", "nat", False, 0.25, 1e-2),
    )
}


@lru_cache(maxsize=1024)
def series_name(metric: str, *, workload: str, launch_bound: bool) -> str:
    """Name of the series that `metric` of `workload` belongs to. Raises UnknownMetricError."""
    _known(metric)
    return "/".join([workload, metric, LAUNCH_BOUND] if launch_bound else [workload, metric])


def counted(series: str, value: float) -> float:
    """`value` as a verdict counts it: never below the metric's resolution. Raises UnknownMetricError."""
    return max(value, metric_of(series).resolution)


@lru_cache(maxsize=1024)
def metric_of(series: str) -> Metric:
    """The metric of a series name; a bare metric name is its own series. Raises UnknownMetricError."""
    parts = series.split("/")
    if parts[-1] == LAUNCH_BOUND:
        parts.pop()
    return _known(parts[-1] if parts else series)


def _known(metric: str) -> Metric:
    try:
        return METRICS[metric]
    except KeyError:
        raise UnknownMetricError(f"no metric {metric!r} in the verdict table; known: {', '.join(sorted(METRICS))}") from None
