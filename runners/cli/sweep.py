"""`sparkproof sweep`: every canary, weight format and backend of a release, judged in as few engine processes as possible."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table
from rich.text import Text

from results.records import RunRecord
from results.store import Store
from results.summary import CellSummary, summarise
from results.vocabulary import Outcome, Phase, exit_code_of
from runners.cli.progress import SessionProgress
from runners.cli.shell import cell, err, errors_shown, fail, open_store, out, print_json
from runners.envs.environment import cache_folder
from runners.errors import UsageError
from runners.sweep.offline import judge_jobs
from runners.sweep.offline import read_answers as read_answers_of
from runners.sweep.session import SweepDone, SweepRequest, run_sweep, sweep_plan, write_jobs_of

_MANY = "May be given several times."


def sweep(
    engine: Annotated[list[str] | None, typer.Option(help=f"name==version[@docker[:IMAGE]]. {_MANY}")] = None,
    canary: Annotated[list[str] | None, typer.Option(help=f"Canary; default: all. {_MANY}")] = None,
    weight_format: Annotated[list[str] | None, typer.Option("--format", help=f"Weight format; default: all. {_MANY}")] = None,
    backend: Annotated[list[str] | None, typer.Option(help=f"Backend; default: eager, with a GPU default and eager. {_MANY}")] = None,
    write_jobs: Annotated[
        Path | None, typer.Option(help="Start nothing: write jobs, checkpoints and worker into this folder, for another machine (vLLM).")
    ] = None,
    read_answers: Annotated[Path | None, typer.Option(help="Start nothing: judge what the worker wrote on another machine.")] = None,
    jobs: Annotated[Path | None, typer.Option(help="The jobs file that --read-answers belongs to.")] = None,
    label: Annotated[str | None, typer.Option(help="What you call this node, or the one the answers come from.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a release's whole matrix of canaries, formats and backends. Nothing is timed.

    vLLM loads one checkpoint after the other in one process; SGLang gets a server for each. What fails in a shared process is made again
    in one of its own before it is believed, and formats that the node cannot run are rows with the reason.

    Examples:

      sparkproof sweep --engine vllm==0.32.0

      sparkproof sweep --engine vllm==0.32.0 --format bf16 --format int4 --json

      sparkproof sweep --engine sglang==0.5.23 --canary dense --backend eager

    A machine that Sparkproof is not installed on, with vLLM in its own Python:

      sparkproof sweep --engine vllm==0.26.0 --write-jobs carried

      python carried/worker/worker.py jobs carried/jobs.json > carried/answers.jsonl   (there)

      sparkproof sweep --read-answers carried/answers.jsonl --jobs carried/jobs.json --label h200

    Exit codes: 0 all that can run here passes, 1 something is broken (or unsupported though asked for by name), 2 usage, 3 our or the
    node's fault, 130 interrupted.
    """
    with errors_shown():
        if read_answers is not None:
            _show(*_judged(read_answers, jobs, label), by_name=False, json_=json_)
        request = SweepRequest(tuple(engine or ()), tuple(canary or ()), tuple(weight_format or ()), tuple(backend or ()), label)
        if write_jobs is not None:
            for path in write_jobs_of(request, write_jobs):
                out.print(str(path), markup=False)
            return
        with err.status("checking what was asked for ..."):
            plan = sweep_plan(request)
        store = open_store()
        started = time.monotonic()
        with SessionProgress() as progress:
            done = run_sweep(plan, store, cache_folder(), progress)
        last = _last(done)
        unsafe = next((r.unsafe for r in done.results if r.unsafe), None)
        shown = _Shown(last, done.processes, time.monotonic() - started, unsafe)
        _show(store, shown, by_name=bool(request.formats or request.backends), json_=json_)


@dataclass(frozen=True)
class _Shown:
    """Boots to show, with what they took, and why the node was not left clean (None: it was)."""

    runs: list[RunRecord]
    processes: int
    seconds: float
    unsafe: str | None = None


def _judged(answers: Path, jobs: Path | None, label: str | None) -> tuple[Store, _Shown]:
    if jobs is None:
        raise UsageError("--read-answers needs the jobs that were answered.", todo="Add --jobs FOLDER/jobs.json.")
    store, started = open_store(), time.monotonic()
    hello, heard = read_answers_of(jobs, answers)
    runs = judge_jobs(store, jobs.parent, hello, heard, label or str(hello.get("gpu_name") or "another machine"))
    return store, _Shown(runs, 1, time.monotonic() - started)


def _show(store: Store, shown: _Shown, *, by_name: bool, json_: bool) -> NoReturn:
    outcomes = [run.outcome or Outcome.INFRASTRUCTURE for run in shown.runs]
    if shown.unsafe is not None:
        fail("the node is not clean", where=shown.unsafe)
        outcomes.append(Outcome.INFRASTRUCTURE)
    exit_code = exit_code_of([o for o in outcomes if o is not Outcome.UNSUPPORTED or by_name])
    cells = summarise(store, [run.run_id for run in shown.runs])
    if json_:
        rows = [_as_json(c) for c in cells]
        print_json({"seconds": shown.seconds, "processes": shown.processes, "exit_code": exit_code, "cells": rows})
    else:
        out.print(_table(cells))
        out.print(f"{len(cells)} cells, {shown.processes} shared engine processes, {shown.seconds:.0f} s", markup=False)
    raise SystemExit(exit_code)


def _last(done: SweepDone) -> list[RunRecord]:
    """One boot per cell: what a process of its own says counts more than what a shared one says."""
    return list({result.run.series_id + result.run.engine_version: result.run for result in done.results}.values())


def _seconds(summary: CellSummary, phase: Phase) -> float | None:
    return summary.phase_s.get(str(phase))


def _as_json(summary: CellSummary) -> dict[str, Any]:
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


def _table(cells: list[CellSummary]) -> Table:
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
