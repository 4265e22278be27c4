"""What a plan would start, without starting anything: `sparkproof run --dry-run`.

Trap: the plan shows another command than the one that runs (the server inside a container instead of the container), and somebody debugs
that. Rule: the same functions build both; what is only known at the start (the free port, the boot's id, paths not made yet) is a visible
stand-in.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from results.records import NodeRecord
from runners.engines.base import ServeCommand
from runners.fit_check import fit_of, local_folder, why_not
from runners.launchers import docker as containers
from runners.launchers.docker_cli import Docker, ImageIdentity
from runners.node.facts import has_cuda
from runners.plan import Cell, PlannedBoot
from runners.serve_request import serve_command, serve_request
from runners.vocabulary_file import offline_vocabulary
from suites.backends import Unsupported as BackendUnsupported

PORT = 8000
"""Stands for the free port that a boot takes."""
RUN_ID, RUNNER, IMAGE_ID = "RUN_ID", "RUNNER", "IMAGE_ID"
STAND_INS = f"{PORT}, {RUN_ID}, {RUNNER}, {IMAGE_ID} and <...> stand for what is only known at the start"


def commands_of(boots: Sequence[PlannedBoot], node: NodeRecord, cache_root: Path) -> list[tuple[PlannedBoot, ServeCommand | str]]:
    """Each boot with the command that would serve it, or a sentence on why there is none."""
    return [(planned, _command(planned.cell, node, cache_root)) for planned in boots]


def notes_of(cell: Cell, node: NodeRecord, cache_root: Path) -> tuple[str, ...]:
    """What the boot's pre-flight would warn of, as far as it is known without a server."""
    if isinstance(cell.expressed, BackendUnsupported) or cell.spec.distribution == "endpoint":
        return ()
    fit = fit_of(cell.recipe, cell.expressed, node, has_cuda=has_cuda(node))
    missing = offline_vocabulary(cell.recipe, cell.spec.name, cell.spec.version, cache_root, os.environ).missing
    memory = fit.sentence if fit is not None and fit.worth_a_warning else None
    return tuple(note for note in (memory, missing) if note is not None)


def _command(cell: Cell, node: NodeRecord, cache_root: Path) -> ServeCommand | str:
    if reason := why_not(cell, node):
        return f"unsupported: {reason}"
    if cell.spec.distribution == "endpoint":
        return f"attaches to {cell.spec.target}"
    cuda = has_cuda(node)
    folder = local_folder(cell.recipe)
    path = str(folder) if folder is not None else f"/<{cell.recipe.model}>"
    vocabulary = offline_vocabulary(cell.recipe, cell.spec.name, cell.spec.version, cache_root, os.environ)
    request = serve_request(
        cell, model_path=path, served_name=cell.recipe.name, port=PORT, has_cuda=cuda, vocabulary=vocabulary.environment
    )
    command = serve_command(cell, Path(f"<environment of {cell.spec}>/bin/python"), request)
    if cell.spec.distribution != "docker":
        return command
    mounts = [*containers.model_mounts(Path(path)), *([] if vocabulary.folder is None else [containers.Mount(vocabulary.folder)])]
    image = ImageIdentity(cell.spec.target, IMAGE_ID, cell.spec.target, "")
    return ServeCommand(containers.run_argv(Docker().program, command, image, RUN_ID, RUNNER, PORT, mounts, has_cuda=cuda), {})
