"""Boots that were made are compared without starting anything."""

from __future__ import annotations

import pytest

from benchmarks.truth.engines import kept
from results.records import EngineCounterRecord
from tests.results.conftest import MakeBoot, make_boot, store

__all__ = ["make_boot", "store"]  # fixtures


def test_a_boot_that_was_made_is_compared_from_its_folder(make_boot: MakeBoot) -> None:
    boot = make_boot()
    boot.append([EngineCounterRecord(boot.run_id, "decode_c1", "ttft_mean_s", 0.09)])
    (row,) = kept(boot.path)
    assert (row.engine, row.workload, row.requests) == ("vllm==0.32.0", "decode_c1", 3)
    assert (row.ttft_mean_s, row.engine_ttft_mean_s) == (pytest.approx(0.1), 0.09)
    assert row.itl_mean_s == pytest.approx((1 / 100 + 1 / 101 + 1 / 102) / 3)


def test_a_boot_that_was_never_timed_is_said(make_boot: MakeBoot) -> None:
    with pytest.raises(ValueError, match="no timed samples"):
        kept(make_boot(decode=()).path)
