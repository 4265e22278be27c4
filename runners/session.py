"""One visit of the runner to this node: from what the user asked for to every boot made and stored.

Trap: a typo is found after an hour of measuring, or two runners measure each other. Rule: everything asked for is checked before anything
starts, the node is locked for the visit, and what an earlier visit left behind is cleaned up first.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import platformdirs

from results.records import NodeRecord
from results.store import Store
from results.vocabulary import Outcome, Phase
from runners.engines.base import ServeCommand
from runners.envs.resolve import resolve_version
from runners.errors import UsageError
from runners.fit_check import fit_of
from runners.launchers.docker_cli import Docker
from runners.launchers.endpoint import key_headers
from runners.models import check_available
from runners.node.facts import has_cuda, read_node
from runners.node.lock import LockOwner, node_lock
from runners.pipeline import BootResult, Workshop, run_boot
from runners.plan import Cell, PlannedBoot, plan_boots
from runners.process.interrupt import Interrupts, interruptible
from runners.serve_request import serve_command, serve_request
from runners.spec import EngineSpec
from runners.stale import StaleBoot, end_stale_boots, end_stray_containers
from suites.backends import Expressed, backend_for
from suites.backends import Unsupported as BackendUnsupported
from suites.recipes import Recipe, Source, recipe_for
from suites.suite_files import suite_for
from suites.workloads import Workload

DEFAULT_ENGINE = "vllm"


@dataclass(frozen=True)
class RunRequest:
    """What the user asked for; empty means "as the suite says"."""

    engines: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    suite: str = "smoke"
    repeats: int | None = None
    boots: int | None = None
    keep_server: bool = False
    label: str | None = None
    download: bool = False


@dataclass(frozen=True)
class Plan:
    """Everything that will be done, checked: nothing has been started yet."""

    node: NodeRecord
    boots: tuple[PlannedBoot, ...]


class Watcher(Protocol):
    """Who is told what happens (the command line's progress display)."""

    def waiting(self, owner: LockOwner | None) -> None:
        """Another runner measures on this node."""
        ...

    def stale(self, boots: Sequence[StaleBoot]) -> None:
        """Unfinished boots of earlier runners were cleaned up."""
        ...

    def boot(self, number: int, of: int, planned: PlannedBoot) -> None:
        """A boot begins."""
        ...

    def phase(self, phase: Phase, detail: str) -> None:
        """A phase begins (no detail), or says what it is doing."""
        ...

    def done(self, result: BootResult) -> None:
        """A boot has ended."""
        ...


def make_plan(request: RunRequest, read: Callable[[str | None], NodeRecord] = read_node) -> Plan:
    """Check and order everything. Raises UsageError, SuiteError, Unsupported or InfrastructureError before anything starts."""
    suite = suite_for(request.suite)
    parsed = [EngineSpec.parse(text) for text in request.engines] or [EngineSpec(DEFAULT_ENGINE)]
    for spec in parsed:
        if spec.distribution == "endpoint":
            key_headers(spec.target, os.environ)  # a key that must not travel there is refused now
    node = read(request.label)
    cuda = has_cuda(node)
    recipes = [_recipe(name, parsed) for name in request.models] or [recipe_for(name) for name in suite.recipes]
    names = request.backends or (suite.backends.cuda if cuda else suite.backends.cpu)
    backends = [backend_for(name) for name in names]
    specs = [resolve_version(spec, has_cuda=cuda) for spec in parsed]
    workloads = [dataclasses.replace(w, repeats=request.repeats) if request.repeats else w for w in suite.workloads]
    _check_context(recipes, workloads)
    return Plan(node, tuple(plan_boots(specs, recipes, backends, workloads, request.boots or suite.boots)))


_SERVED = "Give only engines of the form NAME@endpoint:URL with it."


def _recipe(name: str, specs: Sequence[EngineSpec]) -> Recipe:
    """A recipe by name or folder; for an endpoint also the name of whatever model it serves."""
    if name.startswith("served:"):
        if not all(spec.distribution == "endpoint" for spec in specs):
            raise UsageError(f"{name[:80]!r} names a model that an endpoint serves, but an engine asked for is no endpoint.", todo=_SERVED)
        served = name.removeprefix("served:")
        safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in served.lower()).strip("._-")[:64] or "served"
        return Recipe(name=safe, kind="model", source=Source(served=served))
    return recipe_for(name)


