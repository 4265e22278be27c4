"""The shell around the planner: what an outcome says, which release was good, and that a command line cannot ask for nonsense."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from results.boot_folder import BootFolder, BootSummary
from results.records import NodeRecord, RunRecord
from results.store import Store
from results.vocabulary import Outcome, Purpose
from runners.diagnose.follow_up import Controls, previous_good, result_of
from runners.diagnose.planner import Result
from runners.errors import UsageError
from tests.planted import Planted
from tests.runners.diagnose.test_controls import cell

RUN = RunRecord(
    run_id="20261130T130501Z-00000001",
    session_id="s",
    cell_id="c",
    series_id="s",
    engine="vllm",
    engine_version="0.32.0",
    distribution="venv",
    recipe_name="canary-dense",
    backend_name="eager",
    node_id="node",
    protocol_version=1,
    started_at="2026-11-30T13:05:01+00:00",
    outcome=Outcome.WRONG,
)


def keep(store: Store, number: int, **fields: object) -> None:
    run = dataclasses.replace(RUN, run_id=f"20261130T130501Z-{number:08x}", **fields)
    folder = BootFolder(store.boots, run.run_id)
    folder.create()
    folder.write_summary(BootSummary(run, NodeRecord("node", "n")))
    store.ingest(folder)


@pytest.mark.parametrize(
    ("control", "failed", "result"),
    [
        (Outcome.PASS, Outcome.WRONG, Result.RIGHT),
        (Outcome.WRONG, Outcome.INCOHERENT, Result.WRONG),
        (Outcome.INCOHERENT, Outcome.WRONG, Result.WRONG),
        (Outcome.FALLBACK, Outcome.WRONG, Result.NOTHING),
        (Outcome.CRASH, Outcome.WRONG, Result.NOTHING),
        (Outcome.CRASH, Outcome.CRASH, Result.WRONG),
        (Outcome.HANG, Outcome.CRASH, Result.WRONG),
        (Outcome.OOM, Outcome.CRASH, Result.NOTHING),
        (Outcome.UNSUPPORTED, Outcome.WRONG, Result.NOTHING),
        (Outcome.INTERRUPTED, Outcome.WRONG, Result.NOTHING),
        (None, Outcome.WRONG, Result.NOTHING),
    ],
)
def test_what_a_controls_outcome_says_about_a_failed_boot(control: Outcome | None, failed: Outcome, result: Result) -> None:
    assert result_of(control, failed) is result


def test_the_previous_good_release_is_the_newest_older_one_that_passed_as_evidence(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, 1, engine_version="0.30.0", outcome=Outcome.PASS)
    keep(store, 2, engine_version="0.31.0", outcome=Outcome.PASS)
    keep(store, 3, engine_version="0.31.1", outcome=Outcome.WRONG)
    keep(store, 4, engine_version="0.33.0", outcome=Outcome.PASS)
    keep(store, 5, engine_version="0.31.2", outcome=Outcome.PASS, purpose=Purpose.CONTROL)
    keep(store, 6, engine_version="0.31.3", outcome=Outcome.PASS, recipe_name="another")
    keep(store, 7, engine_version="0.31.4.dev1+gabc", outcome=Outcome.PASS)
    assert previous_good(store, RUN) == "0.31.0"


def test_without_any_store_no_release_was_good(tmp_path: Path) -> None:
    assert previous_good(Store(tmp_path), RUN) is None
    assert previous_good(Store(tmp_path), dataclasses.replace(RUN, engine_version="0.1.dev5+g1")) is None


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.OOM, Outcome.UNSUPPORTED, Outcome.INSTALL_FAILED, None])
def test_boots_that_controls_cannot_explain_are_refused(tmp_path: Path, outcome: Outcome | None) -> None:
    controls = Controls(Store(tmp_path), tmp_path, False)
    with pytest.raises(UsageError, match="ended as"):
        controls.open(dataclasses.replace(RUN, outcome=outcome), cell())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing is named"),
        (("--engine", "vllm==0.32.0"), "nothing is named"),
        (("20261130T130501Z-00000001", "--engine", "vllm==0.32.0", "--model", "canary-dense"), "both given"),
        (("nosuchrun",), "no results yet"),
    ],
)
def test_a_command_line_that_makes_no_sense_starts_nothing(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = Planted(tmp_path, "0.32.0").sparkproof("diagnose", *arguments)
    assert done.returncode in (2, 3)
    assert words in " ".join(done.stderr.split())
    assert not (tmp_path / "home" / "boots").exists()
