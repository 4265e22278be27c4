"""The planted engine in a container of the stand-in for `docker` (`tests/runners/launchers/fake_docker.py`).

As a program it is the `sparkproof` command with the one check left out that no stand-in can pass: that the kernel counts a container's
processes to it (their cgroup).
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from runners.launchers import docker
from tests.planted import REPOSITORY, Planted

IMAGE = "vllm/vllm-openai:v0.32.0"
DIGEST = "vllm/vllm-openai@sha256:" + "c3" * 32
_ARCHITECTURE = {"aarch64": "arm64", "x86_64": "amd64"}
_PYTHON3 = """#!/bin/sh
shift 2
exec {python} {engine} "$@"
"""


@dataclass(frozen=True)
class PlantedDocker(Planted):
    """A planted world whose `docker` program is the stand-in, with `IMAGE` pulled."""

    @property
    def state(self) -> Path:
        """Folder of the stand-in."""
        return self.root / "docker-state"

    def environment(self, **more: str) -> dict[str, str]:
        """See Planted."""
        path = f"{self.root / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return super().environment(**{"PATH": path, "FAKE_DOCKER": str(self.state), **more})

    def command(self, *arguments: str) -> list[str]:
        """See Planted."""
        return [sys.executable, "-m", "tests.planted_docker", *arguments]

    def arguments(self) -> tuple[str, ...]:
        """Of `run`, for the planted image."""
        return ("run", "--engine", f"vllm=={self.version}@docker", "--model", "canary-dense", "--repeats", "1", "--json")

    def calls(self, *beginning: str) -> list[list[str]]:
        """What `docker` was asked, as far as it begins so."""
        argvs = [json.loads(line)["argv"] for line in (self.state / "calls.jsonl").read_text().splitlines()]
        return [argv for argv in argvs if argv[: len(beginning)] == list(beginning)]

    def containers(self) -> list[str]:
        """Names of containers that exist, running or not."""
        return [p.parent.name for p in (self.state / "containers").glob("*/container.json")]


def plant_docker(root: Path, version: str = "0.32.0") -> PlantedDocker:
    """Make the stand-in and its image below `root`."""
    planted = PlantedDocker(root, version)
    (planted.state / "containers").mkdir(parents=True)
    (root / "bin").mkdir()
    programs = {
        root / "bin" / "docker": f'#!/bin/sh\nexec {sys.executable} -IS {REPOSITORY / "tests/runners/launchers/fake_docker.py"} "$@"\n',
        root / "python3-inside": _PYTHON3.format(python=sys.executable, engine=REPOSITORY / "tests" / "planted_engine.py"),
    }
    for path, text in programs.items():
        path.write_text(text)
        path.chmod(0o755)
    image = {"Id": "sha256:" + "a1" * 32, "RepoDigests": [DIGEST], "Architecture": _ARCHITECTURE.get(platform.machine(), "")}
    (planted.state / "behaviour.json").write_text(json.dumps({"programs": {"python3": str(root / "python3-inside")}, "pulled": image}))
    (planted.state / "images.json").write_text(json.dumps({IMAGE: image}))
    (planted.state / "calls.jsonl").touch()
    return planted


if __name__ == "__main__":
    from runners.cli.main import main

    assert docker.launch.__kwdefaults__ is not None
    docker.launch.__kwdefaults__["is_inside"] = lambda pid, container_id: True
    main()
