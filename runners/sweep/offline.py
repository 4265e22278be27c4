"""A sweep on a machine that Sparkproof is not installed on: a folder of jobs to carry there, and boots made of the answers brought back.

Trap: numbers from another machine are typed into a table, and nobody can tell what ran. Rule: what is carried is the jobs, the checkpoints
and the worker; what comes back is one line per event, with engine version, machine and wheels; the same gate judges it here, and the rows
say that nothing of it was installed or started by us.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.boot_folder import BootSummary, new_run_id
from results.records import PROTOCOL_VERSION, BackendRecord, EngineBuildRecord, NodeRecord, PhaseRecord, RecipeRecord, RunRecord
from results.redact import plain
from results.store import Store
from results.vocabulary import Outcome, Phase, Purpose
from runners.coherence.gate import GateFailure, GateTarget
from runners.coherence.numeric_path import candidate_paths, path_name, references_of
from runners.engines.base import HttpRequest
from runners.engines.registry import adapter_for
from runners.engines.vllm import SMALL_CACHE
from runners.errors import UsageError
from runners.log_diagnosis import diagnose
from runners.model_references import known_good_for
from runners.models import materialise
from runners.plan import Cell, PlannedBoot, backend_id
from runners.recorder import Recorder, utc_now
from runners.serve_request import serve_request
from runners.spec import EngineSpec
from runners.sweep.jobs import Playback, judge_answers, waves_of
from runners.sweep.pool import IN_PROCESS, WORKER, load_arguments
from suites.backends import Expressed, backend_for, express
from suites.canaries import zoo
from suites.recipes import recipe_for

FORMAT = 1
JOBS = "jobs.json"
_MOST_LINE, _MOST_LINES = 64 << 20, 1_000_000


def write_jobs(cells: Sequence[Cell], folder: Path, *, has_cuda: bool) -> list[Path]:
    """Write jobs, checkpoints and worker into `folder`; one jobs file per environment. Raises UsageError for a folder that is not empty."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageError("is not empty.", where=str(folder), todo="Give a new folder.")
    (folder / "logs").mkdir(parents=True)
    shutil.copytree(WORKER.parent, folder / "worker", ignore=shutil.ignore_patterns("__pycache__", "__init__.py"))
    by_environment: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = {}
    for cell in cells:
        if not isinstance(cell.expressed, Expressed) or cell.recipe.source.canary is None:
            continue
        environment = tuple(sorted({**cell.expressed.environment, **IN_PROCESS}.items()))
        by_environment.setdefault(environment, []).append(_job(cell, folder, has_cuda=has_cuda))
    paths = []
    for number, (environment, jobs) in enumerate(by_environment.items()):
        path = folder / (JOBS if number == 0 else f"jobs-{number}.json")
        path.write_text(json.dumps({"format": FORMAT, "engine": "vllm", "environment": dict(environment), "jobs": jobs}))
        paths.append(path)
    return paths


def _job(cell: Cell, folder: Path, *, has_cuda: bool) -> dict[str, Any]:
    model = materialise(cell.recipe, folder, lambda line: None)
    assert model.path is not None and model.canary is not None
    request = serve_request(cell, model_path=str(model.path), served_name=model.name, port=0, has_cuda=has_cuda)
    name = f"{cell.recipe.name}@{cell.backend.name}"
    adapter = adapter_for(cell.spec.name)
    waves = waves_of(GateTarget("job", "", model.name, model.canary, context=cell.recipe.max_model_len), model.canary, adapter)
    return {
        "name": name,
        "recipe": cell.recipe.name,
        "backend": cell.backend.name,
        "model": str(model.path.relative_to(folder)),
        "log": f"logs/{name}.log",
        "arguments": [*load_arguments(request), *(SMALL_CACHE if has_cuda else ())],
        "waves": [[{"path": r.path, "body": r.body} for r in wave.requests] for wave in waves],
    }


@dataclass
class Heard:
    """What the answers say of one job. `error` is why it was not loaded, `crash` what ended the engine while it answered; `done` False: the
    output ends in the middle of the job, which says nothing of the engine."""

    job: dict[str, Any]
    load_s: float | None = None
    gate_s: float | None = None
    max_model_len: int | None = None
    error: str | None = None
    crash: str | None = None
    done: bool = False
    answers: list[tuple[HttpRequest, int, Any]] = field(default_factory=list)


