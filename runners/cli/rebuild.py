"""`sparkproof rebuild`: the database anew from the boot folders."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from results.queries.cells import left_out
from results.redact import plain
from runners.cli.left_out import left_out_in_words, unusable_in_words
from runners.cli.shell import err, errors_shown, open_store, out, print_json


def rebuild(json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Make the database anew from the boot folders alone; folders that cannot be read are named and left out.

    What was stored but cannot enter a verdict (no release, a clock that went back, ...) is counted.

    Example:  sparkproof rebuild
    """
    with errors_shown():
        store = open_store()
        report = store.rebuild()
        excluded = {row["reason"]: row["number"] for row in left_out().rows(store)}
        if json_:
            print_json({**asdict(report), "left_out_of_verdicts": excluded})
            return
        for run_id, reason in report.skipped.items():
            err.print(f"left out {run_id}: {plain(reason, 500)}", markup=False)
        unusable = unusable_in_words(report.cut_lines, report.not_finite)
        out.print(f"{len(report.ingested)} boots stored, {len(report.skipped)} left out, {unusable}; in {store.database}", markup=False)
        if report.former:
            err.print(f"{len(report.without_folder)} boots have no folder that can be read; they are kept in {report.former}", markup=False)
        for phrase in left_out_in_words(excluded):
            out.print(f"left out of verdicts: {phrase}", markup=False)
