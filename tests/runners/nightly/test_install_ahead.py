from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from runners.nightly.install_ahead import InstallAhead, command_for
from runners.spec import EngineSpec

ROOT = Path("/cache")


def cell(spec: str) -> Any:
    return SimpleNamespace(spec=EngineSpec.parse(spec))


class Started:
    """Starts real processes that sleep until ended, and keeps the commands."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self.commands.append(list(command))
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        self.processes.append(process)
        return process


def test_one_install_at_a_time_and_none_is_left_when_the_night_ends() -> None:
    started = Started()
    with InstallAhead(ROOT, has_cuda=True, start=started) as ahead:
        ahead.next(cell("vllm==0.32.0"))
        ahead.next(cell("vllm==0.31.0"))
        assert started.commands == [list(command_for(EngineSpec.parse("vllm==0.32.0"), ROOT, has_cuda=True))]
        assert "--cuda" in started.commands[0]
    assert started.processes[0].wait(10) != 0
    assert not psutil.pid_exists(started.processes[0].pid) or started.processes[0].poll() is not None


@pytest.mark.parametrize("spec", ["vllm==0.32.0@endpoint:http://127.0.0.1:8000", "vllm==0.32.0@docker:img"])
def test_what_needs_no_environment_is_not_installed(spec: str) -> None:
    started = Started()
    with InstallAhead(ROOT, has_cuda=False, start=started) as ahead:
        ahead.next(cell(spec))
        ahead.next(None)
    assert started.commands == []


def test_an_environment_is_asked_for_once() -> None:
    started = Started()
    with InstallAhead(ROOT, has_cuda=False, start=started) as ahead:
        ahead.next(cell("vllm==0.32.0"))
        started.processes[0].kill()
        started.processes[0].wait()
        ahead.next(cell("vllm==0.32.0"))
        assert len(started.commands) == 1
        ahead.next(cell("vllm==0.31.0"))
        assert len(started.commands) == 2


def test_the_installing_process_is_idle_whenever_anything_else_wants_to_run(tmp_path: Path) -> None:
    """The real child: its priority is read while it looks for a release that does not exist."""
    script = "import runners.nightly.install_ahead as a, time; a.lowest_priority(); print('ready', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        child = psutil.Process(process.pid)
        assert child.nice() == 19
        assert child.ionice().ioclass == psutil.IOPRIO_CLASS_IDLE
    finally:
        process.kill()
        process.communicate()


def test_an_install_that_fails_is_left_to_the_boot_that_needs_it(tmp_path: Path) -> None:
    command = command_for(EngineSpec.parse("sglang==0.0.1"), tmp_path, has_cuda=False)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
