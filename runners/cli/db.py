"""`sparkproof db`: is the database sound, and make it small again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from results.maintenance import check as check_store
from results.maintenance import vacuum as vacuum_store
from results.vocabulary import ExitCode
from runners.cli.shell import err, errors_shown, open_store, out, print_json, shown

db = typer.Typer(help="Check the database, or make it small again.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@db.command()
def check(json_: Json = False) -> None:
    """Compare every derived number with its formula and every boot with its folder.

    Example:  sparkproof db check

    Exit codes: 0 all is well, 3 something is wrong (named, with what to do).
    """
    with errors_shown():
        with err.status("reading everything ..."):
            report = check_store(open_store())
        exit_code = ExitCode.INFRASTRUCTURE if report.problems else ExitCode.OK
        if json_:
            print_json({"exit_code": exit_code, **asdict(report)})
            raise SystemExit(exit_code)
        for problem in report.problems:
            err.print(shown(problem, 600), markup=False, style="bold red")
        if report.unstored:
            out.print(f"{len(report.unstored)} boot folders are not stored yet; the next run stores them.", markup=False)
        if report.without_folder:
            out.print(f"{len(report.without_folder)} boots have no folder any more; a rebuild leaves them behind.", markup=False)
        rows = sum(report.tables.values())
        out.print(f"{report.tables.get('runs', 0):,} boots, {rows:,} rows: {'sound' if not report.problems else 'NOT sound'}", markup=False)
        raise SystemExit(exit_code)


@db.command()
def vacuum(json_: Json = False) -> None:
    """Write the database anew without its gaps, rows in the order of their boots. Needs as much free disk as it takes.

    Example:  sparkproof db vacuum

    Exit codes: 0 done, 3 it could not be (the old one is as it was).
    """
    with errors_shown():
        with err.status("writing the database anew ..."):
            report = vacuum_store(open_store())
        if json_:
            print_json(asdict(report))
            return
        out.print(f"{report.before_bytes:,} -> {report.after_bytes:,} bytes", markup=False)
