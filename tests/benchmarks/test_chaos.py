"""Lines of played schedules: the newest of a seed counts, and what was out of order is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.__main__ import recorded, seeds_of, summary


def line(seed: int, *violations: str, kind: str = "sigkill", outcome: str | None = "interrupted") -> dict[str, Any]:
    return {"seed": seed, "kind": kind, "outcome": outcome, "exit_code": -9, "seconds": 1.0, "violations": list(violations)}


@pytest.mark.parametrize(("text", "seeds"), [("0..3", [0, 1, 2, 3]), ("7", [7]), ("5..5", [5])])
def test_seeds_are_given_as_a_range_with_both_ends(text: str, seeds: list[int]) -> None:
    assert list(seeds_of(text)) == seeds


def test_the_newest_line_of_a_seed_counts(tmp_path: Path) -> None:
    path = tmp_path / "chaos.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (line(1, "still alive"), line(2), line(1))))
    assert {seed: one["violations"] for seed, one in recorded(path).items()} == {1: [], 2: []}
    assert recorded(tmp_path / "none.jsonl") == {}


def test_the_summary_counts_by_kind_and_names_what_was_out_of_order() -> None:
    text = summary([line(1), line(2, "still alive: 4711"), line(3, kind="good", outcome="pass")])
    assert "| sigkill | 2 | 1 | interrupted 2 |" in text
    assert "| **all** | 3 | 2 | |" in text
    assert "- seed 2 (sigkill): still alive: 4711" in text
