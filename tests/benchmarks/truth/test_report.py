"""Results made in pieces are shown as one table."""

from __future__ import annotations

from typing import Any

from benchmarks.truth import report
from benchmarks.truth.accuracy import compare
from benchmarks.truth.scenarios import scenario_named


def result(date: str, *rows: tuple[str, str]) -> dict[str, Any]:
    about = {
        "date": date,
        "machine": "m",
        "load": [0.0, 0.0],
        "realtime": True,
        "clients_realtime": True,
        "versions": {},
        "missing": ["x: no"],
    }
    return report.result_of([compare(tool, scenario_named(name), [], []) for tool, name in rows], [], [], about)


def test_of_a_row_that_was_measured_twice_the_newer_one_is_shown() -> None:
    newer = result("2026-12-01", ("a", "steady_60"))
    newer["accuracy"][0]["verdict"] = "wrong"
    older = result("2026-11-30", ("b", "steady_60"), ("a", "steady_60"), ("a", "steady_20"), ("b", "steady_20"))
    text = report.tables(newer, older)
    assert [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| steady_")] == [
        ["| steady_20", "a"],
        ["| steady_20", "b"],
        ["| steady_60", "b"],
        ["| steady_60", "a"],
    ]
    assert text.count("**wrong**") == 1
    assert "| of 2 scenarios asked of all |" in text
    assert text.count("x: no") == 1
