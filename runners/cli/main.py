"""The `sparkproof` command."""

from __future__ import annotations

import typer

from runners.cli.asv import app as asv_app
from runners.cli.bisect import bisect
from runners.cli.canary import canary
from runners.cli.compare import compare_releases
from runners.cli.dashboard import dashboard
from runners.cli.db import db
from runners.cli.demo import demo
from runners.cli.diagnose import diagnose
from runners.cli.doctor import doctor
from runners.cli.explain import explain
from runners.cli.export import export_store
from runners.cli.findings import findings, ignore
from runners.cli.history import history
from runners.cli.import_ import import_results
from runners.cli.install_timer import install_timer
from runners.cli.judge import judge
from runners.cli.lint import lint
from runners.cli.nightly import nightly
from runners.cli.rebuild import rebuild
from runners.cli.reference import reference
from runners.cli.report import report
from runners.cli.run import run
from runners.cli.runs import runs
from runners.cli.serve_script import serve_script
from runners.cli.show import show
from runners.cli.sweep import sweep

app = typer.Typer(
    name="sparkproof",
    help="Which release of vLLM or SGLang is correct and fast on an NVIDIA GB10 (DGX Spark), on which backend, since when, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    run,
    runs,
    show,
    explain,
    judge,
    lint,
    serve_script,
    rebuild,
    bisect,
    report,
    dashboard,
    demo,
    sweep,
    history,
    findings,
    ignore,
    doctor,
    nightly,
    diagnose,
):
    app.command()(command)
app.command("compare")(compare_releases)
app.command("install-timer")(install_timer)
app.command("import")(import_results)
app.command("export")(export_store)
app.add_typer(db, name="db")
app.add_typer(canary, name="canary")
app.add_typer(reference)
app.add_typer(asv_app)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