def read_answers(jobs_file: Path, answers_file: Path) -> tuple[dict[str, Any], list[Heard]]:
    """The worker's first line, and every job that it began. Raises UsageError for files that are not ours."""
    try:
        jobs = {job["name"]: job for job in json.loads(jobs_file.read_text(encoding="utf-8"))["jobs"]}
        with answers_file.open(encoding="utf-8") as lines:
            events = [json.loads(line) for line in _bounded(lines, answers_file)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"cannot be read: {error}", where=str(answers_file), todo="Give jobs.json and what the worker wrote.") from error
    if not events or events[0].get("event") != "hello" or events[0].get("format") != FORMAT:
        raise UsageError("does not begin with a worker's hello.", where=str(answers_file), todo="Give what the worker wrote to stdout.")
    heard: dict[str, Heard] = {}
    for event in events[1:]:
        job = jobs.get(event.get("job", ""))
        if job is not None:
            _hear(heard.setdefault(job["name"], Heard(job)), event)
    return events[0], list(heard.values())


def _bounded(lines: Any, path: Path) -> list[str]:
    read: list[str] = []
    while line := lines.readline(_MOST_LINE + 1):
        if len(line) > _MOST_LINE or len(read) >= _MOST_LINES:
            raise UsageError("is longer than any worker's output.", where=str(path))
        if line.endswith("\n"):  # a last line without an end was cut off
            read.append(line)
    return read


def _hear(heard: Heard, event: dict[str, Any]) -> None:
    kind = event.get("event")
    if kind == "loaded":
        heard.load_s, heard.max_model_len = event.get("seconds"), event.get("max_model_len")
    elif kind == "failed":
        heard.error, heard.done = str(event.get("error")), True
    elif kind == "crashed":
        heard.crash, heard.done = str(event.get("error")), True
    elif kind == "done":
        heard.gate_s, heard.done = event.get("seconds"), True
    elif kind == "answer":
        request = heard.job["waves"][event["wave"]][event["request"]]
        heard.answers.append((HttpRequest(request["path"], request["body"]), int(event["status"]), event["answer"]))


def node_of(hello: dict[str, Any], label: str) -> NodeRecord:
    """The machine as the worker saw it, under a pseudonym."""
    seen = json.dumps([hello.get("host"), hello.get("gpu_name")])
    return NodeRecord(
        node_id=hashlib.sha256(seen.encode()).hexdigest()[:16],
        label=label,
        gpu_name=hello.get("gpu_name"),
        compute_capability=hello.get("compute_capability"),
        cuda_version=hello.get("cuda"),
        kernel=hello.get("kernel"),
    )


def judge_jobs(store: Store, folder: Path, hello: dict[str, Any], heard: Sequence[Heard], label: str) -> list[RunRecord]:
    """One boot folder and database row per job, judged by the same gate as any boot."""
    node, session = node_of(hello, label), uuid.uuid4().hex[:16]
    return [_boot(store, folder, hello, node, session, one) for one in heard]


def _boot(store: Store, folder: Path, hello: dict[str, Any], node: NodeRecord, session: str, heard: Heard) -> RunRecord:
    version = str(hello["version"]).partition("+")[0]
    spec = EngineSpec("vllm", version, "endpoint", "")
    recipe, backend = recipe_for(heard.job["recipe"]), backend_for(heard.job["backend"])
    expressed = express(backend, spec.name, version)
    cell = Cell(spec, recipe, backend, (), expressed)
    planned = PlannedBoot(cell, 1, 1, Purpose.SWEEP, timed=False)
    recorder = _recorder(store, planned, node, session, hello, heard)
    recorder.begin()
    log = folder / heard.job["log"]
    if log.is_file():
        recorder.folder.log.write_bytes(log.read_bytes()[: 8 << 20])
    _judge(recorder, cell, folder, hello, heard)
    recorder.finish()
    return recorder.run


