from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from runners.process.members import Members, Target
from runners.process.ports import Listeners
from runners.process.server import ServerProcess, read_record, write_record
from runners.process.table import ProcessStat, read_stat
from runners.process.teardown import MACHINE, Machine, TeardownLimits, end_orphans, stop
from tests.runners.process.conftest import Start, eventually, marked, never_needs_memory
from tests.runners.process.test_members import DAEMON, GRANDCHILD

GIB = 1 << 30
FAST = TeardownLimits(grace_s=0.4, children_s=0.1, kill_s=20, memory_s=0.2, poll_s=0.02)
PATIENT = TeardownLimits(grace_s=60, children_s=30, kill_s=20, memory_s=0.2, poll_s=0.02)
QUIET = replace(MACHINE, used_memory=never_needs_memory, private_memory=never_needs_memory)

POLITE = """
import signal, sys, time
def end(*_):
    print("asked", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def up(server: ServerProcess) -> None:
    assert eventually(lambda: b"\n" in server.log_path.read_bytes())


def test_polite_server_ends_by_itself_and_the_proof_is_clean(start: Start, run_id: str) -> None:
    server = start(POLITE)
    up(server)
    proof = stop(server, limits=PATIENT, machine=QUIET)
    assert (proof.clean, proof.killed_hard, proof.survivors, proof.memory_after_bytes) == (True, False, (), 0)
    assert server.log_path.read_text() == "up\nasked\n"
    assert marked(run_id) == set() and read_stat(server.handle.pid) is None


def test_server_is_asked_before_its_children(start: Start) -> None:
    """Signalling everybody at once makes an engine log a crash of its core that never was."""
    child = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit('child was signalled')); print('up', flush=True); time.sleep(600)"
    )
    code = f"""
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {child!r}])
def end(*_):
    time.sleep(0.5); child.kill(); child.wait(); sys.exit(0)
signal.signal(signal.SIGTERM, end)
time.sleep(600)
"""
    server = start(code)
    up(server)
    proof = stop(server, limits=PATIENT, machine=QUIET)
    assert (proof.clean, proof.killed_hard) == (True, False)
    assert "child was signalled" not in server.log_path.read_text()


@pytest.mark.parametrize("code", [STUBBORN, GRANDCHILD, DAEMON], ids=["ignores SIGTERM", "reparented grandchild", "daemon"])
def test_whoever_ignores_the_request_is_killed_wherever_it_hides(start: Start, run_id: str, code: str) -> None:
    server = start(code)
    up(server)
    everybody = server.members().pids
    proof = stop(server, limits=FAST, machine=QUIET)
    assert proof.clean, proof
    assert proof.killed_hard is (code is not DAEMON)
    assert marked(run_id) == set()
    left = [read_stat(pid) for pid in everybody]
    assert not any(p.alive for p in left if p is not None)


def test_orphans_of_a_server_that_crashed_are_ended(start: Start, run_id: str) -> None:
    server = start(GRANDCHILD)
    up(server)
    assert eventually(lambda: len(marked(run_id)) == 2)
    os.kill(server.handle.pid, signal.SIGKILL)
    assert eventually(lambda: server.exit() is not None)
    proof = stop(server, limits=FAST, machine=QUIET)
    assert (proof.clean, marked(run_id)) == (True, set())


def test_process_that_becomes_another_one_all_the_time_does_not_escape(start: Start, run_id: str) -> None:
    hop = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
for _ in range(1000):  # one living process at any time, each in a session of its own
    time.sleep(0.05)
    if os.fork():
        os._exit(0)
    os.setsid()
"""
    server = start(hop)
    up(server)
    proof = stop(server, limits=FAST, machine=QUIET)
    assert (proof.clean, marked(run_id)) == (True, set())


def test_dead_server_without_children_is_clean_and_not_killed_again(start: Start) -> None:
    server = start("raise SystemExit(7)")
    assert eventually(lambda: server.exit() is not None)
    proof = stop(server, limits=FAST, machine=QUIET)
    assert (proof.clean, proof.killed_hard) == (True, False)
    again = stop(server, limits=FAST, machine=QUIET)
    assert again.clean


def test_hurry_skips_the_grace_but_still_kills_hard(start: Start, run_id: str) -> None:
    server = start(POLITE)
    up(server)
    proof = stop(server, hurry=lambda: True, limits=PATIENT, machine=QUIET)
    assert (proof.clean, proof.killed_hard) == (True, True)
    assert server.log_path.read_text() == "up\n"
    assert marked(run_id) == set()


def test_hurry_during_the_grace_ends_the_waiting(start: Start) -> None:
    server = start(STUBBORN)
    up(server)
    asked = iter([False, False, False])
    proof = stop(server, hurry=lambda: next(asked, True), limits=replace(PATIENT, grace_s=3600), machine=QUIET)
    assert (proof.clean, proof.killed_hard) == (True, True)


def test_neighbour_is_never_touched(start: Start) -> None:
    neighbour = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
    try:
        server = start(STUBBORN)
        up(server)
        assert stop(server, limits=FAST, machine=QUIET).clean
        assert neighbour.poll() is None
    finally:
        neighbour.kill()
        neighbour.wait()


