"""Our numbers against the engine's own: `python -m benchmarks.truth.engines --engine vllm==0.32.0 --home FOLDER`, or of boots that were
made: `--boot FOLDER/boots/RUN`.

Trap: a truth server is no engine. Rule: one whole boot of a real release by the product, then per workload what our samples say beside
what the engine counted on its own metrics page over the same timed repeats (`engine_counters`). The engine looks from inside: its TTFT
starts when the request was parsed and ends before the text is sent, so ours is longer by HTTP both ways.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.truth import report
from benchmarks.truth.__main__ import machine
from results.boot_folder import BootFolder
from results.errors import FolderError
from results.records import EngineCounterRecord, SampleRecord
from results.store import Store

_RUN = Path(__file__).resolve().parents[2] / "runners" / "run.py"


@dataclass(frozen=True)
class Compared:
    """One workload: ours and the engine's means over the same requests. None: not said."""

    engine: str
    workload: str
    concurrency: int
    requests: int
    tokens: int
    engine_tokens: float | None
    ttft_mean_s: float | None
    engine_ttft_mean_s: float | None
    itl_mean_s: float | None
    engine_itl_mean_s: float | None


def compared(engine: str, samples: Iterable[Mapping[str, Any]], counters: Iterable[Mapping[str, Any]]) -> list[Compared]:
    """Pure: rows of the tables `samples` (timed ones) and `engine_counters` of one boot. Every sample of a workload has the same tokens, so
    the mean of 1 / decode rate over the streams is the mean time between tokens.
    """
    counted = {(c["workload"], c["metric"]): c["value"] for c in counters}
    by_workload: dict[str, list[Mapping[str, Any]]] = {}
    for sample in samples:
        by_workload.setdefault(sample["workload"], []).append(sample)
    return [
        Compared(
            engine=engine,
            workload=workload,
            concurrency=rows[0]["concurrency"],
            requests=len(rows),
            tokens=sum(r["completion_tokens"] or 0 for r in rows),
            engine_tokens=counted.get((workload, "generation_tokens")),
            ttft_mean_s=_mean([r["ttft_s"] for r in rows]),
            engine_ttft_mean_s=counted.get((workload, "ttft_mean_s")),
            itl_mean_s=_mean([1 / r["decode_tok_s"] if r["decode_tok_s"] else None for r in rows]),
            engine_itl_mean_s=counted.get((workload, "itl_mean_s")),
        )
        for workload, rows in by_workload.items()
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    """None if one value is missing: the engine's mean has it."""
    known = [v for v in values if v is not None]
    return fmean(known) if known and len(known) == len(values) else None


def boot(engine: str, home: Path, repeats: int) -> list[Compared]:
    """Run the product on the dense canary, then read its own store. Raises RuntimeError if the boot gave no samples."""
    done = subprocess.run(
        [sys.executable, str(_RUN), "--engine", engine, "--model", "canary-dense", "--repeats", str(repeats), "--json"],
        env={**os.environ, "SPARKPROOF_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    cells = json.loads(done.stdout or "{}").get("cells") or []
    if not cells or not cells[0]["run_ids"]:
        raise RuntimeError(f"{engine}: exit code {done.returncode} and no boot")
    store, run_id = Store(home), cells[0]["run_ids"][-1]
    samples = store.query("SELECT * FROM samples WHERE run_id = ? AND NOT cold ORDER BY workload, repeat, stream", [run_id])
    if not samples:
        raise RuntimeError(f"{engine}: {cells[0]['outcome']}: {cells[0]['reason']}")
    return compared(engine, samples, store.query("SELECT * FROM engine_counters WHERE run_id = ?", [run_id]))


def kept(folder: Path) -> list[Compared]:
    """The same of a boot that was made before. Raises FolderError for a folder that is none, ValueError for a boot without samples."""
    content = BootFolder(folder.parent, folder.name).read()
    run = content.summary.run
    samples = [asdict(sample) for sample in content.of(SampleRecord) if not sample.cold]
    if not samples:
        raise ValueError(f"{run.run_id}: no timed samples")
    return compared(f"{run.engine}=={run.engine_version}", samples, map(asdict, content.of(EngineCounterRecord)))


def main() -> int:
    """Boot each engine in turn, or look at boots that were made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.engines", description=__doc__)
    parser.add_argument("--engine", action="append", help="a release; vllm==0.32.0 and sglang==0.5.14 if none is given")
    parser.add_argument("--home", type=Path, help="a store of its own, to boot")
    parser.add_argument("--boot", type=Path, action="append", default=[], metavar="FOLDER", help="a boot's folder; nothing is started")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", metavar="NAME", help="write results/NAME.json beside this module")
    arguments = parser.parse_args()
    if not arguments.boot and arguments.home is None:
        parser.error("give --home to boot engines, or --boot")
    load, rows, failed = os.getloadavg()[0], list[Compared](), list[str]()
    result: dict[str, Any] = {}
    asked: Sequence[Path | str] = arguments.boot or arguments.engine or ("vllm==0.32.0", "sglang==0.5.14")
    for what in asked:
        try:
            rows += kept(what) if isinstance(what, Path) else boot(what, arguments.home, arguments.repeats)
        except (RuntimeError, ValueError, FolderError) as error:
            failed.append(str(error))
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        about = {"date": date, "machine": machine(), "load": [] if arguments.boot else [load, os.getloadavg()[0]], "failed": failed}
        result = {**about, "engines": [asdict(row) for row in rows]}
        if arguments.keep:
            print(report.write(result, arguments.keep), file=sys.stderr)
    print(json.dumps(result, indent=1) if arguments.json else report.engine_table(result["engines"]))
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
