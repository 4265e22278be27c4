"""`python -m benchmarks.scale [--boots N --samples N] [--store DIR] [--contend MINUTES] [--json]`: make a large history, then measure it.

The goal's size is `--boots 1000000 --samples 20000000`. Progress goes to stderr. Exit code 1 if a limit does not hold.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.scale.contention import contend
from benchmarks.scale.fill import fill
from benchmarks.scale.measure import Timing, time_compare, time_ingest, time_questions
from benchmarks.scale.plan import world_for
from results.store import Store

INGEST_LIMIT = 20_000
_SPEEDS = {
    "rebuild_63": "a rebuild, boots of 63 samples",
    "rebuild_20": "a rebuild, boots of 20 samples",
    "night_63": "a night, boots of 63 samples",
    "night_20": "a night, boots of 20 samples",
}

app = typer.Typer(add_completion=False)


@app.command()
def main(
    boots: Annotated[int, typer.Option(min=500, help="Boots of the made-up history.")] = 20_000,
    samples: Annotated[int, typer.Option(min=1_000, help="Samples of the made-up history.")] = 400_000,
    seed: Annotated[int, typer.Option(help="The same seed, the same history.")] = 1,
    store: Annotated[Path | None, typer.Option(help="Keep the store here; one that is here already is measured as it is.")] = None,
    ingest_boots: Annotated[int, typer.Option(min=50, help="New boots to store for the speed of storing.")] = 400,
    ingest: Annotated[bool, typer.Option(help="Measure storing, which adds boots to the store.")] = True,
    contend_minutes: Annotated[
        float, typer.Option("--contend", min=0.0, help="Readers and writers at once for so long, on a store of their own.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Measure the store at a size: every question of the pages, compare, storing, file size."""
    started = time.perf_counter()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.perf_counter() - started:8.1f} s  {text}\n")

    with ExitStack() as stack:
        root = store or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkproof-scale-")))
        found: dict[str, Any] = _measure(Store(root), boots, samples, seed, ingest_boots if ingest else 0, say)
        if contend_minutes:
            say(f"readers and writers for {contend_minutes:g} minutes")
            other = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkproof-contend-")))
            found["contention"] = asdict(contend(other, contend_minutes * 60))
    print(json.dumps(found, indent=1)) if as_json else _print(found)
    raise SystemExit(0 if found["holds"] else 1)


def _measure(store: Store, boots: int, samples: int, seed: int, ingest_boots: int, say: Any) -> dict[str, Any]:
    seconds = None
    if not store.database.exists():
        started = time.perf_counter()
        fill(store, world_for(boots, samples, seed), say)
        seconds = time.perf_counter() - started
    (sizes,) = store.query(
        "SELECT (SELECT count(*) FROM runs) AS boots, (SELECT count(*) FROM samples) AS samples, (SELECT count(*) FROM histories) AS cells,"
        " (SELECT count(*) FROM number_verdicts) AS number_verdicts, (SELECT count(*) FROM findings) AS findings"
    )
    found: dict[str, Any] = {**sizes, "file_bytes": store.database.stat().st_size, "fill_s": seconds}
    timings = [*time_questions(store, say), *time_compare(store, say)]
    found["timings"] = [{**asdict(timing), "holds": timing.holds} for timing in timings]
    holds = all(timing.holds for timing in timings)
    if ingest_boots:
        result = time_ingest(store, ingest_boots)
        found["ingest"] = {
            name: {**asdict(speed), "samples_per_s": speed.samples_per_s, "samples_per_cpu_s": speed.samples / speed.cpu_s}
            for name in _SPEEDS
            for speed in [getattr(result, name)]
        } | {"commit_s": result.commit_s}
        holds = holds and result.rebuild_63.samples_per_s >= INGEST_LIMIT
    found["holds"] = holds
    return found


def _print(found: dict[str, Any]) -> None:
    print(f"{found['boots']:,} boots, {found['samples']:,} samples, {found['cells']:,} cells, {found['file_bytes'] / 1e6:,.0f} MB")
    for row in found["timings"]:
        timing = Timing(row["name"], row["seconds"], row["cpu_s"], row["rows"], row["limit_s"])
        mark = "" if timing.holds else f"   MISSES {timing.limit_s * 1000:.0f} ms"
        wall, cpu = timing.seconds * 1000, timing.cpu_s * 1000
        print(f"{timing.name:<48} {wall:8.0f} ms ({cpu:6.0f} ms of processor time) {timing.rows:>8,} rows{mark}")
    if "ingest" in found:
        for name, words in _SPEEDS.items():
            speed = found["ingest"][name]
            rate, per_cpu = speed["samples_per_s"], speed["samples_per_cpu_s"]
            print(f"{words}: {rate:,.0f} samples/s with verdicts, {per_cpu:,.0f} per second of processor time")
        print(f"commit of one boot: {found['ingest']['commit_s'] * 1000:.0f} ms")
    if "contention" in found:
        print(json.dumps(found["contention"], indent=1))


if __name__ == "__main__":
    app()
