"""Workloads are named, frozen shapes."""

from __future__ import annotations

import pytest

from suites.workloads import DECODE_C1, DECODE_C8, STANDARD_WORKLOADS, Workload


def test_standard_workloads_are_the_published_shapes() -> None:
    """Changing one starts a new series: it needs a new name and a higher `PROTOCOL_VERSION`."""
    assert STANDARD_WORKLOADS == (DECODE_C1, DECODE_C8)
    assert Workload("decode_c1", 128, 256, 1, 5) == DECODE_C1
    assert Workload("decode_c8", 128, 256, 8, 5) == DECODE_C8
    assert DECODE_C8.total_tokens == 384


@pytest.mark.parametrize("name", ["", "Decode", "1c", "a/b", "a" * 41, "a b"])
def test_unusable_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="workload name"):
        Workload(name, 1, 1, 1, 1)


@pytest.mark.parametrize("position", range(4))
def test_count_below_one_is_refused(position: int) -> None:
    counts = [1, 1, 1, 1]
    counts[position] = 0
    with pytest.raises(ValueError, match="must be at least 1"):
        Workload("w", *counts)
