"""`sparkproof reference`: known good answers of a real model, made by a trusted boot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from results.vocabulary import ExitCode, Outcome, exit_code_of
from runners.cli.progress import SessionProgress
from runners.cli.shell import cell, err, errors_shown, open_store, out, print_json, store_root
from runners.coherence.reference_file import FOLDER, Reference, read_reference, write_reference
from runners.envs.environment import cache_folder
from runners.errors import UsageError
from runners.model_references import SHIPPED
from runners.reference_maker import Collector, reference_of, reference_plan, store_path, widen
from runners.session import RunRequest, make_plan, run_session

reference = typer.Typer(name="reference", help="Known good answers of a real model, made by a trusted boot.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@reference.command()
def make(
    engine: Annotated[str, typer.Option(help="The trusted build: name==version[@venv|@docker[:IMAGE]|@endpoint:URL].")],
    model: Annotated[str, typer.Option(help="Recipe, checkpoint folder, hub id, or served:NAME at an endpoint.")],
    backend: Annotated[str | None, typer.Option(help="Backend you trust; default: the suite's for this kind of node.")] = None,
    to: Annotated[Path | None, typer.Option(help="File to write; default: among the store's references, where the gate finds it.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Allow fetching model files from a hub.")] = False,
    json_: Json = False,
) -> None:
    """Boot a build that you trust, pass its gate, and keep its answers as the known good set of the model.

    Later boots of the same model (same revision, chat template and prompts) are compared with it: an answer outside the set is `wrong` if
    rounding cannot explain where it differs.

    Examples:

      sparkproof reference make --engine vllm==0.32.0 --model gemma3-270m --backend eager

      sparkproof reference make --engine sglang==0.5.14 --model ./checkpoint --to known-good.json

    Exit codes: 0 written, 1 the boot did not pass its gate, 2 usage, 3 our or the node's fault, 130 interrupted.
    """
    with errors_shown():
        request = RunRequest((engine,), (model,), (backend,) if backend else (), "smoke", boots=1, download=download)
        with err.status("checking what was asked for ..."):
            plan = reference_plan(make_plan(request))
        store, collector = open_store(), Collector()
        with SessionProgress() as progress:
            results = run_session(request, plan, store, cache_folder(), progress, collect=collector)
        run = results[-1].run if results else None
        code = exit_code_of([run.outcome or Outcome.INFRASTRUCTURE] if run is not None else [])
        if run is None or run.outcome is not Outcome.PASS:
            if json_:
                print_json({"written": None, "outcome": run and run.outcome, "reason": run and run.reason, "exit_code": code})
            else:
                out.print(cell(f"no reference was made: {run.outcome if run else 'no boot'}: {(run.reason if run else '') or ''}", 2_000))
            raise SystemExit(code)
        made = reference_of(collector, run)
        path = to or store_path(store.root, made.key)
        write_reference(path, made)
        if json_:
            print_json({"written": str(path), "outcome": run.outcome, **_summary(made), "exit_code": code})
        else:
            out.print(cell(f"written: {path}", 1_000))
            out.print(_table(made))


@reference.command()
def show(
    file: Annotated[Path | None, typer.Argument(help="A reference file; without it, all that the gate can find are listed.")] = None,
    json_: Json = False,
) -> None:
    """Show the references that the gate can find, or one file with its prompts and alternatives.

    Examples:

      sparkproof reference show

      sparkproof reference show known-good.json --json

    Exit codes: 0 shown, 2 usage.
    """
    with errors_shown():
        if file is not None:
            found = read_reference(file)
            if json_:
                print_json({"file": str(file), **_summary(found)})
            else:
                out.print(cell(f"{found.key.model}: {found.source}", 1_000))
                out.print(_table(found))
            return
        files = [path for folder in (store_root() / FOLDER, SHIPPED) for path in sorted(folder.glob("*.json"))]
        listed = [(path, read_reference(path)) for path in files]
        if json_:
            print_json([{"file": str(path), **_summary(found)} for path, found in listed])
        elif not listed:
            out.print("no references; make one: sparkproof reference make --engine ENGINE --model MODEL")
        for path, found in [] if json_ else listed:
            out.print(cell(f"{found.key.model}: {len(found.answers)} prompts, {len(found.texts)} texts; {found.source}  {path}", 1_000))


@reference.command("widen")
def widen_command(
    file: Annotated[Path, typer.Argument(help="The reference file to add to.")],
    run: Annotated[str, typer.Option(help="The run whose answers are right, too.")],
    prompt: Annotated[str, typer.Option(help="The prompt that has several right answers.")],
    why: Annotated[str, typer.Option(help="Why you trust them; kept in the file.")],
    json_: Json = False,
) -> None:
    """Add the answers that a run gave to one prompt: you vouch that they are right, too.

    A prompt with several right answers (a near tie that rounding decides) never widens its set by itself.

    Examples:

      sparkproof reference widen known-good.json --run RUN --prompt raw_story --why "read it; a synonym at a near tie"

    Exit codes: 0 added, or known before, 2 usage.
    """
    with errors_shown():
        if not why.strip():
            raise UsageError("an answer is added only with a reason.", where="--why", todo="Say why you trust it.")
        changed, added = widen(read_reference(file), open_store(), run, prompt, why.strip())
        if added:
            write_reference(file, changed)
        if json_:
            print_json({"file": str(file), "prompt": prompt, "added": added, "alternatives": len(changed.answers[prompt])})
        else:
            out.print(cell(f"{added} answers added to {prompt}; it has {len(changed.answers[prompt])} now", 300))
        raise SystemExit(ExitCode.OK)


def _summary(found: Reference) -> dict[str, Any]:
    return {
        "key": found.key.model_dump(),
        "made": [boot.model_dump() for boot in found.made],
        "prompts": {name: len(answers) for name, answers in found.answers.items()},
        "bistable": sorted(name for name, answers in found.answers.items() if len(answers) > 1),
        "texts": {name: len(ids) for name, ids in found.texts.items()},
        "passages": {path: {name: p.floor_rms for name, p in scored.items()} for path, scored in found.passages.items()},
    }


def _table(found: Reference) -> Table:
    table = Table(header_style="bold")
    for column in ("prompt", "alternatives", "seen", "by", "text"):
        table.add_column(column, overflow="fold")
    for name, answers in found.answers.items():
        for answer in answers:
            table.add_row(cell(name, 80), str(len(answers)), str(answer.seen), answer.by, cell(answer.text, 80))
    for path, scored in found.passages.items():
        for name, passage in scored.items():
            told = f"{len(found.texts.get(name, ()))} tokens scored on {path}, own noise {passage.floor_rms:.4f} nats rms"
            table.add_row(cell(name, 80), "", "", "", cell(told, 200))
    return table
