"""Serve the dense canary with a real engine and time short batches in turns: alone, and beside an install at the lowest priority.

The install is the real one: uv makes a full engine environment from its own cache into a scratch folder, again and again while the turn
lasts, with niceness 19 and the idle I/O class, as `sparkproof nightly --install-beside` would.

    python -m benchmarks.install_beside --engine vllm==0.32.0 --install vllm==0.31.0 --turns 4
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from results.boot_folder import new_run_id
from results.records import ResourceRecord
from results.vocabulary import Phase
from runners.engines.answers import without_logprobs
from runners.engines.registry import adapter_for
from runners.envs.environment import cache_folder, ensure
from runners.models import LocalModel, materialise
from runners.nightly.install_ahead import command_for
from runners.plan import plan_boots
from runners.process.interrupt import interruptible
from runners.process.ports import free_port
from runners.process.ready import NotReady, Probes
from runners.process.server import launch
from runners.prompts import Vocabulary
from runners.request_fields import TIMED_FIELDS
from runners.serve_request import serve_command, serve_request
from runners.server_client import ServerClient
from runners.serving import OwnServer
from runners.spec import EngineSpec
from runners.stream import Target
from runners.throughput import ThroughputPlan, measure
from suites.backends import backend_for
from suites.recipes import recipe_for
from suites.workloads import Workload

TURN = Workload("turn", prompt_tokens=64, completion_tokens=128, concurrency=1, repeats=3)
_AGAIN = """
import shutil, subprocess, sys
command, folder = sys.argv[2:], sys.argv[1]
while subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
    shutil.rmtree(folder, ignore_errors=True)
"""


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="vllm==0.32.0")
    parser.add_argument("--install", default="vllm==0.31.0")
    parser.add_argument("--turns", type=int, default=4)
    options = parser.parse_args()
    with interruptible(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        print(json.dumps(measure_effect(Path(scratch), options.engine, options.install, options.turns), indent=1))


def measure_effect(scratch: Path, engine: str, install: str, turns: int) -> dict[str, object]:
    """Decode rates of both kinds of turn, in the order they were made."""
    spec, recipe = EngineSpec.parse(engine), recipe_for("canary-dense")
    environment = ensure(spec, has_cuda=False, progress=lambda line: None)
    model = materialise(recipe, cache_folder(), lambda line: None)
    cell = plan_boots([spec], [recipe], [backend_for("eager")], [TURN], 1)[0].cell
    port, run_id = free_port(), new_run_id()
    request = serve_request(cell, model_path=str(model.path), served_name=model.name, port=port, has_cuda=False)
    folder = scratch / run_id
    folder.mkdir()
    server = OwnServer(launch(serve_command(cell, environment.python, request), folder, run_id, port), _drop, _phase, lambda: False)
    try:
        _wait(server, model, spec)
        timed(server, model, run_id, "warm", spec)
        alone: list[float] = []
        beside: list[float] = []
        for turn in range(turns):
            alone.append(timed(server, model, run_id, f"alone{turn}", spec))
            with installing(EngineSpec.parse(install), scratch / f"cache{turn}"):
                beside.append(timed(server, model, run_id, f"beside{turn}", spec))
            print(f"turn {turn}: {alone[-1]:.1f} alone, {beside[-1]:.1f} tok/s beside an install", file=sys.stderr, flush=True)
    finally:
        server.stop()
    return {
        "engine": engine,
        "installing": install,
        "decode_tok_s_alone": [round(rate, 1) for rate in alone],
        "decode_tok_s_beside": [round(rate, 1) for rate in beside],
        "median_ratio": round(statistics.median(beside) / statistics.median(alone), 3),
        "ratios_of_turns": [round(b / a, 3) for a, b in zip(alone, beside, strict=True)],
        "cpu_count": os.cpu_count(),
        "machine": platform.machine(),
    }


def timed(server: OwnServer, model: LocalModel, run_id: str, name: str, spec: EngineSpec) -> float:
    """Median decode rate of one turn."""
    plan = ThroughputPlan(
        run_id=run_id,
        workloads=(replace(TURN, name=name),),
        vocabulary=Vocabulary(model.vocab_size or 300, model.bos_id, model.special_ids),
        accepted=frozenset(TIMED_FIELDS),
        launch_bound=True,
        max_warmups=2,
    )
    result = measure(Target(server.base_url, model.name), plan, adapter_for(spec.name).generated_tokens)
    return statistics.median(s.decode_tok_s for s in result.samples if s.decode_tok_s is not None and not s.cold)


@contextmanager
def installing(spec: EngineSpec, cache: Path) -> Iterator[None]:
    """Install `spec` into `cache`, again and again, until the block ends."""
    command = command_for(spec, cache, has_cuda=False)
    argv = [sys.executable, "-c", _AGAIN, str(cache), *command]
    process = subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL)
    time.sleep(8.0)  # pip's settings and the interpreters are read first; then uv is at work
    try:
        if process.poll() is not None:
            raise RuntimeError("the install ended at once; run it by hand: " + " ".join(command))
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group: the leader goes first, and what it started would write on into a folder that is about to go."""
    deadline = time.monotonic() + 60
    sent = signal.SIGTERM
    while True:
        try:
            os.killpg(process.pid, sent)
        except ProcessLookupError:
            break
        process.poll()
        time.sleep(0.2)
        if time.monotonic() > deadline:
            sent = signal.SIGKILL
    process.wait()


def _wait(server: OwnServer, model: LocalModel, spec: EngineSpec) -> None:
    client, adapter = ServerClient(server.base_url), adapter_for(spec.name)
    prompt = model.canary.prompts[0].prompt_ids if model.canary is not None else (1, 2, 3)
    one = without_logprobs(adapter.greedy_request(model.name, prompt, 1))
    result = server.wait_ready(model.name, Probes(health=client.health, models=client.models, one_token=lambda: client.one_token(one)))
    client.close()
    if isinstance(result, NotReady):
        raise RuntimeError(result.reason)


def _drop(record: ResourceRecord) -> None:
    """Telemetry of this benchmark is not kept."""


def _phase() -> Phase:
    return Phase.THROUGHPUT


if __name__ == "__main__":
    main()
