"""`sparkproof run`: an engine release from nothing to a recorded verdict."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from results.errors import StoreError
from results.redact import plain, redact_argv, redact_environment
from results.store import Store
from results.summary import CellSummary, summarise
from results.vocabulary import ExitCode, Outcome, Purpose, exit_code_of
from runners.cli.confirmed import confirming, print_verdicts, verdicts_on
from runners.cli.diagnosed import diagnoses_as_json, outcomes_asked_for, print_diagnoses
from runners.cli.progress import SessionProgress
from runners.cli.result_table import as_json, print_result
from runners.cli.shell import err, errors_shown, open_store, out, print_json, shown
from runners.cli.unstored import summaries_of
from runners.diagnose.follow_up import Controls
from runners.dry_run import STAND_INS, commands_of, notes_of
from runners.engines.base import ServeCommand
from runners.envs.environment import cache_folder
from runners.node.facts import has_cuda
from runners.pipeline import BootResult
from runners.session import Plan, RunRequest, in_turn, make_plan, no_follow_up, run_session

_MANY = "May be given several times."


def run(
    engine: Annotated[list[str] | None, typer.Option(help=f"name==version[@venv|@docker[:IMAGE]|@endpoint:URL]. {_MANY}")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help=f"Recipe, checkpoint folder, or served:NAME at an endpoint; default: the suite's. {_MANY}")
    ] = None,
    backend: Annotated[list[str] | None, typer.Option(help=f"Backend; default: the suite's for this kind of node. {_MANY}")] = None,
    suite: Annotated[str, typer.Option(help="Suite name, or the path of a suite file.")] = "smoke",
    repeats: Annotated[int | None, typer.Option(min=1, max=100, help="Timed repeats of each workload in a boot.")] = None,
    boots: Annotated[int | None, typer.Option(min=1, max=20, help="Starts of each cell.")] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Boot again what failed once or moved, both releases in turns, until it is decided.")
    ] = False,
    controls: Annotated[
        bool, typer.Option("--controls/--no-controls", help="After a failed gate, boot with one thing changed at a time to say why.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and the commands; start nothing.")] = False,
    keep_server: Annotated[bool, typer.Option("--keep-server", help="Leave the server running if it passes; for one boot.")] = False,
    beside_kept: Annotated[
        bool, typer.Option("--beside-kept", help="Measure although a server left running with --keep-server still runs here.")
    ] = False,
    download: Annotated[bool, typer.Option("--download", help="Allow fetching model files from a hub.")] = False,
    label: Annotated[str | None, typer.Option(help="What you call this node.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure engine releases: environment, server, coherence gate, timing, DuckDB, one table.

    Examples:

      sparkproof run --engine vllm==0.32.0

      sparkproof run --engine sglang==0.5.14 --model canary-dense --backend eager

      sparkproof run --engine vllm==0.31.0 --engine vllm==0.32.0 --boots 3 --confirm

      sparkproof run --engine vllm==0.32.0@endpoint:http://127.0.0.1:8000 --model served:my-model

    Exit codes: 0 every cell passes, 1 a cell is broken, 2 usage, 3 our or the node's fault, 130 interrupted.
    """
    with errors_shown():
        request = RunRequest(
            tuple(engine or ()),
            tuple(model or ()),
            tuple(backend or ()),
            suite,
            repeats,
            boots,
            keep_server,
            label,
            download,
            beside_kept,
        )
        with err.status("checking what was asked for ..."):
            plan = make_plan(request)
        if dry_run:
            _show_plan(plan, json_)
            return
        store = open_store()
        with SessionProgress() as progress:
            why = Controls(store, cache_folder(), has_cuda(plan.node))
            follow_up = in_turn(why if controls else no_follow_up, confirming(plan, store) if confirm else no_follow_up)
            results = run_session(request, plan, store, cache_folder(), progress, follow_up)
        outcomes = outcomes_asked_for(results)
        if any(r.unsafe for r in results):
            outcomes.append(Outcome.INFRASTRUCTURE)
        exit_code = exit_code_of(outcomes)
        if any(r.unstored for r in results):
            exit_code = exit_code or ExitCode.INFRASTRUCTURE
        verdicts = verdicts_on(plan, store) if confirm else []
        if exit_code == ExitCode.OK and any(verdict["alarm"] for verdict in verdicts):
            exit_code = ExitCode.BROKEN_OR_SLOWER
        cells = _cells(store, results)
        if json_:
            unstored = [_unstored(r, store) for r in results if r.unstored is not None]
            kept = [{"run_id": r.run.run_id, "base_url": r.kept, "end_by_hand": r.kept_end} for r in results if r.kept is not None]
            more = {"unstored": unstored, "verdicts": verdicts, "kept": kept, "diagnoses": diagnoses_as_json(why)}
            print_json({**as_json(cells, store, exit_code), **more})
        elif cells:
            print_result(out, cells, store)
            print_diagnoses(why)
            print_verdicts(verdicts)
        raise SystemExit(exit_code)


def _cells(store: Store, results: list[BootResult]) -> list[CellSummary]:
    """The result of every boot, from the database or, where it could not take or give it, from the boot itself."""
    results = [r for r in results if r.planned.purpose is not Purpose.CONTROL]
    stored = [r.run.run_id for r in results if r.unstored is None]
    try:
        cells = summarise(store, stored)
    except StoreError as error:
        err.print(f"shown from the boots' folders: {shown(str(error), 600)}", markup=False)
        stored, cells = [], []
    return [*cells, *summaries_of(store.boots, [r.run for r in results if r.run.run_id not in stored])]


def _unstored(result: BootResult, store: Store) -> dict[str, str | None]:
    """A boot that the database does not hold yet; its folder does, and the next start stores it."""
    run = result.run
    return {"run_id": run.run_id, "outcome": run.outcome, "folder": str(store.boots / run.run_id), "why": result.unstored}


def _show_plan(plan: Plan, json_: bool) -> None:
    rows: list[dict[str, Any]] = []
    cache = cache_folder()
    for planned, command in commands_of(plan.boots, plan.node, cache):
        cell = planned.cell
        rows.append(
            {
                "engine": str(cell.spec),
                "model": cell.recipe.name,
                "backend": cell.backend.name,
                "boot": planned.number,
                "workloads": [w.name for w in cell.workloads],
                "command": shlex.join(redact_argv(command.argv)) if isinstance(command, ServeCommand) else None,
                "environment": redact_environment(command.environment) if isinstance(command, ServeCommand) else {},
                "note": None if isinstance(command, ServeCommand) else command,
                "warnings": list(notes_of(cell, plan.node, cache)) if isinstance(command, ServeCommand) else [],
            }
        )
    if json_:
        print_json({"node": plan.node.label, "boots": rows, "stand_ins": STAND_INS})
        return
    out.print(f"node {plain(plan.node.label, 80)}: {len(rows)} boots", markup=False)
    for row in rows:
        variables = [f"{k}={shlex.quote(v)}" for k, v in sorted(row["environment"].items())]
        out.print(f"\n{row['engine']} · {row['model']} · {row['backend']} · boot {row['boot']}", markup=False, style="bold")
        text = row["note"] or " ".join([*variables, row["command"]])
        out.print(plain(str(text), 8_000), markup=False, soft_wrap=True)
        for warning in row["warnings"]:
            out.print(f"warning: {plain(warning, 1_000)}", markup=False, soft_wrap=True, style="yellow")
    out.print(f"\n{STAND_INS}", markup=False, style="dim")
