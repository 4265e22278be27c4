"""From a cell to what its server is asked to serve.

Trap: the plan, the boot and the script for a bug report each put recipe and backend together, and differ. Rule: one place does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runners.engines.base import UNKNOWN, ServeCommand, ServeRequest
from runners.engines.registry import adapter_for
from runners.launchers.docker import HOST_INSIDE
from runners.plan import Cell
from suites.backends import Unsupported as BackendUnsupported

MAX_NUM_SEQS = 16
"""Sequences a measured server must take at once: the largest batch of the gate and of the standard workloads, with room."""
PYTHON_INSIDE = Path("python3")
"""Python of a container: the first on its own path, in the images of both engines."""


def serve_request(
    cell: Cell,
    *,
    model_path: str,
    served_name: str,
    port: int,
    has_cuda: bool,
    vocabulary: Mapping[str, str] | None = None,
    small_cache: bool = False,
) -> ServeRequest:
    """What shall be served. The backend's arguments and variables come after the recipe's, and win.

    `vocabulary` are the variables of `offline_vocabulary`.
    """
    expressed, engine = cell.expressed, cell.spec.name
    assert not isinstance(expressed, BackendUnsupported), "such a cell ends before it is served"
    return ServeRequest(
        model_path=model_path,
        served_name=served_name,
        host=HOST_INSIDE if cell.spec.distribution == "docker" else "127.0.0.1",
        port=port,
        has_cuda=has_cuda,
        max_model_len=cell.recipe.max_model_len,
        max_num_seqs=MAX_NUM_SEQS,
        arguments=(*cell.recipe.arguments.get(engine, ()), *expressed.arguments),
        environment={**(vocabulary or {}), **cell.recipe.environment.get(engine, {}), **expressed.environment},
        small_cache=small_cache,
    )


def serve_command(cell: Cell, python: Path, request: ServeRequest) -> ServeCommand:
    """The command of this cell's version. `python` is the environment's own; a container has its own."""
    used = PYTHON_INSIDE if cell.spec.distribution == "docker" else python
    return adapter_for(cell.spec.name).serve_command(used, cell.spec.version or UNKNOWN, request)
