"""Collect answers of a real engine, case by case, in stretches: what was answered before is not asked again.

Answers lie in a folder of their own (hundreds of MB, not in the repository); `judge` turns them into the tracked results.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gate.cases import Case, distinct_requests, job_of
from runners.envs.environment import ensure
from runners.spec import EngineSpec
from runners.sweep.pool import IN_PROCESS, WORKER

ENVIRONMENT = {
    **IN_PROCESS,
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "NO_COLOR": "1",
}
SABOTEUR = Path(__file__).with_name("saboteur.py")


def answers_file(folder: Path, case: Case) -> Path:
    """Where the events of a case are kept."""
    return folder / "answers" / f"{case.name}.jsonl.gz"


def collect(cases: Sequence[Case], engine: str, folder: Path, seconds: float) -> int:
    """Run cases that have no answers yet until the time is over; how many were finished."""
    waiting = [case for case in cases if not answers_file(folder, case).exists()]
    if not waiting:
        return 0
    for part in ("logs", "answers"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    requests = {canary: distinct_requests(canary) for canary in {case.canary for case in waiting}}
    jobs = [job_of(case, folder, requests[case.canary]) for case in waiting]
    (folder / "asked").mkdir(exist_ok=True)
    for job in jobs:
        (folder / "asked" / f"{job['name']}.json").write_text(json.dumps(job["waves"]))
    path = folder / "jobs.json"
    path.write_text(json.dumps({"format": 1, "engine": "vllm", "environment": {}, "jobs": jobs}))
    python = ensure(EngineSpec.parse(engine), has_cuda=False, progress=print).python
    argv = [str(python), str(SABOTEUR), str(WORKER.parent), "jobs", str(path)]
    with (folder / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **ENVIRONMENT}, text=True, start_new_session=True
        )
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            return _read(process, {case.name: case for case in waiting}, folder)
        finally:
            timer.cancel()
            process.kill()
            process.wait()


def _read(process: subprocess.Popen[str], cases: dict[str, Case], folder: Path) -> int:
    events: list[dict[str, Any]] = []
    hello: dict[str, Any] = {}
    done, began = 0, time.monotonic()
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "hello":
            hello = event
        elif event["event"] == "began":
            events = [hello, event]
        else:
            events.append(event)
        if event["event"] in ("done", "failed"):
            with gzip.open(answers_file(folder, cases[event["job"]]), "wt") as f:
                f.writelines(json.dumps(e) + "\n" for e in events)
            done += 1
            print(f"{time.monotonic() - began:6.1f} s  {event['event']}  {event['job']}", flush=True)
    return done
