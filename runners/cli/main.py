"""The `sparkproof` command.

Trap: a tool that loads every command to run one makes a user wait two seconds for `sparkproof judge`. Rule: a command's module is imported
when its name is called; only the list of all commands loads all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
import typer.core
import typer.main

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("run", "run"),
    "runs": ("runs", "runs"),
    "show": ("show", "show"),
    "explain": ("explain", "explain"),
    "judge": ("judge", "judge"),
    "lint": ("lint", "lint"),
    "serve-script": ("serve_script", "serve_script"),
    "rebuild": ("rebuild", "rebuild"),
    "bisect": ("bisect", "bisect"),
    "report": ("report", "report"),
    "dashboard": ("dashboard", "dashboard"),
    "demo": ("demo", "demo"),
    "sweep": ("sweep", "sweep"),
    "history": ("history", "history"),
    "findings": ("findings", "findings"),
    "ignore": ("findings", "ignore"),
    "doctor": ("doctor", "doctor"),
    "nightly": ("nightly", "nightly"),
    "diagnose": ("diagnose", "diagnose"),
    "compare": ("compare", "compare_releases"),
    "install-timer": ("install_timer", "install_timer"),
    "import": ("import_", "import_results"),
    "export": ("export", "export_store"),
    "db": ("db", "db"),
    "canary": ("canary", "canary"),
    "shape": ("shape", "shape"),
    "reference": ("reference", "reference"),
    "asv": ("asv", "app"),
}
"""Name of a command to its module in `runners.cli` and what that calls it, in the order of the help."""


class _Loaded(Mapping[str, Any]):
    """The commands by name; looking one up loads it."""

    def __getitem__(self, name: str) -> Any:
        module, attribute = COMMANDS[name]
        found = getattr(import_module(f"runners.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": _Loaded()})


app = typer.Typer(
    cls=_Commands,
    name="sparkproof",
    help="Which release of vLLM or SGLang is correct and fast on an NVIDIA GB10 (DGX Spark), on which backend, since when, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Typer makes a group only of an app that has a callback or commands of its own."""


def main() -> None:
    """Entry point; help and usage errors name the command as it is typed."""
    app(prog_name="sparkproof")


if __name__ == "__main__":
    main()
