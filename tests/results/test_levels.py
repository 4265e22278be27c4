"""Bands of a chart are made from the medians of the cell that is looked at."""

from __future__ import annotations

import pytest

from results.levels import levels_of


def _rows(series: str, medians: list[float]) -> list[dict[str, object]]:
    return [{"series": series, "release": f"0.{number}.0", "position": number, "median": value} for number, value in enumerate(medians)]


def test_a_step_makes_two_levels_whatever_the_order_of_the_rows() -> None:
    rows = _rows("decode_c1/decode_tok_s", [100, 101, 100, 99, 80, 81, 80, 79])
    before, after = levels_of(reversed(rows))
    assert before.releases == ("0.0.0", "0.1.0", "0.2.0", "0.3.0")
    assert after.releases == ("0.4.0", "0.5.0", "0.6.0", "0.7.0")
    assert (before.level, after.level) == (pytest.approx(100, rel=0.01), pytest.approx(80, rel=0.01))


def test_each_series_has_its_own_levels_and_one_that_is_ever_zero_has_none() -> None:
    found = levels_of([*_rows("kv_cache_tokens", [10, 10]), *_rows("memory_leak_bytes", [0, 1])])
    assert [(level.series, level.level) for level in found] == [("kv_cache_tokens", pytest.approx(10))]
