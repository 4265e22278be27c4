from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace

import pytest

from runners.process.members import Target, describe, find_members, members, send
from runners.process.table import ProcessStat, read_stat, read_table
from tests.runners.process.conftest import Start, eventually, marked

RUNNER_STARTED = 100


def process(
    pid: int, ppid: int = 1, group: int | None = None, *, start: int = 200, state: str = "S", sid: int | None = None
) -> ProcessStat:
    group = pid if group is None else group
    return ProcessStat(pid, ppid, group, group if sid is None else sid, start, state, f"p{pid}", 0.0, 0.0, 1, 0)


TARGET = Target("run", RUNNER_STARTED, pid=10, start_ticks=200)


def found(
    processes: Iterable[ProcessStat], marks: AbstractSet[int] = frozenset(), target: Target = TARGET, never: frozenset[int] = frozenset()
) -> tuple[set[int], set[int]]:
    """Numbers that are (proven ours, doubtful)."""
    sorted_out = find_members(target, {p.pid: p for p in processes}, marks, never)
    return {p.pid for p in sorted_out.proven}, {p.pid for p in sorted_out.doubtful}


@pytest.mark.parametrize(
    ("processes", "marks", "proven", "doubtful"),
    [
        pytest.param([process(10), process(11, 10, 10), process(50)], set(), {10, 11}, set(), id="the server and its group"),
        pytest.param([process(10), process(11, 1, 99, sid=10)], set(), {10, 11}, set(), id="own group, same session"),
        pytest.param([process(10, state="Z"), process(11, 1, 10)], set(), {10, 11}, set(), id="an unreaped server still holds its number"),
        pytest.param(
            [process(10), process(11, 10, 11), process(12, 11, 12)], set(), {10, 11, 12}, set(), id="descendants in other sessions"
        ),
        pytest.param([process(10), process(77, 1, 77)], {77}, {10, 77}, set(), id="a daemon with the mark"),
        pytest.param([process(77), process(78, 77, 78)], {77}, {77, 78}, set(), id="children of a marked one that lost the mark"),
        pytest.param([process(11, 1, 10)], set(), set(), {11}, id="group of a server that is gone is only doubtful"),
        pytest.param([process(11, 1, 10, state="Z")], set(), set(), set(), id="a zombie is not even doubtful"),
        pytest.param([process(11, 1, 10)], {11}, {11}, set(), id="group of a server that is gone, with the mark"),
        pytest.param([process(10, start=900), process(11, 10, 10, start=901)], set(), set(), set(), id="the number was reused"),
        pytest.param([process(10), process(20, start=99)], {20}, {10}, set(), id="older than the runner is never ours"),
        pytest.param([process(10), process(21, 1, 10, start=99)], set(), {10}, set(), id="older than the runner, even in the group"),
    ],
)
def test_only_proven_processes_are_ours(processes: list[ProcessStat], marks: set[int], proven: set[int], doubtful: set[int]) -> None:
    assert found(processes, marks) == (proven, doubtful)


def test_runner_and_its_ancestors_are_never_members() -> None:
    assert found([process(10), process(30, 10), process(31, 30)], {30}, never=frozenset({30})) == ({10}, set())


def test_without_a_started_server_only_the_mark_counts() -> None:
    assert found([process(10), process(11)], {11}, target=Target("run", RUNNER_STARTED)) == ({11}, set())


GRANDCHILD = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        print("grandchild", os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""


@pytest.mark.parametrize("code", [GRANDCHILD, DAEMON], ids=["reparented in the group", "daemon in its own session"])
def test_orphan_whose_parents_are_gone_is_still_a_member(start: Start, code: str) -> None:
    server = start(code)
    assert eventually(lambda: b"\n" in server.log_path.read_bytes())
    orphan = int(server.log_path.read_text().split()[1])
    assert eventually(lambda: (read_table()[orphan].ppid) not in (server.handle.pid, 0))
    assert server.members().pids == {server.handle.pid, orphan}
    os.kill(server.handle.pid, signal.SIGKILL)
    assert eventually(lambda: server.exit() is not None)
    assert server.members().pids == {orphan}


def test_neighbours_and_the_test_itself_are_not_members(start: Start, run_id: str) -> None:
    neighbour = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        server = start("import time; time.sleep(600)")
        assert server.members().pids == {server.handle.pid} == marked(run_id)
    finally:
        neighbour.kill()
        neighbour.wait()


def test_members_of_an_unknown_run_are_none() -> None:
    assert members(Target("test-never-started", 0)).proven == ()


def test_signal_is_not_sent_to_a_number_that_belongs_to_another_process(start: Start) -> None:
    server = start("import time; time.sleep(600)")
    now = read_stat(server.handle.pid)
    assert now is not None
    assert send(replace(now, start_ticks=now.start_ticks - 1), signal.SIGKILL) is False
    assert server.exit() is None
    assert send(now, signal.SIGKILL) is True
    assert eventually(lambda: server.exit() is not None)
    server.reap()
    assert send(now, signal.SIGKILL) is False


def test_description_names_at_most_five() -> None:
    assert describe([process(n) for n in range(1, 8)]) == "p1 (pid 1), p2 (pid 2), p3 (pid 3), p4 (pid 4), p5 (pid 5) and 2 more"
