"""A script that starts a server as it was measured, or as a plan would start it, with everything needed to make the same again.

Trap: a bug report says "vLLM with Marlin", and nobody can start the same server. Rule: the script is the recorded command, and its comments
name version, build, model revision and node; what was not recorded is said to be unknown.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from results.boot_folder import BootSummary
from results.records import EngineBuildRecord
from runners.engines.base import ServeCommand
from runners.envs.by_hand import commands_by_hand
from runners.envs.resolve import plan_for
from runners.errors import SparkproofError, UsageError
from runners.fit_check import local_folder
from runners.launchers import docker as containers
from runners.launchers.docker_cli import ImageIdentity
from runners.models import materialise
from runners.node.facts import has_cuda
from runners.plan import Cell
from runners.process.serve_script import container_by_hand, serve_script
from runners.serve_request import serve_command, serve_request
from runners.spec import EngineSpec
from runners.vocabulary_file import OfflineVocabulary, offline_vocabulary
from suites.backends import Unsupported as BackendUnsupported
from suites.recipes import Recipe

PORT = 8000
_WHEELS_A_LINE = 4


def script_of_run(summary: BootSummary) -> str:
    """The script of a boot from its record. Raises UsageError if no server was started by us for it."""
    run = summary.run
    if not run.command:
        todo = "Only a boot that reached its launch has a command; an endpoint was started by somebody else."
        raise UsageError("no server was started for this boot.", where=run.run_id, todo=todo)
    in_container = run.distribution == "docker"
    command = container_by_hand(run.command, run.environment) if in_container else ServeCommand(run.command, run.environment)
    recipe = summary.recipe
    notes = [
        "",
        f"Boot {run.run_id} of {run.started_at}: {run.outcome or 'not finished'}",
        f"Engine:  {run.engine} {run.engine_version} (the server said: {run.server_version or 'unknown'}), @{run.distribution}",
        f"Model:   {recipe.model if recipe else 'unknown'}, revision {(recipe.revision if recipe else None) or 'not pinned'}",
        f"Backend: {run.backend_name}",
        f"Node:    {summary.node.label}, {summary.node.gpu_name or 'no GPU known'}, driver {summary.node.driver_version or 'unknown'}",
        *_build_notes(summary.build),
    ]
    if not in_container:
        folder = str(Path(run.command[0]).parents[1])
        notes += _environment_notes(EngineSpec(run.engine, run.engine_version), folder, cuda=has_cuda(summary.node))
    return serve_script(command, notes)


def script_of_plan(cell: Cell, cache_root: Path, *, cuda: bool) -> str:
    """The script of a boot that was not made: port 8000, the model where it lies or as the hub names it. Raises UsageError."""
    spec, recipe = cell.spec, cell.recipe
    if spec.distribution == "endpoint":
        raise UsageError("an endpoint runs already: there is nothing to start.", todo="Give the engine as @venv or @docker.")
    reason = recipe.unsupported(spec.name, spec.version)
    reason = reason or (cell.expressed.reason if isinstance(cell.expressed, BackendUnsupported) else None)
    if reason is not None:
        raise UsageError(f"there is no such server: {reason}", todo="Choose another version, model or backend.")
    path = _model_path(recipe, cache_root)
    vocabulary = offline_vocabulary(recipe, spec.name, spec.version, cache_root, os.environ)
    request = serve_request(cell, model_path=path, served_name=recipe.name, port=PORT, has_cuda=cuda, vocabulary=vocabulary.environment)
    environment = f"{spec.name}-{spec.version}"
    command = serve_command(cell, Path(environment) / "bin" / "python", request)
    if not Path(path).is_absolute() and recipe.revision is not None:
        command = ServeCommand((*command.argv, "--revision", recipe.revision), command.environment)
    notes = [
        "",
        "Not measured: this is what `sparkproof run` would start.",
        f"Engine:  {spec}",
        f"Model:   {recipe.model}, revision {recipe.revision or 'not pinned'}",
        f"Backend: {cell.backend.name}",
        *([f"Note:    {vocabulary.missing}"] if vocabulary.missing is not None else []),
    ]
    if spec.distribution == "docker":
        return serve_script(_container(command, spec.target, path, vocabulary, cuda=cuda), notes)
    return serve_script(command, [*notes, *_environment_notes(spec, environment, cuda=cuda)])


def _model_path(recipe: Recipe, cache_root: Path) -> str:
    source, folder = recipe.source, local_folder(recipe)
    if folder is not None:
        return str(folder)
    if source.hub is not None:
        return source.hub
    if source.canary is not None:
        return str(materialise(recipe, cache_root, lambda line: None).path)
    raise UsageError("this model is made by a run first.", where=recipe.name, todo="Run it once, then: sparkproof serve-script RUN.")


def _container(command: ServeCommand, image: str, path: str, vocabulary: OfflineVocabulary, *, cuda: bool) -> ServeCommand:
    identity = ImageIdentity(image, "by-hand", image, "")
    mounts = containers.model_mounts(Path(path)) if Path(path).is_absolute() else ()
    mounts += () if vocabulary.folder is None else (containers.Mount(vocabulary.folder),)
    argv = containers.run_argv("docker", command, identity, "by-hand", "nobody", PORT, mounts, has_cuda=cuda)
    return container_by_hand(argv, command.environment)


def _build_notes(build: EngineBuildRecord | None) -> list[str]:
    if build is None:
        return ["Build:   unknown"]
    if build.image_digest is not None:
        return [f"Image:   {build.image_digest}"]
    packages = [" ".join(build.wheels[i : i + _WHEELS_A_LINE]) for i in range(0, len(build.wheels), _WHEELS_A_LINE)]
    head = f"Build:   {len(build.wheels)} packages, digest {build.build_id}, Python {build.python_version or 'unknown'}"
    return [head, *(f"         {line}" for line in packages)]


def _environment_notes(spec: EngineSpec, folder: str, *, cuda: bool) -> list[str]:
    try:
        commands = commands_by_hand(plan_for(spec, has_cuda=cuda), folder)
    except SparkproofError as error:
        return [f"How to make its environment on this machine is not known: {error}"]
    return ["", f"Its environment ({platform.machine()}):", *(f"  {line}" for line in commands)]
