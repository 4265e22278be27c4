from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runners.errors import InfrastructureError
from runners.node.lock import LockOwner, NodeBusy, node_lock, read_owner

WHEN = datetime(2026, 11, 30, 13, 7, tzinfo=UTC)
ROOT = str(Path(__file__).parents[3])

HOLD = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from runners.node.lock import node_lock
with node_lock(Path(sys.argv[2]), ["sparkproof", "nightly", "--api-key", "s3cr3t"]):
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    time.sleep(600)
"""


Holder = tuple[subprocess.Popen[bytes], int]


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    """Another runner that holds the lock and has started a server: (runner process, server's number)."""
    runner = subprocess.Popen([sys.executable, "-c", HOLD, ROOT, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True)
    assert runner.stdout is not None
    server = int(runner.stdout.readline())
    yield runner, server
    os.killpg(runner.pid, signal.SIGKILL)
    runner.communicate()


def test_second_runner_is_told_whom_it_waits_for_and_gives_up(holder: Holder, tmp_path: Path) -> None:
    runner, _ = holder
    told: list[LockOwner | None] = []
    with pytest.raises(NodeBusy) as busy, node_lock(tmp_path, ["run"], wait_s=0.1, on_wait=told.append):
        raise AssertionError("two runners hold the node")
    assert isinstance(busy.value, InfrastructureError)
    assert [owner.pid for owner in told if owner] == [runner.pid]
    assert busy.value.owner is not None and busy.value.owner.command == ("sparkproof", "nightly", "--api-key", "[redacted]")
    assert f"pid {runner.pid}" in str(busy.value) and "s3cr3t" not in str(busy.value)


def test_lock_of_a_killed_runner_is_free_although_its_server_lives(holder: Holder, tmp_path: Path) -> None:
    runner, server = holder
    runner.kill()
    runner.wait()
    assert Path(f"/proc/{server}").exists()
    with node_lock(tmp_path, ["run"], wait_s=20, now=lambda: WHEN):
        owner = read_owner(tmp_path)
        assert owner is not None and (owner.since, owner.command) == ("2026-11-30T13:07:00+00:00", ("run",))
    assert read_owner(tmp_path) is None


def test_waiting_runner_goes_on_when_the_first_is_done(tmp_path: Path) -> None:
    order: list[str] = []
    waiting, holding, release = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with node_lock(tmp_path, ["first"]):
            holding.set()
            release.wait(20)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert holding.wait(20)

    def on_wait(owner: LockOwner | None) -> None:
        waiting.set()
        release.set()

    with node_lock(tmp_path, ["second"], on_wait=on_wait):
        order.append("second")
    thread.join()
    assert waiting.is_set() and order == ["first", "second"]


def test_lock_is_released_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="boom"), node_lock(tmp_path / "state", ["a"]):
        raise OSError("boom")
    with node_lock(tmp_path / "state", ["b"], wait_s=0):
        assert read_owner(tmp_path / "state") is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "since": "", "command": []}', '{"pid": 1}', "null"])
def test_unreadable_owner_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "measuring.json").write_text(text)
    assert read_owner(tmp_path) is None
    assert "unknown process" in str(NodeBusy(None, 3.0))


def test_owner_is_shown_without_escapes() -> None:
    assert "\x1b" not in str(LockOwner(1, "now", ("\x1b[2J",)))
