"""A disk that takes nothing more: it ends a boot that has no outcome, and nothing after that."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from results.boot_folder import BootFolder, BootSummary, new_run_id
from results.records import NodeRecord, ResourceRecord, RunRecord
from results.store import Store
from results.vocabulary import Outcome, Phase
from runners.recorder import Recorder, utc_now

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    run = RunRecord(new_run_id(), "s", "c", "x", "vllm", "0.32.0", "venv", "canary-dense", "eager", "n", 1, utc_now())
    made = Recorder(Store(tmp_path), BootSummary(run, NodeRecord("n", "n")))
    made.begin()
    return made


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(BootFolder, "append", refuse)
    monkeypatch.setattr(BootFolder, "write_summary", refuse)


def stored_outcome(recorder: Recorder) -> tuple[str | None, list[str]]:
    (row,) = Store(recorder.store_root).query("SELECT outcome, warnings FROM runs")
    return row["outcome"], list(row["warnings"])


def test_without_an_outcome_it_ends_the_boot(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_the_disk(monkeypatch)
    with pytest.raises(OSError, match="No space"), recorder.phase(Phase.READY):
        pytest.fail("the phase was begun without its row")
    with pytest.raises(OSError, match="No space"):
        recorder.append([ResourceRecord(recorder.run.run_id, 1.0, Phase.READY)])


def test_cleaning_up_goes_on_and_what_is_missing_is_said(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder.conclude(Outcome.PASS, None)
    with monkeypatch.context() as full:
        fill_the_disk(full)
        with recorder.phase(Phase.TEARDOWN):
            pass
        recorder.note_memory_after_teardown(1 << 30)
    recorder.finish()
    assert recorder.unstored is None
    outcome, warnings = stored_outcome(recorder)
    assert outcome == Outcome.PASS
    assert warnings == [f"not everything that followed the outcome could be written: {FULL}"]
    assert recorder.run.memory_after_teardown_bytes == 1 << 30


def test_outcome_that_the_disk_does_not_take_is_kept_in_memory_and_told(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_the_disk(monkeypatch)
    recorder.conclude(Outcome.INTERRUPTED, "stopped in phase ready")
    recorder.finish()
    assert recorder.run.outcome is Outcome.INTERRUPTED
    assert recorder.unstored == f"the boot's folder could not be completed: {FULL}"
    assert stored_outcome(recorder) == (None, [])
