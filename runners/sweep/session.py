"""All canaries x weight formats x backends of a release: the plan, and the session that makes its boots.

Trap: a matrix of fifty cells takes an afternoon of server starts, so it is run once and never again. Rule: what an engine process can
serve one after the other shares one (vLLM); what needs a server of its own (SGLang, whose engine is three processes anyway) gets one; what
the node cannot run ends before anything starts; and whatever fails in company is made again alone before it is believed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from results.boot_folder import BootFolder
from results.kept_records import SessionRecord
from results.records import NodeRecord
from results.store import Store
from results.vocabulary import Outcome, Purpose
from runners.boot import Boot
from runners.engines.base import ServeCommand
from runners.envs.resolve import resolve_version
from runners.errors import UsageError
from runners.node.facts import has_cuda, read_node
from runners.pipeline import BootResult
from runners.plan import Cell, PlannedBoot
from runners.recorder import utc_now
from runners.serving import Serving
from runners.session import Plan, RunRequest, Watcher, run_session
from runners.spec import EngineSpec
from runners.sweep.offline import write_jobs
from runners.sweep.pool import WorkerPool
from suites.backends import backend_for, express
from suites.canaries import zoo
from suites.recipes import Recipe, Source, all_recipes

SHARED = frozenset({"vllm"})
"""Engines of which one process can load one checkpoint after the other."""
_BELIEVED = frozenset(
    {Outcome.PASS, Outcome.FALLBACK, Outcome.UNSUPPORTED, Outcome.INSTALL_FAILED, Outcome.INFRASTRUCTURE, Outcome.INTERRUPTED}
)
"""Outcomes that a shared process cannot have caused."""


@dataclass(frozen=True)
class SweepRequest:
    """What was asked for; empty means all there is (backends: `eager` without a GPU, `default` and `eager` with one)."""

    engines: tuple[str, ...]
    canaries: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    label: str | None = None


@dataclass(frozen=True)
class SweepDone:
    """`results` in order, repeats in a process of their own included; `processes` shared engine processes were started."""

    results: tuple[BootResult, ...]
    processes: int


def recipe_of(canary: str, weight_format: str) -> Recipe:
    """The recipe that ships for a canary in a format, else one made from the canary's own."""
    shipped = [r for r in all_recipes().values() if r.source.canary == canary]
    exact = next((r for r in shipped if r.weight_format == weight_format), None)
    if exact is not None:
        return exact
    base = next(iter(shipped), None) or Recipe(name=f"canary-{canary}", kind="canary", source=Source(canary=canary))
    return base.model_copy(update={"name": f"canary-{canary}-{weight_format}", "weight_format": weight_format})


def sweep_plan(request: SweepRequest, read: Callable[[str | None], NodeRecord] = read_node) -> Plan:
    """Every cell in the order that needs the fewest processes. Raises UsageError, SuiteError or Unsupported before anything starts."""
    if not request.engines:
        raise UsageError("no engine is named.", todo="Give --engine NAME==VERSION.")
    node = read(request.label)
    cuda = has_cuda(node)
    specs = [resolve_version(EngineSpec.parse(text), has_cuda=cuda) for text in request.engines]
    for spec in specs:
        if spec.distribution == "endpoint":
            raise UsageError(f"{spec} serves one model and cannot be given another.", todo="Give the engine as @venv or @docker.")
    backends = [backend_for(name) for name in request.backends or (("default", "eager") if cuda else ("eager",))]
    recipes = _recipes(request)
    cells = [
        Cell(spec, recipe, backend, (), express(backend, spec.name, spec.version or ""))
        for spec in specs
        for backend in backends
        for recipe in recipes
    ]
    return Plan(node, tuple(PlannedBoot(cell, 1, 1, Purpose.SWEEP, timed=False) for cell in cells))


def write_jobs_of(request: SweepRequest, folder: Path) -> list[Path]:
    """The same cells as jobs for another machine with a GPU. Its node is not known here, so no format is left out."""
    cells = []
    for spec in (EngineSpec.parse(text) for text in request.engines):
        if spec.name not in SHARED or spec.version is None:
            raise UsageError(
                f"jobs are written for a version of {' or '.join(SHARED)}, not for {spec}.", todo="Give --engine vllm==VERSION."
            )
        backends = [backend_for(name) for name in request.backends or ("default", "eager")]
        cells += [Cell(spec, recipe, b, (), express(b, spec.name, spec.version)) for b in backends for recipe in _recipes(request)]
    if not cells:
        raise UsageError("no engine is named.", todo="Give --engine vllm==VERSION.")
    return write_jobs(cells, folder, has_cuda=True)


def _recipes(request: SweepRequest) -> list[Recipe]:
    for name in request.canaries:
        if name not in zoo.MANIFEST_SHA256:
            raise UsageError(f"there is no canary {name[:60]!r}.", todo=f"Canaries: {', '.join(zoo.MANIFEST_SHA256)}.")
    canaries = request.canaries or tuple(zoo.MANIFEST_SHA256)
    known = {weight_format for canary in canaries for weight_format in zoo.weight_formats(canary)}
    for weight_format in request.formats:
        if weight_format not in known:
            raise UsageError(f"no canary has the weight format {weight_format[:60]!r}.", todo=f"Formats: {', '.join(sorted(known))}.")
    return [recipe_of(c, f) for c in canaries for f in zoo.weight_formats(c) if f in (request.formats or known)]


def run_sweep(plan: Plan, store: Store, cache_root: Path, watcher: Watcher) -> SweepDone:
    """Make every boot of the plan; what fails in a shared process is made again in one of its own."""
    pool = WorkerPool(store.root / "workers")

    def start(boot: Boot, command: ServeCommand) -> Serving | None:
        spec = boot.cell.spec
        return pool.start(boot, command) if spec.name in SHARED and spec.distribution == "venv" else None

    try:
        results = run_session(_request(plan), plan, store, cache_root, watcher, follow_up=made_alone, start=start)
    finally:
        proof = pool.close()
    if proof is not None and not proof.clean and results:
        results[-1].unsafe = proof.reason
    return SweepDone(tuple(_without_company(store, results)), pool.processes)


def _request(plan: Plan) -> RunRequest:
    return RunRequest(session=SessionRecord(uuid.uuid4().hex[:16], plan.node.node_id, "sweep", utc_now()))


def made_alone(made: Sequence[BootResult]) -> Sequence[PlannedBoot]:
    """Boots of a shared process that failed and were not made again yet."""
    again = {result.planned.control_of for result in made}
    return [
        replace(result.planned, control_of=result.run.run_id)
        for result in made
        if result.run.in_process
        and result.run.outcome not in _BELIEVED
        and result.planned.control_of is None
        and result.run.run_id not in again
    ]


def _without_company(store: Store, results: Sequence[BootResult]) -> list[BootResult]:
    """The results; a failure that a process of its own did not have says nothing about the release, and its row says so."""
    alone = {result.planned.control_of: result for result in results if result.planned.control_of is not None}
    for result in results:
        repeat = alone.get(result.run.run_id)
        if repeat is not None and repeat.run.outcome is Outcome.PASS:
            what = f"{result.run.outcome} in a process shared with other checkpoints"
            reason = f"{what}, but alone it passes ({repeat.run.run_id}): {result.run.reason}"
            folder = BootFolder(store.boots, result.run.run_id)
            result.run = replace(result.run, outcome=Outcome.INFRASTRUCTURE, reason=reason[:2000])
            folder.write_summary(replace(folder.summary(), run=result.run))
            store.ingest(folder)
    return list(results)
