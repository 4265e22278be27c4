"""`sparkproof compare`: two releases of one engine, cell by cell."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from results.compare import ComparedCell, ComparedNumber, Question, UnknownReleaseError, compare, is_launch_bound
from results.verdict.words import Verdict
from results.vocabulary import ExitCode
from runners.cli.runs import FIRST
from runners.cli.shell import cell, errors_shown, open_store, out, print_json, shown
from runners.errors import UsageError
from runners.spec import EngineSpec

_QUIET = {Verdict.UNCHANGED, Verdict.NEW}
_STYLES: dict[str, str] = {
    Verdict.BROKE: "bold red",
    Verdict.SLOWER: "bold red",
    Verdict.STILL_BROKEN: "red",
    Verdict.FIXED: "bold green",
    Verdict.FASTER: "bold green",
    Verdict.CONFOUNDED: "yellow",
    Verdict.INCONCLUSIVE: "yellow",
}


def compare_releases(
    old: Annotated[str, typer.Argument(help="The older release, such as vllm==0.31.0 (or vllm==0.31.0@docker).")],
    new: Annotated[str, typer.Argument(help="The newer release of the same engine.")],
    model: Annotated[str | None, typer.Option(help="Only this recipe.")] = None,
    backend: Annotated[str | None, typer.Option(help="Only this backend.")] = None,
    node: Annotated[str | None, typer.Option(help="Only this node: its label or id.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two releases: what broke, was fixed, got faster or slower, on which model and backend, and how sure that is.

    Examples:

      sparkproof compare vllm==0.31.0 vllm==0.32.0

      sparkproof compare sglang==0.5.14 sglang==0.5.23 --model canary-dense --backend eager --json

    Exit codes: 0 nothing confirmed broken or slower, 1 something is, 2 usage, or a release that was never booted, 3 the store.
    """
    with errors_shown():
        question = _question(EngineSpec.parse(old), EngineSpec.parse(new), model, backend, node)
        store = open_store()
        if not store.database.exists():
            raise UsageError("there are no results yet.", where=str(store.root), todo=FIRST)
        try:
            cells = compare(store, question)
        except UnknownReleaseError as error:
            raise UsageError(error.message, todo=error.todo) from error
        exit_code = ExitCode.BROKEN_OR_SLOWER if any(one.alarm for one in cells) else ExitCode.OK
        if json_:
            print_json(
                {"exit_code": exit_code, "engine": question.engine, "old": question.old, "new": question.new, "cells": _plain(cells)}
            )
        else:
            _print(question, cells)
        raise SystemExit(exit_code)


def _question(old: EngineSpec, new: EngineSpec, model: str | None, backend: str | None, node: str | None) -> Question:
    if (old.name, old.distribution) != (new.name, new.distribution):
        raise UsageError(
            f"{old} and {new} are not two releases of one engine from one source.",
            todo="Verdicts compare releases of one engine; the dashboard shows engines side by side.",
        )
    if old.version is None or new.version is None:
        raise UsageError("both sides need a version.", todo=f"Write {old.name}==VERSION {old.name}==VERSION; `sparkproof runs` lists them.")
    return Question(old.name, old.version, new.version, old.distribution, model, backend, node)


def _plain(cells: list[ComparedCell]) -> list[dict[str, Any]]:
    return [asdict(one) for one in cells]


def _print(question: Question, cells: list[ComparedCell]) -> None:
    title = f"{question.engine} {question.old} -> {question.new}"
    if not cells:
        out.print(f"{title}: no cell was booted with either.", markup=False)
        return
    table = Table(title=title, header_style="bold")
    for name in ("model · backend · node", "older", "newer", "decode tok/s", "verdict"):
        table.add_column(name, overflow="fold")
    for one in cells:
        where = f"{one.recipe_name} · {one.backend_name} · {one.node_label or one.node_id}"
        word = one.verdict or "–"
        table.add_row(cell(where, 160), _state(one.old), _state(one.new), _rates(one), Text(word, style=_STYLES.get(word, "")))
    out.print(table)
    for one in cells:
        _print_details(one)


def _print_details(one: ComparedCell) -> None:
    loud = [number for number in one.numbers if number.verdict not in _QUIET]
    if one.verdict in _QUIET and not loud:
        return
    out.print(shown(f"{one.recipe_name} · {one.backend_name}: {one.reason}", 600), markup=False, style="bold")
    for number in loud:
        out.print(f"  {shown(_sentence(number), 600)}", markup=False, style=_STYLES.get(number.verdict, ""))
    for warning in dict.fromkeys(warning for number in one.numbers for warning in number.warnings):
        out.print(f"  note: {shown(warning, 300)}", markup=False, style="dim")


def _sentence(number: ComparedNumber) -> str:
    interval = "" if number.interval is None else f", interval {number.interval[0]:+.1%} to {number.interval[1]:+.1%}"
    mark = " (launch-bound: no model's speed)" if is_launch_bound(number.series) else ""
    decide = f"; {number.boots_to_decide} boots a side would decide" if number.boots_to_decide else ""
    workload = f" ({number.series.partition('/')[0]})" if "/" in number.series else ""
    return f"{number.verdict}{workload}: {number.reason}{interval}{decide}{mark}"


def _state(side: Any) -> Text:
    if side is None:
        return Text("not booted", style="dim")
    return cell(f"{side['state']} ({side['boots']})", 60)


def _rates(one: ComparedCell) -> str:
    old, new = (None if side is None else side["decode_tok_s"] for side in (one.old, one.new))
    if old is None and new is None:
        return "–"
    change = f" ({new / old - 1:+.1%})" if old and new else ""
    return f"{_rate(old)} -> {_rate(new)}{change}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
