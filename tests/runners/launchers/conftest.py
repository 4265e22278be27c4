from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runners.launchers.docker_cli import Docker

SERVES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("engine starts", flush=True)
signal.pause()
"""
IGNORES_TERM = SERVES.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN").replace("signal.pause()", "while True: signal.pause()")
DIES = 'print("RuntimeError: no kernel image is available", flush=True); raise SystemExit(3)'

IMAGE = {
    "Id": "sha256:" + "a1" * 32,
    "RepoDigests": ["other/name@sha256:" + "b2" * 32, "vllm/vllm-openai@sha256:" + "c3" * 32],
    "Architecture": "arm64",
}


@dataclass
class Stand:
    """A folder with a stand-in for docker, and what it was asked."""

    docker: Docker
    state: Path

    def behave(self, **behaviour: Any) -> None:
        now = json.loads((self.state / "behaviour.json").read_text())
        (self.state / "behaviour.json").write_text(json.dumps({**now, **behaviour}))

    def calls(self, *beginning: str) -> list[list[str]]:
        lines = (self.state / "calls.jsonl").read_text().splitlines()
        argvs = [json.loads(line)["argv"] for line in lines]
        return [argv for argv in argvs if argv[: len(beginning)] == list(beginning)]

    def containers(self) -> list[str]:
        return [p.parent.name for p in (self.state / "containers").glob("*/container.json")]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    state = tmp_path / "docker-state"
    (state / "containers").mkdir(parents=True)
    (state / "behaviour.json").write_text(json.dumps({"content": SERVES, "pulled": IMAGE}))
    (state / "images.json").write_text(json.dumps({"vllm/vllm-openai:v0.28.0": IMAGE}))
    (state / "calls.jsonl").touch()
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {Path(__file__).parent / "fake_docker.py"} "$@"\n')
    program.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "FAKE_DOCKER": str(state)}
    yield Stand(Docker(str(program), environment), state)
    for pid in (state / "containers").glob("*/pid"):
        if not (pid.parent / "exit").exists():
            with suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGKILL)