def _recorder(store: Store, planned: PlannedBoot, node: NodeRecord, session: str, hello: dict[str, Any], heard: Heard) -> Recorder:
    cell = planned.cell
    recipe, backend, expressed = cell.recipe, cell.backend, cell.expressed
    assert isinstance(expressed, Expressed)
    wheels = tuple(str(w) for w in hello.get("wheels", ()))
    build = EngineBuildRecord(
        hashlib.sha256("\n".join(wheels).encode()).hexdigest()[:16],
        "vllm",
        cell.spec.version or "",
        "endpoint",
        hello.get("python"),
        wheels,
    )
    identity = backend_id("vllm", backend, expressed)
    run = RunRecord(
        run_id=new_run_id(),
        session_id=session,
        cell_id=cell.cell_id(node.node_id, build.build_id),
        series_id=cell.series_id(node.node_id),
        engine="vllm",
        engine_version=cell.spec.version or "",
        distribution="endpoint",
        recipe_name=recipe.name,
        backend_name=backend.name,
        node_id=node.node_id,
        protocol_version=PROTOCOL_VERSION,
        started_at=utc_now(),
        build_id=build.build_id,
        recipe_id=recipe.recipe_id,
        backend_id=identity,
        command=("worker.py", "jobs", JOBS, "--model", heard.job["model"], *heard.job["arguments"]),
        configured=dict(expressed.configured),
        in_process=True,
        purpose=Purpose.SWEEP,
    )
    definition = recipe.model_dump(mode="json")
    recipe_row = RecipeRecord(recipe.recipe_id, recipe.name, recipe.model, recipe.revision, recipe.quantization, recipe.kind, definition)
    backend_row = BackendRecord(identity, "vllm", backend.name, expressed.arguments, dict(expressed.environment))
    return Recorder(store, BootSummary(run, node, build, recipe_row, backend_row))


def _judge(recorder: Recorder, cell: Cell, folder: Path, hello: dict[str, Any], heard: Heard) -> None:
    adapter, recipe, version = adapter_for("vllm"), cell.recipe, cell.spec.version or ""
    log = recorder.folder.log
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    identity = adapter.identify(version, {"/version": {"version": hello["version"]}}, text)
    recorder.update(
        server_version=str(hello["version"]),
        max_model_len=heard.max_model_len,
        kv_cache_tokens=identity.kv_cache_tokens,
        model_memory_bytes=identity.model_memory_bytes,
        actual=dict(identity.kernels),
    )
    if heard.error is not None:
        found = diagnose("vllm", version, log, Outcome.CRASH, f"the checkpoint could not be loaded: {plain(heard.error, 600)}")
        recorder.update(phase=Phase.READY)
        recorder.conclude(found.outcome, found.reason, signature=found.signature, excerpt=found.excerpt)
        return
    recorder.append(_phases(recorder.run.run_id, heard))
    recorder.update(phase=Phase.COHERENCE if heard.load_s is not None else Phase.READY)
    assert recipe.source.canary is not None
    paths = candidate_paths(recipe.weight_format, recorder.run.actual)
    target = GateTarget(
        run_id=recorder.run.run_id,
        base_url="",
        model=recipe.name,
        canary=zoo.load(recipe.source.canary),
        paths=references_of(recipe.source.canary, paths),
        path=path_name(paths[0]) if len(paths) == 1 else None,
        known_good=known_good_for(recipe, materialise(recipe, folder, lambda line: None), recorder.store_root),
        context=recipe.max_model_len,
    )
    result = judge_answers(target, adapter, Playback(heard.answers, why_it_ends="the worker's output ends here"))
    recorder.append((*result.records, *result.scores))
    if isinstance(result, GateFailure):
        found = diagnose("vllm", version, log, *_why_unanswered(heard, result))
        recorder.conclude(found.outcome, found.reason, signature=found.signature, excerpt=found.excerpt)
    else:
        recorder.conclude(result.outcome or Outcome.PASS, result.reason if result.outcome else None)


def _why_unanswered(heard: Heard, failure: GateFailure) -> tuple[Outcome, str]:
    """A gate without all its answers: the engine's fault only if the worker lived to say so."""
    if heard.crash is not None:
        return Outcome.CRASH, f"the engine crashed while it answered: {plain(heard.crash, 600)}"
    if not heard.done:
        total = sum(len(wave) for wave in heard.job["waves"])
        return Outcome.INTERRUPTED, f"the worker's output ends in the middle of this job, after {len(heard.answers)} of {total} answers"
    return Outcome.CRASH, failure.reason


def _phases(run_id: str, heard: Heard) -> list[PhaseRecord]:
    """Load and gate, as long as the worker took for them; when that was it did not say."""
    now = utc_now()
    timed = ((Phase.READY, heard.load_s), (Phase.COHERENCE, heard.gate_s))
    return [PhaseRecord(run_id, phase, now, float(seconds), True) for phase, seconds in timed if seconds is not None]
