from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results.records import ResourceRecord
from results.vocabulary import Outcome, Phase
from runners.launchers import docker_server
from runners.launchers.docker import ContainerProcess, launch, read_record, write_record
from runners.launchers.docker_server import ContainerGuard, DockerServer, end_orphan, end_orphans, find_orphans, stop
from runners.process.log import LogLimits
from runners.process.ports import Listeners
from runners.process.ready import NotReady, Probes, Ready, ReadyLimits
from runners.process.server import Exit
from runners.process.teardown import MACHINE, TeardownLimits
from tests.runners.launchers.conftest import DIES, IGNORES_TERM, Stand
from tests.runners.launchers.test_docker import COMMAND, IMAGE, RUN_ID

QUIET = dataclasses.replace(MACHINE, used_memory=lambda: 1 << 30, private_memory=lambda: None, listeners=lambda port: Listeners())
LIMITS = TeardownLimits(grace_s=10.0, kill_s=10.0, memory_s=0.0, poll_s=0.02)


@pytest.fixture
def start(stand: Stand, tmp_path: Path) -> Callable[[], ContainerProcess]:
    def started() -> ContainerProcess:
        folder = tmp_path / "boot"
        folder.mkdir()
        return launch(
            stand.docker, COMMAND, IMAGE, folder, RUN_ID, 18001, used_memory=lambda: 1 << 30, is_inside=lambda pid, container_id: True
        )

    return started


def _when_serving(process: ContainerProcess) -> ContainerProcess:
    """The content has installed its signal handler once its first line is in the log."""
    while not process.log_path.read_text() and process.handle.poll() is None:
        time.sleep(0.01)
    return process


def test_a_stopped_container_is_proven_gone_and_its_log_is_whole(stand: Stand, start: Callable[[], ContainerProcess]) -> None:
    process = _when_serving(start())
    proof = stop(process, limits=LIMITS, machine=QUIET)
    assert (proof.clean, proof.killed_hard, proof.survivors) == (True, False, ())
    assert "the container is removed" in proof.reason
    assert stand.containers() == []
    assert process.handle.returncode == 0
    assert process.log_path.read_text() == "engine starts\n"
    assert [argv[1:] for argv in stand.calls("kill")] == [["--signal", "TERM", f"sparkproof-{RUN_ID}"]]
    assert stand.calls("ps")[-1][4] == f"label=sparkproof.run_id={RUN_ID}"


def test_a_container_that_ignores_the_first_signal_is_killed_after_the_grace(stand: Stand, start: Callable[[], ContainerProcess]) -> None:
    stand.behave(content=IGNORES_TERM)
    process = _when_serving(start())
    proof = stop(process, limits=dataclasses.replace(LIMITS, grace_s=0.2), machine=QUIET)
    assert (proof.clean, proof.killed_hard) == (True, True)
    assert stand.containers() == []


def test_told_to_hurry_no_grace_is_given(stand: Stand, start: Callable[[], ContainerProcess]) -> None:
    stand.behave(content=IGNORES_TERM)
    process = _when_serving(start())
    proof = stop(process, hurry=lambda: True, limits=LIMITS, machine=QUIET)
    assert proof.killed_hard
    assert [argv[1:] for argv in stand.calls("kill")] == [[f"sparkproof-{RUN_ID}"]]
    assert stand.containers() == []


def test_a_dead_container_is_removed_and_proven_gone(stand: Stand, start: Callable[[], ContainerProcess]) -> None:
    stand.behave(content=DIES)
    process = start()
    process.handle.wait(10)
    proof = stop(process, limits=LIMITS, machine=QUIET)
    assert (proof.clean, proof.killed_hard) == (True, False)
    assert not stand.calls("kill")
    assert stand.containers() == []


@pytest.mark.parametrize(
    ("behaviour", "machine", "words"),
    [
        ({"rm_fails": True}, QUIET, f"the container sparkproof-{RUN_ID} is still there; a container of this boot is left"),
        ({}, dataclasses.replace(QUIET, listeners=lambda port: Listeners(frozenset({7}))), "port 18001 is still open"),
        ({}, dataclasses.replace(QUIET, used_memory=lambda: 61 << 30), "60.0 GiB more memory in use"),
        ({}, dataclasses.replace(QUIET, used_memory=lambda: None), "used memory is not known"),
    ],
)
def test_what_is_left_makes_the_end_unclean(
    stand: Stand, start: Callable[[], ContainerProcess], behaviour: dict[str, Any], machine: Any, words: str
) -> None:
    process = _when_serving(start())
    stand.behave(**behaviour)
    proof = stop(process, limits=dataclasses.replace(LIMITS, kill_s=0.1), machine=machine)
    assert not proof.clean
    assert words in proof.reason


