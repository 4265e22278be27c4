"""One visit of the runner to this node: from what the user asked for to every boot made and stored.

Trap: a typo is found after an hour of measuring, or two runners measure each other. Rule: everything asked for is checked before anything
starts, the node is locked for the visit, and what an earlier visit left behind is cleaned up first.
"""

from __future__ import annotations

import dataclasses
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
from runners.engines.base import ServeCommand, ServeRequest
from runners.engines.registry import adapter_for
from runners.envs.resolve import resolve_version
from runners.errors import UsageError
from runners.node.facts import has_cuda, read_node
from runners.node.lock import LockOwner, node_lock
from runners.pipeline import BootResult, Workshop, run_boot
from runners.plan import PlannedBoot, plan_boots
from runners.process.interrupt import Interrupts, interruptible
from runners.spec import EngineSpec
from runners.stale import StaleBoot, end_stale_boots
from suites.backends import Unsupported as BackendUnsupported
from suites.backends import backend_for
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
    node = read(request.label)
    cuda = has_cuda(node)
    recipes = [_recipe(name, parsed) for name in request.models] or [recipe_for(name) for name in suite.recipes]
    names = request.backends or (suite.backends.cuda if cuda else suite.backends.cpu)
    backends = [backend_for(name) for name in names]
    specs = [resolve_version(spec, has_cuda=cuda) for spec in parsed]
    workloads = [dataclasses.replace(w, repeats=request.repeats) if request.repeats else w for w in suite.workloads]
    _check_context(recipes, workloads)
    return Plan(node, tuple(plan_boots(specs, recipes, backends, workloads, request.boots or suite.boots)))


def _recipe(name: str, specs: Sequence[EngineSpec]) -> Recipe:
    """A recipe by name or folder; for an endpoint also the name of whatever model it serves."""
    if any(spec.distribution == "endpoint" for spec in specs) and name.startswith("served:"):
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
        elif cell.spec.distribution != "venv":
            shown.append((planned, f"attaches to {cell.spec.target}"))
        else:
            request = ServeRequest(
                model_path=cell.recipe.source.path or f"<{cell.recipe.model}>",
                served_name=cell.recipe.name,
                host="127.0.0.1",
                port=0,
                has_cuda=has_cuda(plan.node),
                max_model_len=cell.recipe.max_model_len,
                arguments=(*cell.recipe.arguments.get(cell.spec.name, ()), *cell.expressed.arguments),
                environment=cell.expressed.environment,
            )
            python = Path(f"<environment of {cell.spec}>/bin/python")
            shown.append((planned, adapter_for(cell.spec.name).serve_command(python, cell.spec.version or "", request)))
    return shown


def run_session(request: RunRequest, plan: Plan, store: Store, cache_root: Path, watcher: Watcher) -> list[BootResult]:
    """Make every boot of the plan. Stops early when interrupted, or when a teardown could not prove that the node is clean (M22)."""
    results: list[BootResult] = []
    state_dir = platformdirs.user_state_path("sparkproof")
    with interruptible() as interrupts, node_lock(state_dir, sys.argv, on_wait=watcher.waiting):
        stale = end_stale_boots(store)
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
    )
