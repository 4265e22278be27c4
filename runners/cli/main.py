"""The `sparkproof` command."""

from __future__ import annotations

import typer

from runners.cli.explain import explain
from runners.cli.lint import lint
from runners.cli.rebuild import rebuild
from runners.cli.run import run
from runners.cli.runs import runs
from runners.cli.serve_script import serve_script
from runners.cli.show import show

app = typer.Typer(
    name="sparkproof",
    help="Which release of vLLM or SGLang is correct and fast on an NVIDIA GB10 (DGX Spark), on which backend, since when, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, runs, show, explain, lint, serve_script, rebuild):
    app.command()(command)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
