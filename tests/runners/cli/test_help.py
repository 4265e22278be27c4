"""What a reader of `--help` finds: the command as it is typed, examples, exit codes."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from runners.cli.main import COMMANDS, app

GROUPS = {"db": ("check", "vacuum"), "canary": ("list", "verify", "build"), "shape": ("list",), "reference": ("make",), "asv": ("export",)}
PATHS = [(name, *rest) for name in COMMANDS for rest in ([(sub,) for sub in GROUPS[name]] if name in GROUPS else [()])]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_shows_how_the_command_is_typed(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*path, "--help"], prog_name="sparkproof")
    assert done.exit_code == 0
    assert f"Usage: sparkproof {' '.join(path)}" in done.output
    assert f"sparkproof {' '.join(path)}" in done.output.split("Usage:", 1)[1].split("\n", 1)[1], "an example"


def test_the_entry_point_calls_itself_sparkproof() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runners.cli.main", "export", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert "Usage: sparkproof export" in done.stdout
