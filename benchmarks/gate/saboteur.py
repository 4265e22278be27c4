"""The sweep's worker with hands in its KV cache: `python saboteur.py WORKER_FOLDER jobs FILE`, in an engine's own Python.

A job's `sabotage` says what happens after every step: blocks are zeroed, overwritten with their neighbour, or rounded to FP8. Everything
else is the worker as it is. This file stands alone, like the worker.
"""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from typing import Any


def cached_blocks() -> list[Any]:
    """Views of every layer's KV cache with the block as first dimension."""
    runners = [o for o in gc.get_objects() if type(o).__name__.endswith("ModelRunner") and getattr(o, "kv_caches", None)]
    views = []
    for runner in runners[-1:]:
        blocks = runner.kv_cache_config.num_blocks
        for cache in runner.kv_caches:
            dimension = list(cache.shape).index(blocks)
            views.append(cache.movedim(dimension, 0))
    return views


def sabotage(how: dict[str, Any], views: list[Any], torch: Any) -> None:
    """Change the KV cache as told. Blocks beyond the first few hundred are not in use by a canary."""
    for view in views:
        used = view[1 : min(len(view), 512)]
        if how["kv"] == "fp8":
            used.copy_(used.float().clamp(-448, 448).to(torch.float8_e4m3fn).to(used.dtype))
            continue
        numbers = [how["only"]] if "only" in how else list(range(how["every"], len(used), how["every"]))
        for number in numbers:
            if how["kv"] == "zero":
                view[number].zero_()
            else:
                view[number].copy_(view[number - 1])


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
                views.extend(cached_blocks())
                if not views:  # a fault that is not injected must not look like one that was not seen
                    raise worker.LoadFailed("the saboteur found no KV cache in this release's engine")

        def stepping() -> Any:
            done = step()
            if plans[id(engine)]:
                sabotage(plans[id(engine)], views, torch)
            return done

        engine.step, engine.load = stepping, loading
        return engine

    worker._run_job, worker.make_engine = with_sabotage, making
    return int(worker.main())


if __name__ == "__main__":
    raise SystemExit(main())
