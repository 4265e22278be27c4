"""Whole boots of `@docker` through the command line: the scripted engine in a container of the stand-in for docker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from results.store import Store
from runners.process.members import MARK
from tests.planted_docker import DIGEST, PlantedDocker, plant_docker

_LONGEST_S = 120.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PlantedDocker]:
    """A world with a stand-in for docker; no process of its boots may live when the test is over."""
    planted = plant_docker(tmp_path)
    yield planted
    left = _living(planted)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def _living(planted: PlantedDocker) -> list[int]:
    runs = {folder.name for folder in (planted.home / "boots").glob("*")}
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) in runs and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def _run(planted: PlantedDocker, *more: str, **environment: str) -> tuple[int, Any, str]:
    done = planted.sparkproof(*planted.arguments(), *more, timeout_s=_LONGEST_S, **environment)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr


def test_a_good_container_passes_is_recorded_by_digest_and_leaves_nothing(world: PlantedDocker) -> None:
    code, shown, said = _run(world)
    assert code == 0, said
    (cell,) = shown["cells"]
    assert (cell["outcome"], cell["gate_matched"]) == ("pass", 89)
    store = Store(world.home)
    (build,) = store.query("SELECT * FROM engine_builds")
    assert (build["image_digest"], build["distribution"], build["wheels"]) == (DIGEST, "docker", [])
    (run,) = store.query("SELECT * FROM runs")
    assert run["build_id"] == build["build_id"] == "a1" * 32
    (started,) = world.calls("run")
    assert run["command"] == ["docker", *started]
    assert world.containers() == []
    folder = world.home / "boots" / run["run_id"]
    assert "vLLM API server version" in (folder / "server.log").read_text()
    script = (folder / "serve.sh").read_text()
    subprocess.run(["bash", "-n", str(folder / "serve.sh")], check=True)
    assert DIGEST in script
    assert "--label" not in script
    assert "--detach" not in script
    again = world.sparkproof("serve-script", run["run_id"])
    assert again.returncode == 0, again.stderr
    assert _code(again.stdout) == _code(script)
    assert DIGEST in again.stdout.partition("set -euo pipefail")[0]


def _code(script: str) -> list[str]:
    return [line for line in script.splitlines() if line and not line.startswith("#")]


def test_a_container_that_crashes_gets_its_outcome_and_is_removed(world: PlantedDocker) -> None:
    code, shown, said = _run(world, SCRIPTED_BOOT="crash")
    assert code == 1, said
    (cell,) = shown["cells"]
    assert cell["outcome"] == "crash"
    assert "exited with code 1" in cell["reason"]
    assert world.containers() == []


def test_a_missing_image_is_infrastructure_and_says_what_docker_said(world: PlantedDocker) -> None:
    (world.state / "images.json").write_text("{}")
    behaviour = json.loads((world.state / "behaviour.json").read_text())
    (world.state / "behaviour.json").write_text(json.dumps({**behaviour, "pull": "manifest unknown"}))
    code, shown, said = _run(world)
    assert code == 3, said
    assert "there is no such image" in shown["cells"][0]["reason"]
    assert not world.calls("run")


def test_the_container_of_a_killed_runner_is_gone_once_the_next_one_starts(world: PlantedDocker) -> None:
    runner = subprocess.Popen(world.command(*world.arguments()), env=world.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _wait_for_phase(world, runner, "coherence")
    runner.kill()
    runner.communicate(timeout=30)
    (left,) = world.containers()
    code, _, said = _run(world)
    assert code == 0, said
    assert world.containers() == []
    first, second = Store(world.home).query("SELECT run_id, outcome, reason FROM runs ORDER BY started_at, run_id")
    assert (left, first["outcome"], second["outcome"]) == (f"sparkproof-{first['run_id']}", "interrupted", "pass")
    assert f"the container {left} is removed" in first["reason"]


def test_a_container_that_passed_is_kept_on_request_and_the_next_start_leaves_it_alone(world: PlantedDocker) -> None:
    code, _, said = _run(world, "--keep-server")
    assert code == 0, said
    (kept,) = world.containers()
    assert f"docker rm --force {kept}" in said
    code, _, said = _run(world)
    assert code == 3, "a server that was left running takes its share of what is measured"
    assert f"docker rm --force {kept}" in " ".join(said.split())
    code, _, said = _run(world, "--beside-kept")
    assert code == 0, said
    assert world.containers() == [kept]
    subprocess.run([str(world.root / "bin" / "docker"), "rm", "--force", kept], env=world.environment(), check=True, capture_output=True)
    _wait_until_nobody_lives(world)


def _wait_until_nobody_lives(world: PlantedDocker) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while _living(world) and time.monotonic() < deadline:
        time.sleep(0.02)


def _wait_for_phase(world: PlantedDocker, runner: subprocess.Popen[bytes], phase: str) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        for path in (world.home / "boots").glob("*/run.json"):
            if json.loads(path.read_text())["run"]["phase"] == phase:
                return
        assert runner.poll() is None, runner.stderr.read() if runner.stderr else ""
        time.sleep(0.02)
    pytest.fail(f"phase {phase} was never reached")
