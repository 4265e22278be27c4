"""`sparkproof runs`: the boots in the store, newest first."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from results.vocabulary import Outcome
from runners.cli.shell import cell, err, errors_shown, open_store, out, print_json, shown

FIRST = "Make some: sparkproof run --engine vllm==0.32.0"
_SQL = """
SELECT r.run_id, r.started_at, r.engine, r.engine_version, r.recipe_name, r.backend_name, r.phase, r.outcome, r.reason, r.signature,
       m.decode_tok_s, m.ttft_s, r.node_id
FROM runs r LEFT JOIN boot_medians m ON m.run_id = r.run_id AND m.concurrency = 1
WHERE (? IS NULL OR r.engine = ?) AND (? IS NULL OR r.outcome = ?)
ORDER BY r.started_at DESC, r.run_id DESC LIMIT ?
"""


def runs(
    engine: Annotated[str | None, typer.Option(help="Only this engine, such as vllm.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="Only boots that ended so.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 20,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the boots in the store, newest first.

    Examples:  sparkproof runs --outcome crash   ·   sparkproof runs --engine sglang --json

    Exit codes: 0 listed, also where there is nothing to list yet.
    """
    with errors_shown():
        store = open_store()
        rows = store.query(_SQL, [engine, engine, outcome, outcome, limit]) if store.database.exists() else []
        if json_:
            print_json(rows)
        elif rows:
            out.print(_table(rows))
        elif not store.database.exists() or (engine is None and outcome is None):
            err.print(f"no results yet in {shown(str(store.root))}. {FIRST}", markup=False, soft_wrap=True)
        else:
            err.print("no boot is like that; without --engine and --outcome all are listed.", markup=False)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(header_style="bold")
    for name in ("run", "engine", "model", "backend", "outcome", "decode tok/s", "reason"):
        table.add_column(name, overflow="fold", no_wrap=name == "run")
    for row in rows:
        outcome = row["outcome"] or f"running ({row['phase']})"
        table.add_row(
            row["run_id"],
            cell(f"{row['engine']} {row['engine_version']}", 60),
            cell(row["recipe_name"], 40),
            cell(row["backend_name"], 40),
            outcome,
            "–" if row["decode_tok_s"] is None else f"{row['decode_tok_s']:.1f}",
            cell(row["reason"] or "", 160),
        )
    return table
