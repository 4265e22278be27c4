"""Text from servers and users that looks like markup, in every place where it is shown."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from results.boot_folder import BootFolder
from results.store import Store
from results.vocabulary import Outcome
from runners.cli.main import app
from tests.results.conftest import MakeBoot, make_boot, store

__all__ = ["make_boot", "store"]  # fixtures

ODD = "m[/x] [bold]b\\[/x] \x1b[31mred"


@pytest.fixture
def odd_boot(store: Store, make_boot: MakeBoot, monkeypatch: pytest.MonkeyPatch) -> BootFolder:
    """A failed boot whose texts all look like markup, in the user's store."""
    folder = make_boot(outcome=Outcome.CRASH, decode=())
    summary = folder.summary()
    run = dataclasses.replace(
        summary.run, reason=ODD, server_version=ODD, served_model=ODD, recipe_name=ODD, warnings=(ODD,), actual={"moe": ODD}
    )
    folder.write_summary(dataclasses.replace(summary, run=run))
    store.ingest(folder)
    monkeypatch.setenv("SPARKPROOF_HOME", str(store.root))
    return folder


@pytest.mark.parametrize("command", [["runs"], ["runs", "--json"], ["show"], ["show", "--json"]])
def test_brackets_and_escapes_in_stored_text_are_shown_and_do_nothing(odd_boot: BootFolder, command: list[str]) -> None:
    arguments = [*command, odd_boot.run_id] if command[0] == "show" else command
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "[/x]" in done.output
    assert "\x1b[31m" not in done.output


def test_brackets_in_an_argument_reach_the_error_message_unharmed(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", "--engine", "vllm==0.32.0", "--model", "a\\[/x]", "--dry-run"])
    assert done.exit_code == 2
    assert "a\\[/x]" in done.stderr


@pytest.mark.parametrize(
    "engine",
    [
        "vllm==0.32.0@endpoint:http://127.0.0.1:1/?api_key=supersecretvalue",
        "vllm==0.32.0@endpoint:http://bob:se/supersecretvalue@127.0.0.1:1",
    ],
)
def test_a_secret_in_an_endpoint_is_refused_and_not_repeated(engine: str) -> None:
    done = CliRunner().invoke(app, ["run", "--engine", engine, "--model", "served:m", "--dry-run"])
    assert done.exit_code == 2
    assert "supersecretvalue" not in done.output


def test_a_served_model_needs_endpoints_only() -> None:
    engines = ["--engine", "vllm==0.32.0", "--engine", "vllm==0.32.0@endpoint:http://127.0.0.1:1"]
    done = CliRunner().invoke(app, ["run", *engines, "--model", "served:m", "--dry-run"])
    assert done.exit_code == 2
    assert "no endpoint" in " ".join(done.stderr.split())


def test_an_empty_run_id_is_no_run(odd_boot: BootFolder) -> None:
    assert CliRunner().invoke(app, ["show", ""]).exit_code == 2