def test_port_that_stays_open_is_not_clean_and_its_owner_is_left_alone(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_port:
        port = open_port.getsockname()[1]
        server = start(POLITE, port=port)
        up(server)
        proof = stop(server, limits=replace(FAST, kill_s=0.1), machine=QUIET)
    assert not proof.clean
    assert f"port {port} is still open: pid {os.getpid()} listens on it (not proven ours, so not touched)" in proof.reason


@pytest.mark.parametrize(
    ("before", "after", "clean", "said"),
    [
        (10 * GIB, 11 * GIB, True, "memory is back"),
        (10 * GIB, 11 * GIB + 1, False, "1.0 GiB more memory"),
        (10 * GIB, 70 * GIB, False, "60.0 GiB more memory"),
        (10 * GIB, 5 * GIB, True, "memory is back"),
        (None, 10 * GIB, False, "cannot prove"),
        (10 * GIB, None, False, "cannot prove"),
    ],
)
def test_memory_must_be_back_within_one_gib(start: Start, before: int | None, after: int | None, clean: bool, said: str) -> None:
    server = start("pass")
    server = replace(server, record=replace(server.record, memory_baseline_bytes=before))
    proof = stop(server, limits=FAST, machine=replace(QUIET, used_memory=lambda: after))
    assert (proof.clean, proof.memory_after_bytes) == (clean, after)
    assert said in proof.reason


@pytest.mark.parametrize(("neighbours", "clean"), [(30 * GIB, True), (28 * GIB, False), (None, False), (-20 * GIB, False)])
def test_memory_that_a_neighbour_took_meanwhile_is_no_leak_of_ours(start: Start, neighbours: int | None, clean: bool) -> None:
    server = start("pass")
    record = replace(server.record, memory_baseline_bytes=10 * GIB, private_baseline_bytes=8 * GIB)
    private = None if neighbours is None else 8 * GIB + neighbours
    machine = replace(QUIET, used_memory=lambda: 40 * GIB, private_memory=lambda: private)
    assert stop(replace(server, record=record), limits=FAST, machine=machine).clean is clean


@pytest.mark.parametrize(("gave_back", "clean"), [(GIB // 2, True), (3 * GIB, False)])
def test_memory_that_a_neighbour_gave_back_hides_no_leak_of_ours(start: Start, gave_back: int, clean: bool) -> None:
    server = start("pass")
    record = replace(server.record, memory_baseline_bytes=10 * GIB, private_baseline_bytes=8 * GIB)
    machine = replace(QUIET, used_memory=lambda: 10 * GIB, private_memory=lambda: 8 * GIB - gave_back)
    assert stop(replace(server, record=record), limits=FAST, machine=machine).clean is clean


def test_beside_other_runners_memory_is_reported_and_not_judged(start: Start) -> None:
    server = start("pass")
    server = replace(server, record=replace(server.record, memory_baseline_bytes=10 * GIB))
    proof = stop(server, limits=FAST, machine=replace(QUIET, used_memory=lambda: 70 * GIB), judge_memory=False)
    assert (proof.clean, proof.memory_after_bytes) == (True, 70 * GIB)
    assert "memory is not judged" in proof.reason


def test_memory_that_the_driver_frees_late_is_waited_for(start: Start) -> None:
    server = start("pass")
    falling = iter([60 * GIB, 30 * GIB, 2 * GIB])
    proof = stop(server, limits=replace(FAST, memory_s=60), machine=replace(QUIET, used_memory=lambda: next(falling, 0)))
    assert (proof.clean, proof.memory_after_bytes) == (True, 0)


@pytest.mark.parametrize(("listed", "clean"), [("ours", False), ("other", True), ("unknown", True)])
def test_gpu_memory_that_the_driver_still_lists_for_us_is_not_clean(start: Start, listed: str, clean: bool) -> None:
    server = start("pass")
    pids = {"ours": frozenset({server.handle.pid}), "other": frozenset({1}), "unknown": None}[listed]
    proof = stop(server, limits=replace(FAST, kill_s=0.1), machine=replace(QUIET, gpu_pids=lambda: pids))
    assert proof.clean is clean
    assert ("GPU memory" in proof.reason) is not clean


class Unkillable:
    """A machine on which one process survives everything; time is fake."""

    def __init__(self, *, denied: bool) -> None:
        self.process = ProcessStat(4242, 1, 4242, 4242, 5, "D", "VLLM::EngineCor", 0.0, 0.0, 1, 0)
        self.denied = denied
        self.now = 0.0
        self.sent: list[tuple[float, int]] = []

    def send(self, process: ProcessStat, number: int) -> bool:
        self.sent.append((self.now, number))
        if self.denied:
            raise psutil.AccessDenied(process.pid)
        return True

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def machine(self) -> Machine:
        return Machine(
            members=lambda target: Members((self.process,)),
            send=self.send,
            listeners=lambda port: Listeners(),
            used_memory=never_needs_memory,
            clock=lambda: self.now,
            sleep=self.sleep,
        )


@pytest.mark.parametrize("denied", [False, True])
def test_survivor_is_named_and_the_proof_is_not_clean(start: Start, denied: bool) -> None:
    server = start("import time; time.sleep(600)")
    world = Unkillable(denied=denied)
    world.process = replace(world.process, pid=server.handle.pid, start_ticks=server.record.start_ticks or 0)
    proof = stop(server, machine=world.machine())
    assert (proof.clean, proof.killed_hard, proof.survivors) == (False, True, (server.handle.pid,))
    assert "still alive: VLLM::EngineCor" in proof.reason
    assert ("may not signal" in proof.reason) is denied
    times = {number: [at for at, n in world.sent if n == number] for number in (signal.SIGTERM, signal.SIGKILL)}
    assert times[signal.SIGTERM] == pytest.approx([0.0, 12.0], abs=0.3)
    assert times[signal.SIGKILL][0] == pytest.approx(20.0, abs=0.3)
    assert len(times[signal.SIGKILL]) > 10


def orphaned(server: ServerProcess) -> ServerProcess:
    """The same server as if another runner had launched it and been killed: `process.json` names a runner that is gone."""
    gone = replace(server.record, runner_pid=server.record.pid or 0, runner_start_ticks=server.record.runner_start_ticks)
    write_record(server.folder, gone)
    return replace(server, record=gone)


RUNNER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from runners.engines.base import ServeCommand
from runners.process.server import launch
folder, run_id, code = Path(sys.argv[2]), sys.argv[3], sys.argv[4]
launch(ServeCommand((sys.executable, "-I", "-S", "-c", code), {}), folder, run_id, 1, used_memory=lambda: 0)
print("launched", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("code", [GRANDCHILD, DAEMON], ids=["grandchild", "daemon"])
def test_orphans_of_a_killed_runner_are_found_and_ended(tmp_path: Path, run_id: str, code: str) -> None:
    root = str(Path(__file__).parents[3])
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, root, str(tmp_path), run_id, code], stdout=subprocess.PIPE)
    try:
        assert runner.stdout is not None and runner.stdout.readline() == b"launched\n"
        assert eventually(lambda: (tmp_path / "server.log").read_bytes().endswith(b"\n") and len(marked(run_id)) == 2)
        refused = end_orphans(tmp_path, limits=FAST, machine=QUIET)
        assert not refused.clean and "still alive: it must end its own server" in refused.reason
        assert len(marked(run_id)) == 2
    finally:
        runner.kill()
        runner.communicate()
    assert len(marked(run_id)) == 2
    proof = end_orphans(tmp_path, limits=FAST, machine=QUIET)
    assert proof.clean, proof
    assert marked(run_id) == set()
    assert end_orphans(tmp_path, limits=FAST, machine=QUIET).clean


def test_orphans_are_found_by_their_mark_even_if_the_record_was_never_completed(start: Start, run_id: str) -> None:
    server = start("import time; time.sleep(600)")
    write_record(server.folder, replace(server.record, pid=None, start_ticks=None))
    proof = end_orphans(server.folder, limits=FAST, machine=QUIET)
    assert (proof.clean, marked(run_id)) == (True, set())


def test_number_that_was_reused_since_is_not_touched(start: Start) -> None:
    """`process.json` names a living process, but with another start time: it belongs to somebody else now."""
    stranger = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        server = start("pass")
        assert eventually(lambda: server.exit() is not None)
        now = read_stat(stranger.pid)
        assert now is not None
        write_record(server.folder, replace(server.record, pid=stranger.pid, start_ticks=now.start_ticks - 1))
        proof = end_orphans(server.folder, limits=FAST, machine=QUIET)
        assert proof.clean, proof
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_nothing_is_killed_after_a_reboot(start: Start, run_id: str) -> None:
    server = start("import time; time.sleep(600)")
    write_record(server.folder, replace(server.record, machine_boot_id="another"))
    proof = end_orphans(server.folder, limits=FAST, machine=QUIET)
    assert proof.clean and "booted since" in proof.reason
    assert marked(run_id) == {server.handle.pid}


def test_group_of_a_dead_server_without_the_mark_is_reported_and_left_alone(tmp_path: Path, start: Start) -> None:
    doubtful = ProcessStat(4242, 1, 777, 777, 10**9, "S", "python", 0.0, 0.0, 1, 0)
    server = start("pass")

    def seen(target: Target) -> Members:
        return Members((), (doubtful,))

    def never(process: ProcessStat, number: int) -> bool:
        raise AssertionError("a process that is not proven ours was signalled")

    proof = end_orphans(server.folder, limits=FAST, machine=replace(QUIET, members=seen, send=never))
    assert not proof.clean
    assert "not proven ours, so not touched: python (pid 4242)" in proof.reason


def test_folder_without_a_launch_is_clean(tmp_path: Path) -> None:
    proof = end_orphans(tmp_path, machine=QUIET)
    assert proof.clean and read_record(tmp_path) is None


def test_unreadable_record_is_not_clean(tmp_path: Path) -> None:
    (tmp_path / "process.json").write_text("{")
    proof = end_orphans(tmp_path, machine=QUIET)
    assert not proof.clean and "cannot tell what was launched" in proof.reason
