"""The explain benchmark measures what it says."""

from __future__ import annotations

from pathlib import Path

from benchmarks.explain.__main__ import CRASH_LINES, measure


def test_each_log_is_made_explained_and_timed(tmp_path: Path) -> None:
    result = measure(tmp_path, 1, 7)
    assert set(result["logs"]) == {"running_server", "all_lines_differ", "crash_at_start"}
    assert result["logs"]["running_server"]["bytes"] > 1_000_000
    assert CRASH_LINES <= result["logs"]["crash_at_start"]["lines"] <= CRASH_LINES + 5
    assert all(row["mb_per_s"] > 0 for row in result["logs"].values())
    assert list(tmp_path.iterdir()) == []
