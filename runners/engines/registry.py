"""Which engines there are.

Trap: a second engine grows as if-chains in the pipeline, and two lists of engine names drift apart. Rule: the pipeline asks this table for
an adapter by name and knows nothing else; whether an engine exists, and whether we can start it, is answered here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from runners.engines.base import EngineAdapter
from runners.engines.llamacpp import LlamacppAdapter
from runners.engines.sglang import SglangAdapter
from runners.engines.transformers import TransformersAdapter
from runners.engines.vllm import VllmAdapter
from runners.errors import UsageError

_ALL: tuple[EngineAdapter, ...] = (VllmAdapter(), SglangAdapter(), LlamacppAdapter(), TransformersAdapter())
ADAPTERS: Mapping[str, EngineAdapter] = {adapter.name: adapter for adapter in _ALL}
ATTACHED_ONLY = frozenset({LlamacppAdapter.name})
"""Engines that nobody here installs or starts: measured only where they already run."""


def adapter_for(engine: str) -> EngineAdapter:
    """The adapter called `engine`. Raises UsageError naming the engines that exist."""
    if engine not in ADAPTERS:
        close = get_close_matches(engine, ADAPTERS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UsageError(f"{engine[:60]!r} is not an engine we know.{hint}", todo=f"Engines: {', '.join(sorted(ADAPTERS))}.")
    return ADAPTERS[engine]


def check_engine(engine: str, distribution: str) -> None:
    """Raises UsageError for an engine that does not exist, or that cannot be had as this distribution (venv, docker, endpoint)."""
    adapter_for(engine)
    if engine in ATTACHED_ONLY and distribution != "endpoint":
        raise UsageError(
            f"{engine} is measured only where it already runs, not as @{distribution}.", todo=f"Write {engine}==VERSION@endpoint:URL."
        )
