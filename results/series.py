"""Names of histories and node states: what a boot's row says beside its own fields.

Trap: a container image and a wheel of one release are one line of a chart, or a driver update rewrites the past because only the newest
node record is kept. Rule: a history is one cell without its release (engine with its distribution, recipe, backend, node), and the node's
state is kept by content for every boot.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from results.records import NodeRecord, RunRecord
from results.verdict.facts import SeriesKey

WHEEL = "venv"
"""The distribution that needs no mention: the release as its wheel."""

_STATE_FIELDS = (
    "node_id",
    "gpu_name",
    "compute_capability",
    "driver_version",
    "cuda_version",
    "kernel",
    "os_name",
    "memory_total_bytes",
    "sm_clock_cap_mhz",
    "firmware",
    "power_limit_w",
)


def series_key(engine: str, distribution: str, recipe: str, backend: str, node_id: str) -> SeriesKey:
    """The key of a history; a distribution other than the wheel is part of the engine's name (`vllm@docker`)."""
    return SeriesKey(engine if distribution == WHEEL else f"{engine}@{distribution}", recipe, backend, node_id)


def series_key_of(run: RunRecord) -> SeriesKey:
    """The key of the history that a boot belongs to."""
    return series_key(run.engine, run.distribution, run.recipe_name, run.backend_name, run.node_id)


@lru_cache(maxsize=4096)
def history_id_of(key: SeriesKey) -> str:
    """Twelve hex digits, the same in every store."""
    return hashlib.sha256(key.text().encode()).hexdigest()[:12]


@lru_cache(maxsize=1024)
def node_state_row(node: NodeRecord) -> Mapping[str, Any]:
    """The row of `node_states` for what this node was like; equal content has an equal `node_state_id`."""
    state = {name: getattr(node, name) for name in _STATE_FIELDS}
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:12]
    return {"node_state_id": digest, **state}