def _check_context(recipes: Sequence[Recipe], workloads: Sequence[Workload]) -> None:
    for recipe in recipes:
        for workload in workloads:
            if workload.total_tokens > recipe.max_model_len:
                raise UsageError(
                    f"workload {workload.name} needs {workload.total_tokens:,} tokens of context, {recipe.name} is served with "
                    f"{recipe.max_model_len:,}.",
                    todo="Shorten the workload, or raise max_model_len in the recipe.",
                )


def commands_of(plan: Plan) -> list[tuple[PlannedBoot, ServeCommand | str]]:
    """For `--dry-run`: each boot with the command that would serve it, or why there is none. Paths not made yet are shown as `<...>`."""
    shown: list[tuple[PlannedBoot, ServeCommand | str]] = []
    for planned in plan.boots:
        cell = planned.cell
        if isinstance(cell.expressed, BackendUnsupported):
            shown.append((planned, f"unsupported: {cell.expressed.reason}"))
        elif cell.spec.distribution == "endpoint":
            shown.append((planned, f"attaches to {cell.spec.target}"))
        elif reason := cell.recipe.unsupported(cell.spec.name, cell.spec.version):
            shown.append((planned, f"unsupported: {reason}"))
        else:
            path = cell.recipe.source.path or f"/<{cell.recipe.model}>"
            request = serve_request(cell, model_path=path, served_name=cell.recipe.name, port=0, has_cuda=has_cuda(plan.node))
            shown.append((planned, serve_command(cell, Path(f"<environment of {cell.spec}>/bin/python"), request)))
    return shown


def _check_models(plan: Plan) -> None:
    """Refuse a model that is not here before anything starts. What cannot be served anyway is left to the boot, which says why."""
    cells = (planned.cell for planned in plan.boots)
    for recipe in {cell.recipe.recipe_id: cell.recipe for cell in cells if _can_be_served(cell, plan.node)}.values():
        check_available(recipe)


def _can_be_served(cell: Cell, node: NodeRecord) -> bool:
    if not isinstance(cell.expressed, Expressed) or cell.recipe.unsupported(cell.spec.name, cell.spec.version) is not None:
        return False
    fit = fit_of(cell.recipe, cell.expressed, node, has_cuda=has_cuda(node))
    return fit is None or not fit.refused


def run_session(request: RunRequest, plan: Plan, store: Store, cache_root: Path, watcher: Watcher) -> list[BootResult]:
    """Make every boot of the plan. Stops early when interrupted, or when a teardown could not prove that the node is clean (M22)."""
    if not request.download:
        _check_models(plan)
    results: list[BootResult] = []
    state_dir = platformdirs.user_state_path("sparkproof")
    with interruptible() as interrupts, node_lock(state_dir, sys.argv, on_wait=watcher.waiting):
        stale = end_stale_boots(store)
        if any(planned.cell.spec.distribution == "docker" for planned in plan.boots):
            docker = Docker()
            docker.check()
            stale += end_stray_containers(store, docker)
        if stale:
            watcher.stale(stale)
        store.ingest_pending()
        shop = _workshop(request, plan, store, cache_root, watcher, interrupts)
        for number, planned in enumerate(plan.boots, start=1):
            watcher.boot(number, len(plan.boots), planned)
            result = run_boot(planned, shop)
            results.append(result)
            watcher.done(result)
            if result.run.outcome is Outcome.INTERRUPTED or result.unsafe is not None:
                break
    return results


def _workshop(request: RunRequest, plan: Plan, store: Store, cache_root: Path, watcher: Watcher, interrupts: Interrupts) -> Workshop:
    return Workshop(
        store=store,
        cache_root=cache_root,
        node=plan.node,
        has_cuda=has_cuda(plan.node),
        session_id=uuid.uuid4().hex[:16],
        interrupts=interrupts,
        progress=watcher.phase,
        keep_server=request.keep_server,
        may_download=request.download,
    )
