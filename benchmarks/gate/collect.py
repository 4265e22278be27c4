"""Collect answers of a real engine, case by case: `python -m benchmarks.gate.collect --python ENGINE_PYTHON --folder FOLDER`.

In stretches: what was answered before is not asked again. Answers lie in a folder of their own (tens of MB, not in the repository), and
`python -m benchmarks.gate judge` turns them into the tracked results. This module needs no more of Sparkproof than its gate, so that it
runs beside an engine on a machine where nothing else of it is installed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gate.cases import Case, clean_cases, distinct_requests, fault_cases, job_of
from suites.canaries import zoo
from suites.canaries.corrupt import CorruptionError

WORKER = Path(__file__).parents[2] / "runners" / "sweep" / "worker"
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "NO_COLOR": "1",
}
SABOTEUR = Path(__file__).with_name("saboteur.py")


def answers_file(folder: Path, case: Case) -> Path:
    """Where the events of a case are kept."""
    return folder / "answers" / f"{case.name}.jsonl.gz"


def collect(cases: Sequence[Case], python: str, folder: Path, seconds: float, more: Sequence[str] = ()) -> int:
    """Run cases that have no answers yet until the time is over; how many were finished. `more` are serve arguments for all of them."""
    waiting = [case for case in cases if not answers_file(folder, case).exists()]
    if not waiting:
        return 0
    for part in ("logs", "answers"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    requests = {canary: distinct_requests(canary) for canary in {case.canary for case in waiting}}
    jobs = []
    for case in waiting:
        try:
            job = job_of(case, folder, requests[case.canary])
            jobs.append({**job, "arguments": [*job["arguments"], *more]})
        except CorruptionError as error:
            print(f"         not possible  {case.name}: {error}", flush=True)
    (folder / "asked").mkdir(exist_ok=True)
    for job in jobs:
        (folder / "asked" / f"{job['name']}.json").write_text(json.dumps(job["waves"]))
    path = folder / "jobs.json"
    path.write_text(json.dumps({"format": 1, "engine": "vllm", "environment": {}, "jobs": jobs}))
    argv = [python, str(SABOTEUR), str(WORKER), "jobs", str(path)]
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
            _keep(folder, cases[event["job"]], events)
            done += 1
            print(f"{time.monotonic() - began:6.1f} s  {event['event']}  {event['job']}", flush=True)
            events = []
    if len(events) > 1 and (whole := _whole_passes(events, folder)):
        _keep(folder, cases[events[1]["job"]], whole)
        print(f"{time.monotonic() - began:6.1f} s  cut off after whole passes  {events[1]['job']}", flush=True)
    return done


def _keep(folder: Path, case: Case, events: Sequence[dict[str, Any]]) -> None:
    with gzip.open(answers_file(folder, case), "wt") as f:
        f.writelines(json.dumps(e) + "\n" for e in events)


def _whole_passes(events: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The events of a job that was cut off, up to its last whole pass; empty without one."""
    job = events[1]["job"]
    waves = json.loads((folder / "asked" / f"{job}.json").read_text())
    answered = Counter(e["wave"] for e in events if e["event"] == "answer")
    whole = {number for number, count in answered.items() if count == len(waves[number])}
    return [e for e in events if e["event"] != "answer" or e["wave"] in whole] if whole else []


def cases_of(canaries: Sequence[str], formats: Sequence[str], passes: int) -> list[Case]:
    """Fault cases (`passes` 0), or clean runs with so many passes in each setting."""
    cases: list[Case] = []
    for canary in canaries or tuple(zoo.MANIFEST_SHA256):
        for weight_format in (f for f in zoo.weight_formats(canary) if f in formats):
            cases += fault_cases(canary, weight_format) if passes == 0 else clean_cases(canary, weight_format, passes)
    return cases


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to collect, where to and for how long."""
    parser.add_argument("--folder", type=Path, required=True, help="answers are kept here")
    parser.add_argument("--canary", action="append", default=[])
    parser.add_argument("--format", action="append", default=[])
    parser.add_argument("--passes", type=int, default=0, help="0: fault cases; else clean runs with so many passes in each setting")
    parser.add_argument("--seconds", type=float, default=270)
    parser.add_argument("--cuda", action="store_true", help="keep the KV cache small on a GPU")


def collect_as_asked(arguments: argparse.Namespace, python: str) -> None:
    """Collect, and say how much."""
    more = ("--gpu-memory-utilization", "0.1", "--kv-cache-memory-bytes", "1000000000") if arguments.cuda else ()
    cases = cases_of(arguments.canary, arguments.format or ("bf16", "int4"), arguments.passes)
    print(f"{collect(cases, python, arguments.folder, arguments.seconds, more)} cases answered")


def main() -> int:
    """Collect for a while."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate.collect")
    parser.add_argument("--python", required=True, help="the Python of an environment with vLLM")
    add_options(parser)
    arguments = parser.parse_args()
    collect_as_asked(arguments, arguments.python)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
