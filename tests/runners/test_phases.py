"""What is refused or said before anything is installed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from results.boot_folder import BootSummary, new_run_id
from results.records import NodeRecord, RunRecord
from results.store import Store
from results.vocabulary import Outcome
from runners.boot import Boot
from runners.errors import Unsupported
from runners.failure import PhaseFailure
from runners.memory_fit import GB10_TOTAL_BYTES
from runners.models import materialise
from runners.phases import resolve
from runners.plan import Cell
from runners.recorder import Recorder
from runners.serve_request import serve_command, serve_request
from runners.spec import EngineSpec
from suites.backends import Expressed, backend_for, express
from suites.recipes import Recipe, recipe_for
from suites.workloads import STANDARD_WORKLOADS

GB10 = NodeRecord("n", "spark", gpu_name="NVIDIA GB10", compute_capability="12.1", memory_total_bytes=GB10_TOTAL_BYTES)


def _cell(recipe: str | Recipe, engine: str = "vllm==0.33.0", backend: str = "default") -> Cell:
    spec, chosen = EngineSpec.parse(engine), backend_for(backend)
    found = recipe_for(recipe) if isinstance(recipe, str) else recipe
    return Cell(spec, found, chosen, STANDARD_WORKLOADS, express(chosen, spec.name, spec.version or ""))


def _boot(tmp_path: Path, cell: Cell, node: NodeRecord = GB10) -> Boot:
    run = RunRecord(new_run_id(), "s", "c", "e", "vllm", "1", "venv", "r", "b", "n", 1, "2026-11-30T13:05:01+00:00")
    recorder = Recorder(Store(tmp_path), BootSummary(run, node))
    recorder.begin()
    return Boot(cell, recorder, node, tmp_path / "cache", True, lambda line: None)


@pytest.mark.parametrize(
    ("recipe", "engine", "words"),
    [
        ("glm-5.3-moe-layer", "vllm==0.33.0", "glm-5.3-moe-layer cannot be served: "),
        ("minimax-m3-nvfp4", "vllm==0.33.0", "reported on 2 nodes; one boot uses one node"),
        ("ling-3.0-flash", "vllm==0.27.1", "needs vllm 0.28.0 or newer, not 0.27.1"),
        ("ling-3.0-flash", "vllm==0.28.0", "ling-3.0-flash does not fit: its recipe asks for 300 GB"),
    ],
)
def test_what_cannot_be_served_here_is_unsupported_with_its_reason(tmp_path: Path, recipe: str, engine: str, words: str) -> None:
    with pytest.raises(PhaseFailure) as failure:
        resolve(_boot(tmp_path, _cell(recipe, engine)))
    assert failure.value.outcome is Outcome.UNSUPPORTED
    assert words in failure.value.reason


def test_memory_of_a_discrete_gpu_is_not_known_so_nothing_is_refused_and_it_is_said(tmp_path: Path) -> None:
    boot = _boot(tmp_path, _cell("ling-3.0-flash"), dataclasses.replace(GB10, compute_capability="9.0"))
    resolve(boot)
    assert "The memory of this node is not known, so nothing is refused." in boot.recorder.run.warnings


def test_known_bad_combinations_are_said_with_their_link(tmp_path: Path) -> None:
    boot = _boot(tmp_path, _cell("gpt-oss-120b"))
    resolve(boot)
    reports = recipe_for("gpt-oss-120b").known_bad_for("vllm", "0.33.0")
    assert reports
    said = [w for w in boot.recorder.run.warnings if w.startswith("reported broken")]
    assert [report.link in line for report, line in zip(reports, said, strict=True)] == [True] * len(reports)


def test_a_canary_needs_no_arithmetic_and_no_warning(tmp_path: Path) -> None:
    boot = _boot(tmp_path, _cell("canary-dense"))
    resolve(boot)
    assert boot.recorder.run.warnings == ()


def test_an_unpublished_model_is_refused_with_its_reason(tmp_path: Path) -> None:
    recipe = recipe_for("glm-5.3-moe-layer")
    with pytest.raises(Unsupported) as refused:
        materialise(recipe, tmp_path, lambda line: None)
    assert recipe.source.unpublished is not None
    assert recipe.source.unpublished in str(refused.value)


def test_variables_of_recipe_and_backend_reach_the_server_and_the_backends_win() -> None:
    recipe = recipe_for("canary-dense").model_copy(update={"environment": {"vllm": {"A": "recipe", "B": "recipe"}, "sglang": {"C": "x"}}})
    cell = dataclasses.replace(_cell(recipe), expressed=Expressed(environment={"B": "backend"}))
    request = serve_request(cell, model_path="/m", served_name="m", port=1, has_cuda=False)
    assert dict(request.environment) == {"A": "recipe", "B": "backend"}
    command = serve_command(cell, Path("/e/bin/python"), request)
    assert {"A": "recipe", "B": "backend"}.items() <= command.environment.items()
    assert "C" not in command.environment


@pytest.mark.parametrize(("engine", "said"), [("vllm==0.30.0", True), ("sglang==0.5.23", True), ("vllm==0.32.0", False)])
def test_a_vocabulary_that_a_chat_would_download_is_said_before_the_boot(tmp_path: Path, engine: str, said: bool) -> None:
    boot = _boot(tmp_path, _cell("gpt-oss-120b", engine))
    resolve(boot)
    assert any("o200k_base.tiktoken" in warning for warning in boot.recorder.run.warnings) is said


@pytest.mark.parametrize("argument", ["--trust-remote-code", "--trust_remote_code=true"])
def test_a_recipe_that_runs_a_repositorys_code_says_so_in_the_result(tmp_path: Path, argument: str) -> None:
    trusting = recipe_for("canary-dense").model_copy(update={"arguments": {"vllm": (argument,)}})
    boot = _boot(tmp_path, _cell(trusting))
    resolve(boot)
    assert [w for w in boot.recorder.run.warnings if "run code out of the model's repository" in w]
