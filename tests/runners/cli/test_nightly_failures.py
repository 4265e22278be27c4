"""A night that went wrong without an error is told like one that ended with an error."""

from __future__ import annotations

from pathlib import Path

from results.records import NodeRecord
from results.store import Store
from results.vocabulary import ExitCode
from runners.alarms.deliver import Bell
from runners.alarms.settings import AlarmSettings
from runners.cli import nightly
from runners.nightly.cells import NightCells
from runners.nightly.discovery import Discovery
from runners.nightly.visit import NightPlan, NightResult

GIVEN_UP = (
    "vllm==0.32.0 canary-dense eager: 2 boots ended without evidence tonight; the last, 20261130T130501Z-1f00ab42, ended install_failed"
)


def night(*failures: str, **troubles: str) -> NightResult:
    plan = NightPlan(NodeRecord("ab" * 8, "spark"), Discovery((), troubles=tuple(troubles.items())), NightCells(()), 3)
    return NightResult(plan, failures=list(failures))


def test_a_cell_that_was_given_up_and_an_index_that_did_not_answer_are_told_once_and_fail_the_night(tmp_path: Path) -> None:
    bell, store = Bell(tmp_path, AlarmSettings()), Store(tmp_path)
    result = night(GIVEN_UP, sglang="the package index cannot be reached")
    first = nightly._tell(bell, store, result)
    assert [(alarm.kind, alarm.reason) for alarm in first.new] == [
        ("nightly_failed", GIVEN_UP),
        ("nightly_failed", "sglang: the package index cannot be reached"),
    ]
    assert "## The night itself failed" in first.summary.read_text()
    assert nightly._exit_code(result, first) == ExitCode.INFRASTRUCTURE
    again = nightly._tell(bell, store, result)
    assert again.new == ()
    assert nightly._exit_code(result, again) == ExitCode.INFRASTRUCTURE


def test_a_night_without_failures_is_quiet(tmp_path: Path) -> None:
    result = night()
    delivery = nightly._tell(Bell(tmp_path, AlarmSettings()), Store(tmp_path), result)
    assert delivery.new == ()
    assert nightly._exit_code(result, delivery) == ExitCode.OK
