"""Real child processes for the tests, and the proof that none of them is left."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.engines.base import ServeCommand
from runners.process.members import MARK, send
from runners.process.server import ServerProcess, launch
from runners.process.table import carries, read_table

Start = Callable[..., ServerProcess]


def marked(run_id: str) -> set[int]:
    """Living processes that carry the mark of this run, by an independent look."""
    return {pid for pid, p in read_table().items() if p.alive and carries(pid, MARK, run_id)}


def eventually(true: Callable[[], object], seconds: float = 20.0) -> bool:
    """Whether `true()` becomes true; the limit is generous, since a busy machine must not fail a test."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return False


def python_command(code: str, **environment: str) -> ServeCommand:
    """A command that runs `code` in a fresh interpreter."""
    return ServeCommand((sys.executable, "-I", "-S", "-c", code), environment)


def never_needs_memory() -> int:
    """A used-memory reader for tests that are not about memory."""
    return 0


@pytest.fixture
def run_id() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def start(tmp_path: Path, run_id: str) -> Iterator[Start]:
    """Launch a server that runs Python code; whatever is left of it is killed at the end, and must then be gone."""
    started: list[ServerProcess] = []

    def begin(code: str, *, port: int = 1, **environment: str) -> ServerProcess:
        folder = tmp_path / f"boot{len(started)}"
        folder.mkdir()
        server = launch(
            python_command(code, **environment), folder, run_id, port, used_memory=never_needs_memory, private_memory=never_needs_memory
        )
        started.append(server)
        return server

    yield begin
    for server in started:
        for process in server.members().alive:
            send(process, signal.SIGKILL)
        if server.handle.returncode is None:
            server.handle.wait(20)
    table = read_table()
    for pid in marked(run_id):
        send(table[pid], signal.SIGKILL)
    assert eventually(lambda: not marked(run_id)), f"left behind: {marked(run_id)}"


@pytest.fixture(autouse=True)
def no_children_left() -> Iterator[None]:
    """No test may leave a child of the test process behind, not even a zombie."""
    before = {pid for pid, p in read_table().items() if p.ppid == os.getpid()}
    yield
    after = {pid: p for pid, p in read_table().items() if p.ppid == os.getpid() and pid not in before}
    assert not after, f"children left: {after}"
