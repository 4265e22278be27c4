"""`sparkproof report`: what a release did, or one boot as a bug report."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from results.report.issue import issue_markdown, issue_of
from results.report.issue_rows import issue_rows
from results.report.release_formats import as_junit, as_markdown, as_text
from results.report.release_report import known_releases, release_reports
from results.report.this_machine import this_machine
from results.store import Store
from runners.cli.shell import err, errors_shown, open_store
from runners.cli.show import full_run_id
from runners.errors import UsageError
from suites.backends import JOIN, load_all


class Format(StrEnum):
    """How a report is written."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"
    JUNIT = "junit"


def report(
    version: Annotated[str | None, typer.Option(help="A release; default: the newest of each engine that has boots.")] = None,
    engine: Annotated[str | None, typer.Option(help="Only this engine, such as vllm.")] = None,
    issue: Annotated[str | None, typer.Option(help="Instead: this run as a bug report. Names, addresses and secrets are left out.")] = None,
    format_: Annotated[Format | None, typer.Option("--format", help="Default: text; for --issue markdown.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write a file; without it the report is printed.")] = None,
) -> None:
    """Report on a release from the stored verdicts, or on one boot for the maintainers of the engine.

    Examples:

      sparkproof report --engine vllm --version 0.32.0

      sparkproof report --format junit --output report.xml

      sparkproof report --issue 20261130T130501Z-1f00ab42 > issue.md

    Exit codes: 0 reported (whatever the verdicts say), 2 usage, 3 the store cannot be read.
    """
    with errors_shown():
        store = open_store()
        if issue is not None:
            if version is not None or engine is not None:
                raise UsageError("a run says already which release.", todo="Give either --issue, or --version and --engine.")
            _write(_issue(store, issue, format_ or Format.MARKDOWN), output)
            return
        _write(_release(store, engine, version, format_ or Format.TEXT), output)


def _issue(store: Store, run: str, chosen: Format) -> str:
    if chosen not in (Format.MARKDOWN, Format.JSON):
        raise UsageError(f"a bug report is not written as {chosen}.", todo="Use --format markdown or json.")
    run_id = full_run_id(store, run)
    rows = issue_rows(store, run_id)
    if rows is None:
        raise UsageError(f"no such run: {run[:64]!r}", todo="`sparkproof runs` lists them.")
    own_backend = not set(str(rows.boot["backend_name"]).split(JOIN)) <= set(load_all())
    told = issue_of(rows, this_machine(), own_backend=own_backend)
    return issue_markdown(told) if chosen is Format.MARKDOWN else _json(told.as_json())


def _release(store: Store, engine: str | None, version: str | None, chosen: Format) -> str:
    reports = release_reports(store, engine, version)
    if not reports:
        known = known_releases(store, engine)[:8]
        what = f"no boots of {engine or 'any engine'}{f' {version}' if version else ''} in the store."
        raise UsageError(what, todo=f"There are: {', '.join(known)}." if known else "Make some: sparkproof run --engine vllm==0.32.0")
    if chosen is Format.JSON:
        return _json({"reports": [one.as_json() for one in reports]})
    return {Format.TEXT: as_text, Format.MARKDOWN: as_markdown, Format.JUNIT: as_junit}[chosen](reports)


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, default=str, allow_nan=False) + "\n"


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}.", where=str(output), todo="Give another file.") from error
    err.print(f"written: {output}", markup=False)
