"""`sparkproof sweep`: every canary, weight format and backend of a release, judged in as few engine processes as possible."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from results.store import Store
from results.summary import CellSummary, summarise
from results.vocabulary import Outcome, Phase, exit_code_of
from runners.cli.progress import SessionProgress
from runners.cli.shell import cell, err, errors_shown, open_store, out, print_json
from runners.envs.environment import cache_folder
from runners.pipeline import BootResult
from runners.sweep.session import SweepDone, SweepRequest, run_sweep, sweep_plan

_MANY = "May be given several times."


def sweep(
    engine: Annotated[list[str], typer.Option(help=f"name==version[@docker[:IMAGE]]. {_MANY}")],
    canary: Annotated[list[str] | None, typer.Option(help=f"Canary; default: all. {_MANY}")] = None,
    weight_format: Annotated[list[str] | None, typer.Option("--format", help=f"Weight format; default: all. {_MANY}")] = None,
    backend: Annotated[list[str] | None, typer.Option(help=f"Backend; default: eager, with a GPU default and eager. {_MANY}")] = None,
    label: Annotated[str | None, typer.Option(help="What you call this node.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a release's whole matrix of canaries, formats and backends. Nothing is timed.

    vLLM loads one checkpoint after the other in one process; SGLang gets a server for each. What fails in a shared process is made again
    in one of its own before it is believed, and formats that the node cannot run are rows with the reason.

    Examples:

      sparkproof sweep --engine vllm==0.32.0

      sparkproof sweep --engine vllm==0.32.0 --format bf16 --format int4 --json

      sparkproof sweep --engine sglang==0.5.23 --canary dense --backend eager

    Exit codes: 0 all that can run here passes, 1 something is broken (or unsupported though asked for by name), 2 usage, 3 our or the
    node's fault, 130 interrupted.
    """
    with errors_shown():
        request = SweepRequest(tuple(engine), tuple(canary or ()), tuple(weight_format or ()), tuple(backend or ()), label)
        with err.status("checking what was asked for ..."):
            plan = sweep_plan(request)
        store = open_store()
        started = time.monotonic()
        with SessionProgress() as progress:
            done = run_sweep(plan, store, cache_folder(), progress)
        seconds = time.monotonic() - started
        by_name = bool(request.formats or request.backends)
        exit_code = exit_code_of([o for r in _last(done) if (o := _outcome(r)) is not Outcome.UNSUPPORTED or by_name])
        cells = summarise(store, [r.run.run_id for r in _last(done) if r.unstored is None])
        if json_:
            print_json(
                {"seconds": seconds, "processes": done.processes, "exit_code": exit_code, "cells": [_as_json(c, store) for c in cells]}
            )
        else:
            out.print(_table(cells, store))
            out.print(f"{len(cells)} cells, {done.processes} shared engine processes, {seconds:.0f} s", markup=False)
        raise SystemExit(exit_code)


def _outcome(result: BootResult) -> Outcome:
    return result.run.outcome or Outcome.INFRASTRUCTURE


def _last(done: SweepDone) -> list[BootResult]:
    """One result per cell: what a process of its own says counts more than what a shared one says."""
    by_cell: dict[str, BootResult] = {}
    for result in done.results:
        by_cell[result.run.series_id + result.run.engine_version] = result
    return list(by_cell.values())


def _seconds(summary: CellSummary, phase: Phase) -> float | None:
    return summary.phase_s.get(str(phase))


def _as_json(summary: CellSummary, store: Store) -> dict[str, Any]:
    return {
        "engine": summary.engine,
        "engine_version": summary.engine_version,
        "recipe_name": summary.recipe_name,
        "backend_name": summary.backend_name,
        "outcome": summary.outcome,
        "reason": summary.reason,
        "gate_prompts": summary.gate_prompts,
        "gate_matched": summary.gate_matched,
        "kernels": summary.kernels,
        "load_s": _seconds(summary, Phase.READY),
        "gate_s": _seconds(summary, Phase.COHERENCE),
        "run_ids": list(summary.run_ids),
    }


def _table(cells: list[CellSummary], store: Store) -> Table:
    table = Table(header_style="bold")
    for column in ("engine", "canary", "backend", "outcome", "gate", "load s", "gate s", "kernels or reason"):
        table.add_column(column, overflow="fold")
    for summary in cells:
        style = {"pass": "green", "unsupported": "dim"}.get(summary.outcome, "red")
        kernels = ", ".join(f"{slot}={name}" for slot, name in summary.kernels.items() if name != "unknown")
        table.add_row(
            cell(f"{summary.engine} {summary.engine_version}"),
            cell(summary.recipe_name),
            cell(summary.backend_name),
            Text(summary.outcome, style=style),
            f"{summary.gate_matched}/{summary.gate_prompts}" if summary.gate_prompts else "–",
            _number(_seconds(summary, Phase.READY)),
            _number(_seconds(summary, Phase.COHERENCE)),
            cell(kernels if summary.outcome == "pass" else summary.reason or "", 400),
        )
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
