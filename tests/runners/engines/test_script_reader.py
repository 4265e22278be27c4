"""Serve scripts and env files are read, never run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runners.engines.script_reader import read_env_file, read_script
from runners.errors import UsageError


def _script(folder: Path, text: str) -> Path:
    path = folder / "serve.sh"
    path.write_text(text)
    return path


_FIELD = """#!/bin/bash
# export VLLM_COMMENTED=1
export VLLM_MXFP4_BACKEND=marlin
export VLLM_MARLIN_USE_ATOMIC_ADD=1 TIKTOKEN_RS_CACHE_DIR=~/models
VLLM_LOGGING_LEVEL=DEBUG

vllm serve ~/models/gpt-oss-120b \\
  --served-model-name gpt-oss-120b --port 8001 \\
  --compilation-config '{"cudagraph_mode": "FULL"}' \\
  --moe-backend marlin --enforce-eager > server.log 2>&1 &
"""


def test_field_script_gives_command_and_environment(tmp_path: Path) -> None:
    found = read_script(_script(tmp_path, _FIELD))
    assert (found.engine, found.version, found.line) == ("vllm", None, 7)
    assert found.arguments[:5] == ("~/models/gpt-oss-120b", "--served-model-name", "gpt-oss-120b", "--port", "8001")
    assert found.arguments[5:] == ("--compilation-config", '{"cudagraph_mode": "FULL"}', "--moe-backend", "marlin", "--enforce-eager")
    assert found.environment["VLLM_MXFP4_BACKEND"] == "marlin"
    assert found.environment["VLLM_MARLIN_USE_ATOMIC_ADD"] == "1"
    assert "VLLM_COMMENTED" not in found.environment
    assert found.environment_lines["VLLM_MXFP4_BACKEND"] == 3


def test_script_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    found = read_script(_script(tmp_path, f"touch {mark}\nX=$(touch {mark})\nvllm serve $(touch {mark}) --port `touch {mark}`\n"))
    assert found.engine == "vllm"
    assert not mark.exists()


@pytest.mark.parametrize(
    ("line", "engine", "version", "first", "env"),
    [
        ("VLLM_X=1 vllm serve m --port 1", "vllm", None, "m", {"VLLM_X": "1"}),
        ("exec python3 -m vllm.entrypoints.openai.api_server --model m", "vllm", None, "--model", {}),
        ("cd /srv && nohup /opt/venv/bin/vllm serve m &", "vllm", None, "m", {}),
        ("SGLANG_X=0 python -m sglang.launch_server --model-path m", "sglang", None, "--model-path", {"SGLANG_X": "0"}),
        ("uv run sglang serve --model-path m", "sglang", None, "--model-path", {}),
        (
            "docker run --rm --gpus all -e VLLM_Y=2 -v /m:/m vllm/vllm-openai:v0.17.1 --model m",
            "vllm",
            "0.17.1",
            "--model",
            {"VLLM_Y": "2"},
        ),
        (
            "docker run --ipc=host --env=SGLANG_Z=3 lmsysorg/sglang:v0.5.14-cu130 python3 -m sglang.launch_server --model-path m",
            "sglang",
            "0.5.14",
            "--model-path",
            {"SGLANG_Z": "3"},
        ),
        ("pip install vllm==0.22.1\nvllm serve m", "vllm", "0.22.1", "m", {}),
        ('ARGS="--port 1 --x"\nvllm serve $ARGS', "vllm", None, "--port", {}),
        ('ARGS=(\n  m\n  --port 1\n)\nARGS+=(--y)\nvllm serve "${ARGS[@]}"', "vllm", None, "m", {}),
        ('PORT=9\nvllm serve m --port "${PORT}" --z "${NAME:-q}"', "vllm", None, "m", {}),
    ],
)
def test_usual_ways_to_serve_are_found(
    tmp_path: Path, line: str, engine: str, version: str | None, first: str, env: dict[str, str]
) -> None:
    found = read_script(_script(tmp_path, line + "\n"))
    assert (found.engine, found.version, found.arguments[0]) == (engine, version, first)
    assert {name: found.environment.get(name) for name in env} == env
    assert "&" not in found.arguments
    if "PORT=9" in line:
        assert found.arguments == ("m", "--port", "9", "--z", "q")
    if "ARGS+=" in line:
        assert found.arguments == ("m", "--port", "1", "--y")


def test_variable_from_outside_is_said_to_be_open(tmp_path: Path) -> None:
    found = read_script(_script(tmp_path, 'vllm serve "$MODEL" --port 1\n'))
    assert found.unresolved == ("MODEL",)
    assert found.arguments[0] == "$MODEL"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"echo hello\n", "no serve command"),
        (b"\x7fELF\x00\x01", "no text file"),
        (b"vllm serve 'm\n", "never closed"),
    ],
)
def test_unusable_script_is_refused_by_name(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.sh"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as error:
        read_script(path)
    assert str(path) in str(error.value)


def test_missing_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_script(tmp_path / "none.sh")


def test_env_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "serve.env"
    path.write_text("# comment\nexport A=1\nB='two words' # tail\n\nC=\n")
    assert read_env_file(path) == {"A": "1", "B": "two words", "C": ""}
    path.write_text("A=1\nnot an assignment\n")
    with pytest.raises(UsageError, match=r"serve\.env:2"):
        read_env_file(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(text=st.text(max_size=300))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.sh"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        read_script(path)
    except UsageError as error:
        assert str(path) in str(error)
