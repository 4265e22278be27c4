"""`sparkproof serve-script`: a script that starts a server as it was measured, for a bug report or to serve with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from results.boot_folder import BootFolder
from runners.cli.shell import err, errors_shown, open_store
from runners.cli.show import full_run_id
from runners.engines.registry import adapter_for
from runners.envs.environment import cache_folder
from runners.errors import UsageError
from runners.node.facts import has_cuda
from runners.reproduce import script_of_plan, script_of_run
from runners.session import RunRequest, make_plan


def serve_script(
    run: Annotated[str | None, typer.Argument(help="A run id, as `sparkproof runs` lists them.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Instead of a run: recipe, checkpoint folder or hub id.")] = None,
    engine: Annotated[str | None, typer.Option(help="name==version[@docker[:IMAGE]].")] = None,
    backend: Annotated[str, typer.Option(help="Backend.")] = "default",
    docker: Annotated[bool, typer.Option("--docker", help="The default image of that version, as @docker.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write an executable file; without it the script is printed.")] = None,
) -> None:
    """Print a commented script that starts exactly the server of a boot, or the one that a boot would start.

    Examples:

      sparkproof serve-script 20261130T130501Z-1f00ab42 > serve.sh

      sparkproof serve-script --recipe gpt-oss-120b --engine vllm==0.33.0 --backend marlin --docker --output serve.sh
    """
    with errors_shown():
        text = _of_run(run, recipe, engine) if run is not None else _of_plan(recipe, engine, backend, docker)
        if output is None:
            sys.stdout.write(text)
            return
        try:
            output.write_text(text)
            output.chmod(0o755)
        except OSError as error:
            raise UsageError(f"cannot be written: {error.strerror}.", where=str(output), todo="Give another file.") from error
        err.print(f"written: {output}", markup=False)


def _of_run(run: str, recipe: str | None, engine: str | None) -> str:
    if recipe is not None or engine is not None:
        raise UsageError("a run says already which recipe and engine.", todo="Give either RUN, or --recipe and --engine.")
    store = open_store()
    return script_of_run(BootFolder(store.boots, full_run_id(store, run)).summary())


def _of_plan(recipe: str | None, engine: str | None, backend: str, docker: bool) -> str:
    if recipe is None or engine is None:
        raise UsageError("neither a run, nor a recipe and an engine.", todo="Give RUN, or --recipe R --engine NAME==VERSION.")
    if docker and "@" in engine:
        raise UsageError("--docker and an engine with @ say the same twice.", todo="Leave one of them out.")
    adapter_for(engine.partition("==")[0].partition("@")[0].strip().lower())
    plan = make_plan(RunRequest((f"{engine}@docker" if docker else engine,), (recipe,), (backend,), boots=1))
    return script_of_plan(plan.boots[0].cell, cache_folder(), cuda=has_cuda(plan.node))
