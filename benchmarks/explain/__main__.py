"""`python -m benchmarks.explain [--json] [--megabytes N]`: how fast a log is explained, and in how much memory.

Trap: a benchmark on one repeated line measures a cache. Rule: three kinds of log are made and timed apart: the few lines a running server
repeats with other numbers, lines that are all different, and a start of 10,000 lines that ends in a crash.
"""

from __future__ import annotations

import json
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from runners.engines.explain import Explanation, explain_log

CRASH_LINES = 10_000
_START = (
    "(APIServer pid=1) INFO 11-30 12:00:00 [api_utils.py:273] non-default args: {'model_tag': 'm', 'moe_backend': 'marlin'}",
    "(EngineCore pid=2) INFO 11-30 12:00:01 [core.py:116] Initializing a V1 LLM engine (v0.26.0) with config: kv_cache_dtype=auto, x",
    "(EngineCore pid=2) INFO 11-30 12:00:02 [nvfp4.py:285] Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].",
)
_READY = "(APIServer pid=1) INFO:     Application startup complete."
_CRASH = (
    "(EngineCore pid=2) ERROR 11-30 12:09:00 [core.py:1330] EngineCore encountered a fatal error.",
    "(EngineCore pid=2) ERROR 11-30 12:09:00 [core.py:1330] Traceback (most recent call last):",
    '(EngineCore pid=2) ERROR 11-30 12:09:00 [core.py:1330]   File "/x/vllm/v1/engine/core.py", line 9, in run_busy_loop',
    "(EngineCore pid=2) ERROR 11-30 12:09:00 [core.py:1330] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
)

app = typer.Typer(add_completion=False)


@app.command()
def main(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    megabytes: Annotated[int, typer.Option(min=1, max=2_000, help="Size of each of the two large logs.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the made lines.")] = 1,
) -> None:
    """Time the explanation of three made logs; peak memory is that of this process after the large ones."""
    with tempfile.TemporaryDirectory(prefix="sparkproof-explain-") as folder:
        result = measure(Path(folder), megabytes, seed)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    for name, row in result["logs"].items():
        typer.echo(f"{name:20} {row['bytes'] / 1e6:8.1f} MB {row['lines']:>9,} lines {row['wall_s']:8.2f} s {row['mb_per_s']:8.1f} MB/s")
    typer.echo(f"peak memory {result['peak_rss_bytes'] / (1 << 20):.0f} MiB")


def measure(folder: Path, megabytes: int, seed: int) -> dict[str, Any]:
    """Write each log into `folder`, explain it once, and check that its crash was found."""
    rng = random.Random(seed)
    size = megabytes * 1_000_000
    kinds: dict[str, Callable[[], Iterator[str]]] = {
        "running_server": lambda: _until(_server_lines(rng), size),
        "all_lines_differ": lambda: _until(_different_lines(rng), size),
        "crash_at_start": lambda: (line for _, line in zip(range(CRASH_LINES - len(_CRASH)), _different_lines(rng), strict=False)),
    }
    logs = {}
    for name, lines in kinds.items():
        path = folder / f"{name}.log"
        _write(path, lines(), ready=name != "crash_at_start")
        logs[name] = _timed(path)
        path.unlink()
    return {"benchmark": "explain", "seed": seed, "logs": logs, "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def _timed(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    begin = time.perf_counter()
    found: Explanation = explain_log(path)
    wall_s = time.perf_counter() - begin
    if found.failure is None or found.failure.signature != "MEM06" or found.kernels["moe"] != "MARLIN":
        raise RuntimeError(f"{path.name}: the made crash or kernel was not found, so its time says nothing")
    return {"bytes": size, "lines": found.lines_read, "wall_s": wall_s, "mb_per_s": size / 1e6 / wall_s}


def _write(path: Path, lines: Iterator[str], *, ready: bool) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in (*_START, *([_READY] if ready else [])))
        stream.writelines(f"{line}\n" for line in lines)
        stream.writelines(f"{line}\n" for line in _CRASH)


def _until(lines: Iterator[str], size: int) -> Iterator[str]:
    written = 0
    for line in lines:
        written += len(line) + 1
        yield line
        if written >= size:
            return


def _server_lines(rng: random.Random) -> Iterator[str]:
    while True:
        clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
        yield (
            f"(APIServer pid=1) INFO 11-30 {clock} [loggers.py:310] Engine 000: Avg prompt throughput: {rng.random() * 500:.1f} tokens/s, "
            f"Avg generation throughput: {rng.random() * 100:.1f} tokens/s, Running: {rng.randrange(9)} reqs, Waiting: 0 reqs"
        )
        yield f'(APIServer pid=1) INFO:     127.0.0.1:{rng.randrange(1024, 65536)} - "POST /v1/chat/completions HTTP/1.1" 200 OK'


def _different_lines(rng: random.Random) -> Iterator[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    while True:
        words = " ".join("".join(rng.choices(letters, k=rng.randrange(3, 9))) for _ in range(12))
        yield f"(EngineCore pid=2) INFO 11-30 12:00:0{rng.randrange(10)} [a.py:{rng.randrange(999)}] {words}"


if __name__ == "__main__":
    app()
