"""Which engines there are.

Trap: a second engine grows as if-chains in the pipeline. Rule: the pipeline asks this table for an adapter by name and knows nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from runners.engines.base import EngineAdapter
from runners.engines.sglang import SglangAdapter
from runners.engines.vllm import VllmAdapter
from runners.errors import UsageError

ADAPTERS: Mapping[str, EngineAdapter] = {adapter.name: adapter for adapter in (VllmAdapter(), SglangAdapter())}


def adapter_for(engine: str) -> EngineAdapter:
    """The adapter called `engine`. Raises UsageError naming the engines that exist."""
    if engine not in ADAPTERS:
        close = get_close_matches(engine, ADAPTERS, n=1)
        hint = f"Did you mean {close[0]}?" if close else f"Known engines: {', '.join(sorted(ADAPTERS))}."
        raise UsageError(f"there is no engine {engine[:60]!r}.", todo=hint)
    return ADAPTERS[engine]
