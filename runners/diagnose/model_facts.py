"""What decides which controls a model has: experts, quantised layers, the size of its weights.

Trap: a control for experts of a dense model costs a boot and proves nothing. Rule: read from the checkpoint's own configuration where it
lies here, else from what the engine named; what neither says is not assumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.engines.base import UNKNOWN
from runners.errors import SparkproofError
from runners.models import materialise
from suites.canaries.zoo import CanaryError
from suites.recipes import Recipe

_MOST_BYTES = 4 << 20
_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class ModelFacts:
    """`weight_bytes` is None where the files are not here."""

    has_experts: bool
    quantised: bool
    weight_bytes: int | None


def model_facts(recipe: Recipe, cache_root: Path, kernels: Mapping[str, str]) -> ModelFacts:
    """Facts of a recipe's model. Nothing is downloaded; `kernels` is what the engine said ran."""
    folder = _folder(recipe, cache_root)
    config = _config(folder) if folder is not None else {}
    inner = config.get("text_config")
    parts = (config, inner if isinstance(inner, Mapping) else {})
    counts = [part.get(key) for part in parts for key in _EXPERT_COUNTS]
    experts = any(isinstance(n, int) and not isinstance(n, bool) and n > 1 for n in counts)
    return ModelFacts(
        has_experts=experts or kernels.get("moe", UNKNOWN) not in ("", UNKNOWN),
        quantised=recipe.weight_format != "bf16" or any(part.get("quantization_config") for part in parts),
        weight_bytes=_weight_bytes(folder) if folder is not None else None,
    )


def _folder(recipe: Recipe, cache_root: Path) -> Path | None:
    try:
        return materialise(recipe, cache_root, lambda line: None, may_download=False).path
    except (SparkproofError, CanaryError):
        return None


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        config = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def _weight_bytes(folder: Path) -> int | None:
    try:
        return sum(p.stat().st_size for p in folder.glob("*.safetensors")) or None
    except OSError:
        return None
