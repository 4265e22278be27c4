"""The sweep's worker with hands in its KV cache: `python saboteur.py WORKER_FOLDER jobs FILE`, in an engine's own Python.

A job's `sabotage` says what happens after every step: blocks are zeroed or overwritten with their neighbour. Everything else is the
worker as it is. This file stands alone, like the worker.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

MOST_BLOCKS = 2048
"""Blocks beyond these are not in use by a canary."""


def cached_blocks(engine: Any, torch: Any) -> list[Any]:
    """Views of every attention layer's KV cache with the block as first dimension (linear attention has two states, left alone).

    By way of the configuration: the engine freezes its objects after the start (`gc.freeze`), and what is frozen is not found by `gc`.
    """
    config = engine._engine.vllm_config
    blocks, views = config.cache_config.num_gpu_blocks, []
    for layer in config.compilation_config.static_forward_context.values():
        cache = getattr(layer, "kv_cache", None)
        parts = cache if isinstance(cache, (list, tuple)) else [cache]
        if len(parts) == 1 and torch.is_tensor(parts[0]) and blocks in parts[0].shape:
            views.append(parts[0].movedim(list(parts[0].shape).index(blocks), 0))
    return views


def sabotage(how: dict[str, Any], views: list[Any]) -> None:
    """Change the cache as told. Block 0 is no request's."""
    for view in views:
        first, every = (how["only"], MOST_BLOCKS) if "only" in how else (how["every"], how["every"])
        chosen = view[first:MOST_BLOCKS:every]
        if how["kv"] == "zero":
            chosen.zero_()
        else:
            chosen.copy_(view[first - 1 : MOST_BLOCKS - 1 : every][: len(chosen)])


def main() -> int:
    """Run the jobs."""
    folder = Path(sys.argv.pop(1)).resolve()
    sys.path.insert(0, str(folder))
    worker = importlib.import_module("worker")
    engine_module = None
    plans: dict[int, dict[str, Any]] = {}
    run_job, make_engine = worker._run_job, worker.make_engine

    def with_sabotage(engine: Any, job: dict[str, Any], root: Path, tell: Any) -> None:
        plans[id(engine)] = job.get("sabotage") or {}
        run_job(engine, job, root, tell)

    def making(name: str) -> Any:
        nonlocal engine_module
        engine = make_engine(name)
        torch = importlib.import_module("torch")
        step, load = engine.step, engine.load
        views: list[Any] = []

        def loading(model: str, arguments: list[str]) -> None:
            views.clear()
            load(model, arguments)
            if plans[id(engine)]:
                views.extend(cached_blocks(engine, torch))
                if not views:  # a fault that is not injected must not look like one that was not seen
                    raise worker.LoadFailed("the saboteur found no KV cache in this release's engine")

        def stepping() -> Any:
            done = step()
            if plans[id(engine)]:
                sabotage(plans[id(engine)], views)
            return done

        engine.step, engine.load = stepping, loading
        return engine

    worker._run_job, worker.make_engine = with_sabotage, making
    return int(worker.main())


if __name__ == "__main__":
    raise SystemExit(main())