def test_a_daemon_that_is_gone_leaves_the_end_unproven(stand: Stand, start: Callable[[], ContainerProcess]) -> None:
    process = _when_serving(start())
    stand.behave(daemon="down")
    proof = stop(process, limits=dataclasses.replace(LIMITS, grace_s=0.0, kill_s=0.0), machine=QUIET)
    assert not proof.clean
    assert "docker does not say whether the container is gone" in proof.reason
    assert proof.survivors == (process.record.pid,)
    assert process.handle.returncode is not None, "the log follower must not outlive the boot"


def _probes(**answers: Any) -> Probes:
    given: dict[str, Any] = {"health": lambda: True, "models": lambda: ["m"], "one_token": lambda: None, **answers}
    return Probes(**given)


def _server(process: ContainerProcess) -> DockerServer:
    samples: list[ResourceRecord] = []
    return DockerServer(process, samples.append, lambda: Phase.READY, lambda: False, machine=QUIET)


def test_a_container_that_answers_on_its_own_port_is_ready(start: Callable[[], ContainerProcess]) -> None:
    server = _server(start())
    assert server.base_url == "http://127.0.0.1:18001"
    assert isinstance(server.wait_ready("m", _probes()), Ready)
    assert server.ended() is None
    assert server.our_fault() is None
    assert server.stop().clean
    assert server.log_text() == "engine starts\n"
    assert server.ended() is not None


@pytest.mark.parametrize(
    ("content", "oom", "kind", "words"),
    [
        (DIES, False, Outcome.CRASH, "exited with code 3"),
        ("import os; os.kill(os.getpid(), 9)", True, Outcome.OOM, "OOMKilled"),
    ],
)
def test_a_container_that_ends_before_it_is_ready_says_how(
    stand: Stand, start: Callable[[], ContainerProcess], content: str, oom: bool, kind: Outcome, words: str
) -> None:
    stand.behave(content=content, oom_killed=oom)
    server = _server(start())
    server.process.handle.wait(10)
    verdict = server.wait_ready("m", _probes(health=lambda: False), ReadyLimits(poll_s=0.01))
    assert isinstance(verdict, NotReady)
    assert verdict.kind is kind
    assert words in verdict.reason
    assert server.stop().clean


def test_a_flooded_log_ends_the_container_and_is_our_fault(start: Callable[[], ContainerProcess]) -> None:
    process = _when_serving(start())
    guard = ContainerGuard(process, LogLimits(largest_bytes=3, least_free_bytes=0))
    guard.check()
    assert guard.trouble is not None
    assert "server.log" in guard.trouble
    process.handle.wait(10)
    assert process.exit() == Exit(signal=9)
    assert stop(process, limits=LIMITS, machine=QUIET).clean


def _abandoned(stand: Stand, process: ContainerProcess, runner: str) -> None:
    """Let the container look as if another runner had started it."""
    path = stand.state / "containers" / process.name / "container.json"
    made = json.loads(path.read_text())
    path.write_text(json.dumps({**made, "labels": {**made["labels"], "sparkproof.runner": runner}}))


def test_only_containers_whose_runner_is_gone_are_orphans(stand: Stand, start: Callable[[], ContainerProcess]) -> None:
    process = start()
    ours = process.container.launch
    boot_id, before_reboot = ours.machine_boot_id, f"{ours.runner_pid}:{ours.runner_start_ticks}:another-boot"
    assert find_orphans(stand.docker) == ()
    for label, orphaned in ((f"1:1:{boot_id}", True), (before_reboot, True), ("not a label", False), ("", False)):
        _abandoned(stand, process, label)
        assert [o.run_id for o in find_orphans(stand.docker)] == ([RUN_ID] if orphaned else [])
    _abandoned(stand, process, before_reboot)
    assert [(o.container_id, gone) for o, gone in end_orphans(stand.docker)] == [(process.container.container_id, True)]
    assert stand.containers() == []
    process.handle.wait(10)


def test_the_boot_of_a_dead_runner_is_ended_through_its_folder(stand: Stand, start: Callable[[], ContainerProcess]) -> None:
    process = start()
    assert end_orphan(stand.docker, process.folder.parent, QUIET) is None
    living = end_orphan(stand.docker, process.folder, QUIET)
    assert living is not None
    assert not living.clean
    assert "is still alive" in living.reason
    record = read_record(process.folder)
    assert record is not None
    dead = dataclasses.replace(record, launch=dataclasses.replace(record.launch, runner_pid=1, runner_start_ticks=1))
    write_record(process.folder, dead)
    assert not _clean(end_orphan(stand.docker, process.folder, QUIET)), "its label still names a living runner"
    _abandoned(stand, process, docker_server.runner_label(dead.launch))
    assert _clean(end_orphan(stand.docker, process.folder, QUIET))
    assert stand.containers() == []
    assert _clean(end_orphan(stand.docker, process.folder, QUIET)), "nothing is left the second time"
    process.handle.wait(10)


def _clean(proof: Any) -> bool:
    return bool(proof is not None and proof.clean)
