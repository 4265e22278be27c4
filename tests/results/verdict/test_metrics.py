from __future__ import annotations

import math

import pytest

from results.verdict.metrics import METRICS, UnknownMetricError, metric_of, series_name


@pytest.mark.parametrize(("name", "higher", "floor"), [("decode_tok_s", True, 0.03), ("ttft_s", False, 0.05), ("itl_p50_s", False, 0.03)])
def test_direction_and_floor_of_the_main_metrics(name: str, higher: bool, floor: float) -> None:
    assert (METRICS[name].higher_is_better, METRICS[name].floor) == (higher, floor)


def test_rates_and_room_are_better_higher_and_the_rest_lower() -> None:
    for metric in METRICS.values():
        assert metric.higher_is_better == (metric.unit in ("tok/s", "token") or metric.name == "kv_cache_bytes")


def test_the_floor_of_a_log_ratio_is_the_relative_floor() -> None:
    assert math.expm1(METRICS["decode_tok_s"].log_floor) == pytest.approx(0.03)


def test_a_canary_speed_is_a_series_of_its_own() -> None:
    model, canary = (series_name("decode_tok_s", workload="chat", launch_bound=bound) for bound in (False, True))
    assert model != canary
    assert metric_of(model) is metric_of(canary) is METRICS["decode_tok_s"]


@pytest.mark.parametrize("series", ["", "chat/tokens", "launch_bound", "chat/decode_tok_s/x"])
def test_an_unknown_metric_is_refused_by_name(series: str) -> None:
    with pytest.raises(UnknownMetricError, match="known: "):
        metric_of(series)
