"""`sparkproof run --confirm` through the command line, against planted releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.store import Store
from tests.planted import Planted
from tests.planted_releases import behave, plant_releases


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return plant_releases(tmp_path, {"0.31.0": {}, "0.32.0": {"SCRIPTED_AS": "flood"}})


def test_a_failure_is_booted_once_more_and_confirmed_and_then_left_alone(planted: Planted) -> None:
    code, shown = planted.run("--confirm")
    assert code == 1
    columns = "run_id, purpose, control_of, outcome, session_id"
    runs = Store(planted.home).query(f"SELECT {columns} FROM runs WHERE purpose <> 'control' ORDER BY started_at, run_id")
    assert [(run["purpose"], run["outcome"]) for run in runs] == [("measure", "incoherent"), ("confirm", "incoherent")]
    assert runs[1]["control_of"] == runs[0]["run_id"]
    assert runs[0]["session_id"] == runs[1]["session_id"]
    (verdict,) = shown["verdicts"]
    assert (verdict["release"], verdict["state"], verdict["confirmed"]) == ("0.32.0", "incoherent", True)


def test_without_confirm_no_boot_is_added(planted: Planted) -> None:
    behave(planted.root, "0.32.0", {"SCRIPTED_BOOT": "crash"})
    planted.run()
    assert Store(planted.home).query("SELECT count(*) AS n FROM runs") == [{"n": 1}]


def test_a_cell_that_passes_for_the_first_time_needs_no_confirmation(planted: Planted) -> None:
    behave(planted.root, "0.32.0", {})
    code, shown = planted.run("--confirm")
    assert code == 0
    assert [verdict["verdict"] for verdict in shown["verdicts"]] == ["new"]
    assert Store(planted.home).query("SELECT count(*) AS n FROM runs") == [{"n": 1}]
