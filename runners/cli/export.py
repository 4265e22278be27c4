"""`sparkproof export`: every table as Parquet or CSV."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from results.export import export
from runners.cli.shell import err, errors_shown, open_store, out, print_json


class ExportFormat(StrEnum):
    """Parquet can be imported again; CSV is for reading elsewhere."""

    PARQUET = "parquet"
    CSV = "csv"


def export_store(
    to: Annotated[Path, typer.Option(help="An empty or new folder, or an older export.")],
    format_: Annotated[ExportFormat, typer.Option("--format", help="parquet (can be imported again) or csv.")] = ExportFormat.PARQUET,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write every table, one file each, and the wide view `boots`.

    Examples:  sparkproof export --to results-october   ·   sparkproof export --to csv --format csv

    Exit codes: 0 done, 3 the folder or the disk refused.
    """
    with errors_shown():
        with err.status("writing ..."):
            report = export(open_store(), to.expanduser(), "parquet" if format_ is ExportFormat.PARQUET else "csv")
        if json_:
            print_json(asdict(report))
            return
        rows = sum(report.tables.values())
        out.print(f"{len(report.tables)} tables, {rows:,} rows, {report.size_bytes:,} bytes in {report.folder}", markup=False)
