from __future__ import annotations

from benchmarks.planning.__main__ import CELLS, measure


def test_ten_thousand_cells_are_planned_and_all_are_different() -> None:
    found = measure()
    assert found["cells"] >= CELLS
    assert found["distinct_ids"] == found["cells"]
    assert 0 < found["unsupported"] < found["cells"]
