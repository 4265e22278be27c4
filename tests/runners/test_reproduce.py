"""Scripts for a bug report: of a boot in the store, and of a boot that was not made."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from results.boot_folder import BootSummary
from results.records import EngineBuildRecord, NodeRecord, RecipeRecord, RunRecord
from results.vocabulary import Outcome
from runners.envs.by_hand import commands_by_hand
from runners.envs.recipes import InstallPlan
from runners.errors import UsageError
from runners.plan import Cell
from runners.process.serve_script import container_by_hand
from runners.reproduce import script_of_plan, script_of_run
from runners.spec import EngineSpec
from runners.vocabulary_file import OfflineVocabulary
from suites.backends import backend_for, express
from suites.recipes import recipe_for
from suites.workloads import STANDARD_WORKLOADS
from tests.planted import Planted

RUN = RunRecord(
    run_id="20261130T130501Z-1f00ab42",
    session_id="s",
    cell_id="c",
    series_id="e",
    engine="vllm",
    engine_version="0.32.0",
    distribution="venv",
    recipe_name="r",
    backend_name="eager",
    node_id="n",
    protocol_version=1,
    started_at="2026-11-30T13:05:01+00:00",
    outcome=Outcome.PASS,
    command=(sys.executable, "-c", "import os, sys; print(os.environ['VLLM_X'], sys.argv[1:])", "two words", '{"a": 1}'),
    environment={"VLLM_X": "it's $HOME", "HF_TOKEN": "[redacted]"},
    server_version="0.32.0",
)
SUMMARY = BootSummary(
    RUN,
    NodeRecord("n", "spark \x1b[31mred\nexit 1", gpu_name="NVIDIA GB10"),
    EngineBuildRecord("abc123", "vllm", "0.32.0", "venv", "3.12.1", ("torch==2.13.0", "vllm==0.32.0")),
    RecipeRecord("i", "r", "maker/model", "0123abc", None, "model"),
)
CONTAINER = (
    "docker run --detach --pull never --init --name sparkproof-x --label sparkproof.run_id=x --label sparkproof.runner=7:8:b --gpus all"
    " --ipc host --publish 127.0.0.1:8000:8000/tcp --log-driver json-file --log-opt max-size=1g --log-opt max-file=2"
    " --env HOME=/sparkproof-home --env MODEL_TOKEN --env SPARKPROOF_RUN_ID=x --entrypoint python3 image@sha256:aa -m vllm --name kept"
)


def _checked(text: str, folder: Path) -> Path:
    path = folder / "serve.sh"
    path.write_text(text)
    subprocess.run(["bash", "-n", str(path)], check=True)
    return path


def test_the_script_of_a_boot_runs_its_command_and_names_everything(tmp_path: Path) -> None:
    text = script_of_run(SUMMARY)
    path = _checked(text, tmp_path)
    done = subprocess.run(["bash", str(path)], check=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    assert done.stdout == "it's $HOME ['two words', '{\"a\": 1}']\n"
    for words in ("vllm 0.32.0", "maker/model, revision 0123abc", "digest abc123", "torch==2.13.0 vllm==0.32.0", "NVIDIA GB10", "uv venv"):
        assert words in text
    assert "\x1b" not in text
    assert "\nexit 1" not in text, "a label with a line break stays a comment"


def test_a_boot_without_a_server_of_ours_has_no_script() -> None:
    with pytest.raises(UsageError, match="no server was started"):
        script_of_run(dataclasses.replace(SUMMARY, run=dataclasses.replace(RUN, command=())))


def test_a_container_by_hand_has_no_marks_of_ours_and_shows_no_secret() -> None:
    command = container_by_hand(CONTAINER.split(), {"MODEL_TOKEN": "s3cret", "VLLM_X": "1"})
    assert " ".join(command.argv) == (
        "docker run --rm --interactive --init --gpus all --ipc host --publish 127.0.0.1:8000:8000/tcp"
        " --env HOME=/sparkproof-home --env MODEL_TOKEN --entrypoint python3 image@sha256:aa -m vllm --name kept"
    )
    assert set(command.environment) == {"MODEL_TOKEN"}
    run = dataclasses.replace(RUN, distribution="docker", command=tuple(CONTAINER.split()), environment={"MODEL_TOKEN": "[redacted]"})
    build = EngineBuildRecord("b", "vllm", "0.32.0", "docker", image_digest="image@sha256:aa")
    text = script_of_run(dataclasses.replace(SUMMARY, run=run, build=build))
    assert "export MODEL_TOKEN='[redacted]'" in text
    assert "Image:   image@sha256:aa" in text


def _cell(engine: str, recipe: str = "canary-dense", backend: str = "marlin") -> Cell:
    spec, chosen = EngineSpec.parse(engine), backend_for(backend)
    return Cell(spec, recipe_for(recipe), chosen, STANDARD_WORKLOADS, express(chosen, spec.name, spec.version or ""))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm==0.32.0", ["uv venv", "exec vllm-0.32.0/bin/python", "--moe-backend", "Not measured"]),
        ("vllm==0.28.0@docker", ["exec docker", "vllm/vllm-openai:v0.28.0", "--gpus", "0.0.0.0", "127.0.0.1:8000:8000/tcp"]),
    ],
)
def test_the_script_of_a_plan_has_version_flags_and_origin(tmp_path: Path, engine: str, words: list[str]) -> None:
    text = script_of_plan(_cell(engine), tmp_path, cuda=True)
    _checked(text, tmp_path)
    assert [word for word in words if word not in text] == []


def test_a_pinned_model_that_is_not_here_is_named_with_its_revision(tmp_path: Path) -> None:
    cell = _cell("vllm==0.33.0@docker", "gpt-oss-120b")
    pinned = dataclasses.replace(cell, recipe=cell.recipe.model_copy(update={"revision": "f" * 40}))
    text = script_of_plan(pinned, tmp_path, cuda=True)
    assert f"    --revision {'f' * 40}\n" in text


def test_a_script_for_gpt_oss_names_the_vocabulary_or_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TIKTOKEN_RS_CACHE_DIR", "TIKTOKEN_ENCODINGS_BASE"):
        monkeypatch.delenv(variable, raising=False)
    cell = _cell("vllm==0.30.0@docker", "gpt-oss-120b")
    without = script_of_plan(cell, tmp_path, cuda=True)
    assert f"at {tmp_path}/vocabularies/fb374d419588a4632f3f557e76b4b70aebbca790" in without
    found = OfflineVocabulary({"TIKTOKEN_RS_CACHE_DIR": str(tmp_path)}, tmp_path)
    monkeypatch.setattr("runners.reproduce.offline_vocabulary", lambda *arguments: found)
    text = script_of_plan(cell, tmp_path, cuda=True)
    assert f"    --env TIKTOKEN_RS_CACHE_DIR={tmp_path} \\\n" in text
    assert f"    --mount type=bind,source={tmp_path},target={tmp_path},readonly \\\n" in text


def test_a_script_has_one_option_with_its_values_a_line(tmp_path: Path) -> None:
    text = script_of_plan(_cell("vllm==0.32.0", "gpt-oss-120b", "marlin+ngram"), tmp_path, cuda=True)
    assert "exec vllm-0.32.0/bin/python \\\n    -m vllm.entrypoints.cli.main serve openai/gpt-oss-120b \\\n" in text
    assert '    --speculative-config \'{"method": "ngram"' in text


@pytest.mark.parametrize(
    ("engine", "recipe", "backend", "words"),
    [
        ("vllm==0.16.0", "canary-dense", "marlin", "--moe-backend exists from 0.17.0"),
        ("vllm==0.33.0", "minimax-m3-nvfp4", "default", "reported on 2 nodes"),
        ("vllm==0.33.0@endpoint:http://127.0.0.1:1", "canary-dense", "default", "runs already"),
    ],
)
def test_what_would_not_start_has_no_script(tmp_path: Path, engine: str, recipe: str, backend: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        script_of_plan(_cell(engine, recipe, backend), tmp_path, cuda=True)


def test_commands_by_hand_hold_every_part_of_the_plan() -> None:
    plan = InstallPlan("e", "1", ("e==1", "torch==2"), ">=3.11", ("bad",), ("x==1",), "cu130", (("mod", ("mod",)),))
    assert commands_by_hand(plan, "my env") == (
        "uv venv --no-project --python '>=3.11' 'my env'",
        "printf '%s\\n' x==1 'bad; python_version < '\"'\"'0'\"'\"'' > 'my env/overrides.txt'",
        "uv pip install --python 'my env/bin/python' --torch-backend cu130 --overrides 'my env/overrides.txt' e==1 torch==2",
        "# and importable, empty stand-ins for: mod (`sparkproof run` makes them)",
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Give RUN, or --recipe R --engine"),
        (("--recipe", "canary-dense"), "Give RUN, or --recipe R --engine"),
        (("x", "--recipe", "canary-dense"), "Give either RUN, or"),
        (("--recipe", "canary-dense", "--engine", "vllm==1@docker", "--docker"), "say the same twice"),
        (("--recipe", "canary-dense", "--engine", "foo==1", "--docker"), "is not an engine we know"),
    ],
)
def test_contradictory_questions_are_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = Planted(tmp_path, "0.32.0").sparkproof("serve-script", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())


def test_the_docker_form_gives_docker_exactly_these_arguments(tmp_path: Path) -> None:
    """Run for real, with a `docker` that repeats what it is given."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    program.chmod(0o755)
    script = tmp_path / "serve.sh"
    script.write_text(script_of_plan(_cell("vllm==0.32.0@docker", "gpt-oss-120b", "marlin+ngram"), tmp_path, cuda=True))
    done = subprocess.run(
        ["bash", str(script)], check=True, capture_output=True, text=True, env={"PATH": f"{program.parent}:/usr/bin:/bin"}
    )
    given = done.stdout.split("\0")[:-1]
    assert given[:3] == ["run", "--rm", "--interactive"]
    assert given[given.index("--gpus") + 1] == "all"
    image = given.index("vllm/vllm-openai:v0.32.0")
    assert given[image - 2 : image] == ["--entrypoint", "python3"]
    assert json.loads(given[given.index("--speculative-config") + 1])["method"] == "ngram"
    assert given[given.index("--moe-backend") + 1] == "marlin"
    assert given[-1] != ""
