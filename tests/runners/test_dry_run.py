"""`run --dry-run`: the command that would run, container included, and what its pre-flight would say."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from results.records import NodeRecord
from runners.dry_run import commands_of, notes_of
from runners.engines.base import ServeCommand
from runners.memory_fit import GB10_TOTAL_BYTES
from runners.plan import Cell, PlannedBoot
from runners.spec import EngineSpec
from suites.backends import backend_for, express
from suites.recipes import recipe_for
from suites.workloads import STANDARD_WORKLOADS

GB10 = NodeRecord("n", "spark", gpu_name="NVIDIA GB10", compute_capability="12.1", memory_total_bytes=GB10_TOTAL_BYTES)


def _shown(tmp_path: Path, engine: str, model: str = "gpt-oss-120b", backend: str = "default") -> ServeCommand | str:
    return commands_of([PlannedBoot(_cell(engine, model, backend), 1, 1)], GB10, tmp_path)[0][1]


def _cell(engine: str, model: str = "gpt-oss-120b", backend: str = "default") -> Cell:
    spec, chosen = EngineSpec.parse(engine), backend_for(backend)
    return Cell(spec, recipe_for(model), chosen, STANDARD_WORKLOADS, express(chosen, spec.name, spec.version or ""))


def test_a_containers_command_is_the_docker_run_that_would_be_made(tmp_path: Path) -> None:
    command = _shown(tmp_path, "vllm==0.28.0@docker", backend="marlin")
    assert isinstance(command, ServeCommand)
    assert command.argv[:3] == ("docker", "run", "--detach")
    image = command.argv.index("vllm/vllm-openai:v0.28.0")
    assert command.argv[image - 2 : image] == ("--entrypoint", "python3")
    assert {"--gpus", "--ipc", "--publish"} <= set(command.argv[:image])
    inner = command.argv[image + 1 :]
    assert inner[:3] == ("-m", "vllm.entrypoints.cli.main", "serve")
    assert inner[inner.index("--moe-backend") + 1] == "marlin"
    assert "--moe-backend" not in command.argv[:image]


def test_an_environments_command_is_not_wrapped(tmp_path: Path) -> None:
    command = _shown(tmp_path, "vllm==0.28.0")
    assert isinstance(command, ServeCommand)
    assert command.argv[0] == "<environment of vllm==0.28.0>/bin/python"


@pytest.mark.parametrize(
    ("engine", "model", "backend", "words"),
    [
        ("vllm==0.16.0", "gpt-oss-120b", "marlin", "unsupported: vllm 0.16.0: --moe-backend exists from 0.17.0"),
        ("vllm==0.33.0", "ling-3.0-flash", "default", "unsupported: ling-3.0-flash does not fit: its recipe asks for 300 GB"),
        ("vllm==0.33.0", "glm-5.3-moe-layer", "default", "unsupported: glm-5.3-moe-layer cannot be served"),
        ("vllm==0.32.0@endpoint:http://127.0.0.1:9", "gpt-oss-120b", "default", "attaches to http://127.0.0.1:9"),
    ],
)
def test_a_boot_that_would_not_start_says_why(tmp_path: Path, engine: str, model: str, backend: str, words: str) -> None:
    shown = _shown(tmp_path, engine, model, backend)
    assert isinstance(shown, str)
    assert words in shown


def test_what_the_preflight_would_warn_of_is_part_of_the_plan(tmp_path: Path) -> None:
    (missing,) = notes_of(_cell("vllm==0.30.0"), GB10, tmp_path)
    assert "o200k_base.tiktoken" in missing
    assert notes_of(_cell("vllm==0.32.0"), GB10, tmp_path) == ()
    unknown = dataclasses.replace(GB10, compute_capability="9.0")
    assert [note for note in notes_of(_cell("vllm==0.32.0"), unknown, tmp_path) if "not known" in note]
