"""Does this recipe fit on this node? The arithmetic of `memory_fit` with what is known here: node, files and backend.

Trap: the memory of a discrete GPU is taken for that of its host. Rule: only memory that processor and GPU share, or that of a node
without a GPU, is compared; of any other node it is not known.
"""

from __future__ import annotations

import json
from pathlib import Path

from results.records import NodeRecord
from runners import hub
from runners.memory_fit import Fit, memory_fit
from runners.node.facts import has_cuda as node_has_cuda
from runners.plan import Cell
from suites.backends import Expressed
from suites.backends import Unsupported as BackendUnsupported
from suites.format_support import cannot_run
from suites.kv_cache import KvShape, kv_shape_from_config
from suites.recipes import Recipe

_UNIFIED = frozenset({"12.1"})
"""Compute capabilities of GPUs that share the node's memory: GB10."""
_MAX_CONFIG_BYTES = 4 << 20


def fit_of(recipe: Recipe, expressed: Expressed, node: NodeRecord, *, has_cuda: bool) -> Fit | None:
    """The comparison; None for a canary, which fits everywhere, and for what an endpoint already serves."""
    if recipe.kind == "canary" or recipe.source.served is not None:
        return None
    shared = not has_cuda or node.compute_capability in _UNIFIED
    folder = local_folder(recipe)
    return memory_fit(
        recipe,
        node.memory_total_bytes if shared else None,
        kv_cache_dtype=expressed.configured.get("kv_cache_dtype", "auto"),
        weight_bytes=None if folder is None else _weight_bytes(folder),
        kv=None if folder is None else _kv_shape(folder),
    )


def local_folder(recipe: Recipe) -> Path | None:
    """Where the checkpoint lies already, without any network; None if it must be made or fetched."""
    if recipe.source.path is not None:
        return Path(recipe.source.path)
    snapshot = hub.cached(recipe.source.hub, recipe.revision) if recipe.source.hub is not None else None
    return snapshot.folder if snapshot is not None else None


def _weight_bytes(folder: Path) -> int | None:
    try:
        return sum(p.stat().st_size for p in folder.glob("*.safetensors")) or None
    except OSError:
        return None


def _kv_shape(folder: Path) -> KvShape | None:
    path = folder / "config.json"
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            return None
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return kv_shape_from_config(config, "config.json") if isinstance(config, dict) else None


def why_not(cell: Cell, node: NodeRecord) -> str | None:
    """Why this boot would end before anything is installed; None if nothing speaks against it."""
    reason = cell.recipe.unsupported(cell.spec.name, cell.spec.version)
    if reason is not None:
        return reason
    if isinstance(cell.expressed, BackendUnsupported):
        return cell.expressed.reason
    if cell.spec.distribution == "endpoint":
        return None
    cuda = node_has_cuda(node)
    no_kernel = cannot_run(cell.spec.name, cell.recipe.weight_format, has_cuda=cuda, compute_capability=node.compute_capability)
    if no_kernel is not None:
        return no_kernel
    fit = fit_of(cell.recipe, cell.expressed, node, has_cuda=cuda)
    return fit.sentence if fit is not None and fit.refused else None
