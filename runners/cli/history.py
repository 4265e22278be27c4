"""`sparkproof history`: one cell over all its releases."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from results.levels import levels_of
from results.queries import cell_page
from results.queries.cells import cells, numbers_of
from results.store import Store
from results.verdict.metrics import METRICS
from runners.cli.left_out import left_out_in_words
from runners.cli.runs import FIRST
from runners.cli.shell import cell, errors_shown, open_store, out, print_json, shown
from runners.errors import UsageError

_MOST_CELLS = 20


def history(
    cell_: Annotated[str | None, typer.Option("--cell", help="The cell's id, or its beginning.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine, such as vllm.")] = None,
    model: Annotated[str | None, typer.Option(help="Recipe.")] = None,
    backend: Annotated[str | None, typer.Option(help="Backend.")] = None,
    node: Annotated[str | None, typer.Option(help="Node: its label or id.")] = None,
    metric: Annotated[str | None, typer.Option(help="A number instead of outcomes: decode_tok_s, or decode_c8/ttft_s.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what every release did to a cell: outcome, verdict, numbers, and what was left out of judging it.

    Examples:

      sparkproof history --engine vllm --model gpt-oss-120b --backend marlin

      sparkproof history --cell 3f2a --metric decode_tok_s --json

    Exit codes: 0 shown, 2 no such cell, 3 the store.
    """
    with errors_shown():
        if metric is not None and metric.removesuffix("/launch_bound").split("/")[-1] not in METRICS:
            raise UsageError(f"no number {metric[:60]!r}.", todo=f"Known: {', '.join(sorted(METRICS))}.")
        store = open_store()
        if not store.database.exists():
            raise UsageError("there are no results yet.", where=str(store.root), todo=FIRST)
        found = cells(cell=cell_, engine=engine, recipe=model, backend=backend, node=node).rows(store)
        if not found:
            raise UsageError("no cell with evidence is so called.", todo="`sparkproof history` without options lists them.")
        if json_:
            print_json([_as_json(store, one, metric) for one in found])
            return
        if len(found) > _MOST_CELLS or (len(found) > 1 and not any((cell_, engine, model, backend, node))):
            _print_cells(found)
            return
        for one in found:
            _print_cell(store, one, metric)


def _as_json(store: Store, one: dict[str, Any], metric: str | None) -> dict[str, Any]:
    return {
        **one,
        "exclusions": json.loads(one["exclusions"] or "{}"),
        "releases": cell_page.verdicts(one["history_id"]).rows(store),
        "numbers": _numbers(store, one, metric),
    }


def _numbers(store: Store, one: dict[str, Any], metric: str | None) -> list[dict[str, Any]]:
    """The rows of `numbers_of`, each with the level that its release ran at (None for a series that is ever zero)."""
    rows = numbers_of(one["history_id"], metric).rows(store)
    levels = {(found.series, release): found.level for found in levels_of(rows) for release in found.releases}
    return [{**row, "level": levels.get((row["series"], row["release"]))} for row in rows]


def _print_cells(found: list[dict[str, Any]]) -> None:
    table = Table(header_style="bold")
    for name in ("cell", "engine · model · backend · node", "boots", "newest release", "state", "last passing"):
        table.add_column(name, overflow="fold")
    for one in found:
        table.add_row(
            one["history_id"],
            cell(_name(one), 200),
            str(one["boots"]),
            cell(one["newest_release"] or "–", 40),
            cell(one["headline"] or one["state"] or "–", 40),
            cell(one["last_passing"] or "–", 40),
        )
    out.print(table)


def _name(one: dict[str, Any]) -> str:
    engine = one["engine"] if one["distribution"] == "venv" else f"{one['engine']}@{one['distribution']}"
    return f"{engine} · {one['recipe_name']} · {one['backend_name']} · {one['node_label'] or one['node_id']}"


def _print_cell(store: Store, one: dict[str, Any], metric: str | None) -> None:
    out.print(shown(f"\n{_name(one)}  ({one['history_id']}, {one['boots']} boots)", 400), markup=False, style="bold")
    if one["error"]:
        out.print(shown(f"cannot be judged: {one['error']}", 600), markup=False, style="red")
    out.print(_numbers_table(store, one, metric) if metric else _releases_table(store, one))
    for phrase in left_out_in_words(json.loads(one["exclusions"] or "{}")):
        out.print(f"left out: {phrase}", markup=False, style="dim")
    if one["not_releases"]:
        out.print(shown(f"no releases: {', '.join(one['not_releases'])}", 400), markup=False, style="dim")


def _releases_table(store: Store, one: dict[str, Any]) -> Table:
    table = Table(header_style="bold")
    for name in ("release", "state", "verdict", "decode tok/s", "boots", "why"):
        table.add_column(name, overflow="fold")
    for row in cell_page.verdicts(one["history_id"]).rows(store):
        rate = "–" if row["decode_tok_s"] is None else f"{row['decode_tok_s']:.1f}"
        change = "" if row["decode_change"] is None else f" ({row['decode_change']:+.1%})"
        table.add_row(
            cell(row["release"], 40),
            cell(row["state"], 30),
            Text(row["headline"] or "–", style="bold red" if row["alarm"] else ""),
            rate + change,
            str(row["boots"]),
            cell(row["reason"], 300),
        )
    return table


def _numbers_table(store: Store, one: dict[str, Any], metric: str) -> Table:
    table = Table(header_style="bold")
    for name in ("release", "series", "median", "range", "boots", "level", "verdict", "why"):
        table.add_column(name, overflow="fold")
    for row in _numbers(store, one, metric):
        table.add_row(
            cell(row["release"], 40),
            cell(row["series"], 80),
            f"{row['median']:.4g}",
            f"{row['low']:.4g}–{row['high']:.4g}",
            str(row["n_candidate"] or 0),
            "–" if row["level"] is None else f"{row['level']:.4g}",
            cell(row["verdict"], 30),
            cell("; ".join([row["reason"], *(row["warnings"] or ())]), 500),
        )
    return table
