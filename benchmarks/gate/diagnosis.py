"""Each conclusion of `diagnose` on a real engine's answers: `python -m benchmarks.gate.diagnosis --upstream URL --folder FOLDER`.

One real server with the dense canary runs all the time. What `sparkproof run --controls` starts as "vLLM" is `flagged_proxy.py` in front
of it, whose fault its own flags switch off. On a node without a GPU neither kernels nor graphs can be chosen, so those cases run with the
record of a GB10 in place of this node's: the answers are real, the node is not, and every row says so. Goes on where an earlier stretch
ended.

`weights_or_model` needs no proxy: its row is `sparkproof run --engine vllm==0.32.0 --model FOLDER --backend eager` on the dense canary with
the fault `nan_weight` (`suites.canaries.corrupt.write_corrupted`), given as a folder so that nothing vouches for it.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gate.report import RESULTS, write
from results.store import Store
from results.vocabulary import Purpose
from tests.runners.diagnose.flagged import GB10, NO_GPU, World, plant

RELEASES = ("0.31.0", "0.32.0")
NAME = "diagnosis-vllm-0.32.0"


@dataclass(frozen=True)
class Scenario:
    """A fault, and what must be concluded. `good_before`: the older release passes first."""

    name: str
    what: str
    fault: str
    cause: str
    detail: str | None
    gpu: bool = False
    backend: str = "eager"
    good_before: bool = False


SCENARIOS = (
    Scenario("bos_missing", "the front end drops the BOS token", "no_bos", "template_or_bos", "bos_missing"),
    Scenario("bos_doubled", "the front end adds a second BOS token", "two_bos", "template_or_bos", "bos_doubled"),
    Scenario("chat", "answers of the chat endpoint are changed", "chat", "template_or_bos", "chat_template"),
    Scenario("prefix_cache", "wrong while the prefix cache is on", "prefix_cache", "kv_cache", "prefix_cache"),
    Scenario("kv_fp8", "wrong with an FP8 KV cache", "kv_fp8", "kv_cache", "fp8", gpu=True, backend="kv_fp8"),
    Scenario("attention", "wrong with one attention backend", "attention", "attention", "FLASHINFER", gpu=True),
    Scenario("graphs", "wrong unless eager", "graphs", "execution_path", "cuda_graphs", gpu=True, backend="default"),
    Scenario("compilation", "wrong unless eager, no GPU", "graphs", "execution_path", "compilation", backend="default"),
    Scenario("moe", "wrong with one MoE backend", "moe", "kernel", "moe=flashinfer_cutlass", gpu=True, backend="default"),
    Scenario("batch", "wrong in batches of five and more", "batch", "concurrency", "batch"),
    Scenario("newer", "wrong in the newer release", "newer", "engine_version", "0.32.0, last good 0.31.0", good_before=True),
    Scenario("always", "wrong whatever is changed", "always", "undecided", "every_path_tried"),
)


def run(scenario: Scenario, folder: Path, caches: dict[bool, Path], upstream: str) -> dict[str, Any]:
    """One failed boot with its controls, as a row."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("FLAGGED_UPSTREAM", upstream)
        store = Store(folder / f"{scenario.name}-{time.time_ns()}")
        world = World(store, caches[scenario.gpu], GB10 if scenario.gpu else NO_GPU, patch)
        if scenario.good_before:
            world.run("none", version=RELEASES[0], backend=scenario.backend)
        began = time.monotonic()
        results, controls = world.run(scenario.fault, backend=scenario.backend)
        seconds = time.monotonic() - began
    failed, *_ = results
    diagnosis = controls.diagnoses[0][1] if controls.diagnoses else None
    made = [(r.planned.cell.backend.name, r.run.engine_version, r.run.outcome) for r in results if r.run.purpose is Purpose.CONTROL]
    return {
        **{name: value for name, value in asdict(scenario).items() if name not in ("cause", "detail")},
        "node": "the record of a GB10 in place of this node's" if scenario.gpu else "a node without a GPU",
        "outcome": failed.run.outcome,
        "reason": (failed.run.reason or "")[:400],
        "controls": [{"backend": b, "version": v, "outcome": o} for b, v, o in made],
        "conclusion": diagnosis.conclusion if diagnosis else None,
        "detail": diagnosis.detail if diagnosis else None,
        "sentence": diagnosis.sentence if diagnosis else None,
        "use_instead": list(diagnosis.use_instead) if diagnosis else [],
        "as_expected": diagnosis is not None and (diagnosis.conclusion, diagnosis.detail) == (scenario.cause, scenario.detail),
        "seconds": round(seconds, 1),
    }


def main() -> int:
    """0: every conclusion so far is the expected one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--upstream", required=True, help="a vLLM server with the dense canary, served as canary-dense")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--machine", required=True)
    arguments = parser.parse_args()
    caches = {gpu: arguments.folder / ("cache-gpu" if gpu else "cache-cpu") for gpu in (True, False)}
    for gpu, cache in caches.items():
        for version in RELEASES if not cache.exists() else ():
            plant(cache, version, cuda=gpu, engine=Path(__file__).with_name("flagged_proxy.py"))
    kept = RESULTS / f"{NAME}.json"
    rows = json.loads(kept.read_text())["rows"] if kept.exists() else []
    done = {row["name"] for row in rows}
    for scenario in SCENARIOS:
        if scenario.name not in done:
            rows.append(run(scenario, arguments.folder, caches, arguments.upstream))
            head = {"engine": "vllm==0.32.0", "date": datetime.now(UTC).date().isoformat(), "machine": arguments.machine}
            write(NAME, {**head, "rows": rows})
            print(scenario.name, rows[-1]["conclusion"], rows[-1]["detail"], rows[-1]["seconds"], flush=True)
    return 0 if all(row["as_expected"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
