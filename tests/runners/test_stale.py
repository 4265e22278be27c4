from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.boot_folder import BootFolder
from results.store import Store
from results.vocabulary import Outcome
from runners.launchers.docker import ContainerProcess, launch
from runners.process.teardown import TeardownProof
from runners.stale import end_stale_boots, end_stray_containers
from tests.results.conftest import MakeBoot, make_boot, store
from tests.runners.launchers.conftest import Stand, stand
from tests.runners.launchers.test_docker import COMMAND, IMAGE

__all__ = ["make_boot", "stand", "store"]  # fixtures

FINISHED = "2026-11-30T13:03:00+00:00"


def _proof(*, clean: bool) -> TeardownProof:
    return TeardownProof(clean, 0.1, False, () if clean else (4711,), None, "nothing left" if clean else "still alive: pid 4711")


def test_an_unfinished_boot_is_filed_as_interrupted_with_the_phase_it_died_in(store: Store, make_boot: MakeBoot) -> None:
    finished, unfinished = make_boot(finished_at=FINISHED), make_boot(outcome=None)
    asked: list[str] = []

    def end(folder: BootFolder) -> TeardownProof:
        asked.append(folder.run_id)
        return _proof(clean=True)

    assert [s.run_id for s in end_stale_boots(store, end)] == [unfinished.run_id]
    assert asked == [unfinished.run_id]
    run = unfinished.summary().run
    assert (run.outcome, run.finished_at is not None) == (Outcome.INTERRUPTED, True)
    assert "without finishing this boot (phase teardown); nothing left" in (run.reason or "")
    assert finished.summary().run.outcome is Outcome.PASS


def test_a_runner_that_died_while_it_ended_its_server_leaves_its_outcome_and_no_server(store: Store, make_boot: MakeBoot) -> None:
    """Found by a schedule of faults: SIGKILL between the outcome and the end of the teardown left a server for ever."""
    boot = make_boot(finished_at=None)
    ended: list[str] = []

    def end(folder: BootFolder) -> TeardownProof:
        ended.append(folder.run_id)
        return _proof(clean=True)

    end_stale_boots(store, end)
    assert ended == [boot.run_id]
    run = boot.summary().run
    assert (run.outcome, run.finished_at is not None) == (Outcome.PASS, True)
    assert run.warnings[-1] == "the runner ended before it had cleaned up; nothing left"
    assert end_stale_boots(store, end) == []


def test_a_boot_whose_server_could_not_be_ended_is_tried_again_by_the_next_start(store: Store, make_boot: MakeBoot) -> None:
    unfinished = make_boot(outcome=None)
    end_stale_boots(store, lambda folder: _proof(clean=False))
    assert unfinished.summary().run.outcome is None
    assert len(end_stale_boots(store, lambda folder: _proof(clean=True))) == 1


def test_a_damaged_folder_does_not_stop_the_cleaning(store: Store, make_boot: MakeBoot) -> None:
    damaged, unfinished = make_boot(finished_at=FINISHED), make_boot(outcome=None)
    (damaged.path / "run.json").write_text("{")
    assert [s.run_id for s in end_stale_boots(store, lambda folder: _proof(clean=True))] == [unfinished.run_id]


def _orphan(stand: Stand, folder: Path, run_id: str) -> ContainerProcess:
    """A running container whose label names a runner of before a reboot."""
    process = launch(stand.docker, COMMAND, IMAGE, folder, run_id, 18001, is_inside=lambda pid, container_id: True)
    path = stand.state / "containers" / process.name / "container.json"
    made = json.loads(path.read_text())
    path.write_text(json.dumps({**made, "labels": {**made["labels"], "sparkproof.runner": "1:1:another-boot"}}))
    return process


@pytest.mark.parametrize("ended", [True, False])
def test_a_stray_container_is_removed_unless_its_boot_ended_and_left_it_running(
    stand: Stand, store: Store, make_boot: MakeBoot, tmp_path: Path, ended: bool
) -> None:
    (tmp_path / "elsewhere").mkdir()
    run_id = make_boot(finished_at=FINISHED).run_id if ended else "20261130T130501Z-1f00ab42"
    process = _orphan(stand, tmp_path / "elsewhere", run_id)
    found = end_stray_containers(store, stand.docker)
    assert [(s.run_id, s.proof.clean) for s in found] == ([] if ended else [(run_id, True)])
    assert stand.containers() == ([process.name] if ended else [])
    stand.docker.ask("rm", "--force", process.name)
    process.handle.wait(10)
