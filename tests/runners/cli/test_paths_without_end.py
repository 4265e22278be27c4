"""Pipes, devices and folders where a file was expected are refused at once. In a process of its own, which a hang cannot hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.planted import REPOSITORY
from tests.runners.engines.boot_logs import path_of

_COMMANDS = (
    ("explain", "{path}"),
    ("lint", "{path}", "--engine", "vllm==0.32.0"),
    ("lint", "--engine", "vllm==0.32.0", "--env-file", "{path}", "--", "--seed", "0"),
    ("run", "--engine", "vllm==0.32.0", "--suite", "{toml}", "--dry-run"),
    ("run", "--engine", "vllm==0.32.0", "--backend", "{toml}", "--dry-run"),
    ("run", "--engine", "vllm==0.32.0", "--model", "{folder}", "--dry-run"),
)


def _sparkproof(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "runners.cli.main", *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        cwd=REPOSITORY,
        capture_output=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize("command", _COMMANDS, ids=lambda command: " ".join(command[:3]))
def test_a_pipe_is_refused_at_once(tmp_path: Path, command: tuple[str, ...]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    places = {"path": tmp_path / "pipe", "toml": tmp_path / "pipe.toml", "folder": folder}
    for pipe in (places["path"], places["toml"], folder / "config.json"):
        os.mkfifo(pipe)
    done = _sparkproof(*(part.format(**places) for part in command))
    said = " ".join(done.stderr.decode().split())
    assert done.returncode == 2, said
    assert "is a pipe" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("path", "words"), [("/dev/zero", "is a device"), (".", "is a folder"), ("none.log", "No such file")])
def test_explain_refuses_what_is_no_file(path: str, words: str) -> None:
    done = _sparkproof("explain", path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.decode().split())


def test_a_log_can_be_piped_in() -> None:
    log = path_of("vllm-0.26.0-h200-moe-nvfp4-cutlass")
    done = _sparkproof("explain", "-", stdin=log.read_bytes())
    assert done.returncode == 0
    assert done.stdout == _sparkproof("explain", str(log)).stdout
