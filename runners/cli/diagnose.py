"""`sparkproof diagnose`: why a model prints nonsense on an engine, and which flags work."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Annotated

import typer

from results.kept_records import SessionRecord
from results.records import NodeRecord
from results.store import Store
from results.vocabulary import ExitCode, Outcome, exit_code_of
from runners.cli.diagnosed import diagnoses_as_json, outcomes_asked_for, print_diagnoses
from runners.cli.progress import SessionProgress
from runners.cli.shell import err, errors_shown, open_store, out, print_json
from runners.cli.show import full_run_id
from runners.diagnose.follow_up import Controls, Limits
from runners.diagnose.past_run import cell_of_run
from runners.envs.environment import cache_folder
from runners.errors import UsageError
from runners.node.facts import has_cuda, read_node
from runners.pipeline import BootResult
from runners.recorder import utc_now
from runners.session import Plan, RunRequest, make_plan, run_session


def diagnose(
    run: Annotated[str | None, typer.Argument(help="A run id, as `sparkproof runs` lists them; or name a cell with the options.")] = None,
    engine: Annotated[str | None, typer.Option(help="name==version[@venv|@docker[:IMAGE]|@endpoint:URL].")] = None,
    model: Annotated[str | None, typer.Option(help="Recipe or checkpoint folder.")] = None,
    backend: Annotated[str | None, typer.Option(help="Backend; default: the suite's for this kind of node.")] = None,
    most_boots: Annotated[int, typer.Option("--most-controls", min=1, max=30, help="Control boots at most.")] = Limits().boots,
    minutes: Annotated[float, typer.Option(min=1, max=1440, help="Minutes after which no further control begins.")] = Limits().seconds / 60,
    download: Annotated[bool, typer.Option("--download", help="Allow fetching model files from a hub.")] = False,
    label: Annotated[str | None, typer.Option(help="What you call this node.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say why a boot fails: the same weights again with one thing changed at a time, the fewest boots first.

    What is changed: nothing at all (what the failed server still answers), eager, another MoE, linear or attention backend, KV cache in the
    model's own type, no prefix cache, one sequence at a time, the last good release, transformers without any engine. Every control is a
    recorded boot; the conclusion is stored with the boot that failed.

    Examples:

      sparkproof diagnose 20261130T130501Z-1f00ab42

      sparkproof diagnose --engine vllm==0.32.0 --model canary-dense --backend default

      sparkproof diagnose --engine vllm==0.32.0 --model /models/mine --most-controls 4 --json

    Exit codes: 0 nothing fails, 1 it fails and the diagnosis says why (or that it is undecided), 2 usage, 3 our or the node's fault, 130
    interrupted.
    """
    with errors_shown():
        _check(run, engine, model)
        store = open_store()
        request = RunRequest((engine,) if engine else (), (model,) if model else (), (backend,) if backend else (), "smoke", 1, 1)
        request = replace(request, label=label, download=download)
        limits = Limits(most_boots, minutes * 60)
        results, controls = _of_run(store, run, request, limits) if run is not None else _of_cell(store, request, limits)
        exit_code = _exit_code(results, controls)
        if json_:
            asked = [{"run_id": r.run.run_id, "purpose": r.run.purpose, "outcome": r.run.outcome, "reason": r.run.reason} for r in results]
            print_json({"exit_code": exit_code, "boots": asked, "diagnoses": diagnoses_as_json(controls)})
        elif controls.diagnoses:
            print_diagnoses(controls)
        else:
            out.print("nothing to diagnose: " + ", ".join(f"{r.run.run_id} {r.run.outcome}" for r in results), markup=False)
        raise SystemExit(exit_code)


def _check(run: str | None, engine: str | None, model: str | None) -> None:
    if run is not None and (engine or model):
        raise UsageError("a run and a cell are both given.", todo="Give a run id, or --engine and --model.")
    if run is None and not (engine and model):
        raise UsageError("nothing is named that could be diagnosed.", todo="Give a run id, or --engine and --model.")


def _of_run(store: Store, run: str, request: RunRequest, limits: Limits) -> tuple[list[BootResult], Controls]:
    """Controls of a boot that was made before."""
    record, cell = cell_of_run(store, full_run_id(store, run))
    with err.status("looking at the node ..."):
        node = read_node(request.label)
    if node.node_id != record.node_id:
        raise UsageError("this boot was made on another node: controls elsewhere would change two things.", where=record.run_id)
    controls = Controls(store, cache_folder(), has_cuda(node), limits)
    controls.open(record, cell)
    first = controls(())
    if not first:
        return [], controls
    with SessionProgress() as progress:
        return run_session(_visit(request, node), Plan(node, tuple(first)), store, cache_folder(), progress, controls), controls


def _of_cell(store: Store, request: RunRequest, limits: Limits) -> tuple[list[BootResult], Controls]:
    """An ordinary boot of the cell first; controls if it fails its gate, crashes or hangs."""
    with err.status("checking what was asked for ..."):
        plan = make_plan(request)
    controls = Controls(store, cache_folder(), has_cuda(plan.node), limits, crashes_too=True)
    with SessionProgress() as progress:
        return run_session(_visit(request, plan.node), plan, store, cache_folder(), progress, controls), controls


def _visit(request: RunRequest, node: NodeRecord) -> RunRequest:
    return replace(request, session=SessionRecord(uuid.uuid4().hex[:16], node.node_id, "diagnose", utc_now()))


def _exit_code(results: list[BootResult], controls: Controls) -> int:
    outcomes = outcomes_asked_for(results)
    if Outcome.INTERRUPTED in outcomes:
        return ExitCode.INTERRUPTED
    if controls.diagnoses:
        return ExitCode.BROKEN_OR_SLOWER
    return exit_code_of(outcomes)
