"""Asking a store that holds nothing yet: no error for a list, a usage error for a boot."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from runners.cli.main import app


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No store at all."""
    home = tmp_path / "home"
    monkeypatch.setenv("SPARKPROOF_HOME", str(home))
    return home


@pytest.mark.parametrize("more", [[], ["--outcome", "crash"], ["--engine", "vllm"]])
def test_no_boots_are_a_list_of_none_with_the_first_step(empty: Path, more: list[str]) -> None:
    done = CliRunner().invoke(app, ["runs", *more])
    assert done.exit_code == 0
    assert "no results yet" in done.stderr
    assert "sparkproof run" in done.stderr
    assert done.stdout == ""
    assert not empty.exists()


def test_no_boots_are_an_empty_json_list() -> None:
    done = CliRunner().invoke(app, ["runs", "--json"])
    assert (done.exit_code, done.stdout) == (0, "[]\n")


@pytest.mark.parametrize("command", [["show", "abc"], ["show", "abc", "--json"], ["serve-script", "abc"]])
def test_a_boot_that_cannot_be_there_is_a_usage_error(command: list[str]) -> None:
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "no such run" in done.stderr
    assert "sparkproof run" in " ".join(done.stderr.split())
