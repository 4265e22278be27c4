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

from results.errors import StoreError
from results.kept_records import SessionRecord
from results.records import NodeRecord
from results.store import Store
from results.vocabulary import Outcome, Phase, Purpose
from runners.admission import with_canaries
from runners.boot import Boot
from runners.diagnose.same_server import ask_again
from runners.envs.resolve import resolve_version
from runners.errors import InfrastructureError, UsageError
from runners.fit_check import why_not
from runners.kept import kept_servers
from runners.launchers.docker_cli import Docker
from runners.launchers.endpoint import key_headers
from runners.models import check_available
from runners.node.checkup import BEFORE, Checkup
from runners.node.facts import has_cuda, read_node
from runners.node.lock import LockOwner, node_lock
from runners.pipeline import BootResult, Start, Workshop, run_boot
from runners.plan import PlannedBoot, plan_boots
from runners.process.interrupt import Interrupts, interruptible
from runners.recorder import utc_now
from runners.spec import EngineSpec
from runners.stale import StaleBoot, end_stale_boots, end_stray_containers
from suites.backends import backend_for
from suites.recipes import Recipe, Source, recipe_for
from suites.shapes import PREFIX
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
    beside_kept: bool = False
    """Measure although a server that was left running with `keep_server` takes its share of the node."""
    session: SessionRecord | None = None
    """The visit that this one is, or goes on with; None: an ordinary run."""


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
    planned = plan_boots(specs, recipes, backends, workloads, request.boots or suite.boots, suite.context)
    boots = tuple(with_canaries(planned, node))
    if request.keep_server and len(boots) > 1:
        todo = "Give one --engine, --model and --backend, and --boots 1."
        raise UsageError(f"--keep-server is for one boot, this plan has {len(boots)}: the next would be measured beside it.", todo=todo)
    return Plan(node, boots)


_SERVED = "Give only engines of the form NAME@endpoint:URL with it."


def _recipe(name: str, specs: Sequence[EngineSpec]) -> Recipe:
    """A recipe by name or folder; for an endpoint also the name of whatever model it serves."""
    if name.startswith("served:"):
        if not all(spec.distribution == "endpoint" for spec in specs):
            raise UsageError(f"{name[:80]!r} names a model that an endpoint serves, but an engine asked for is no endpoint.", todo=_SERVED)
        served = name.removeprefix("served:")
        safe = "".join(c if c.isalnum() or c in "._-" else "-" for c in served.lower()).strip("._-").removeprefix(PREFIX)[:64] or "served"
        return Recipe(name=safe, kind="model", source=Source(served=served))
    recipe = recipe_for(name)
    if recipe.dummy and any(spec.distribution == "endpoint" for spec in specs):
        todo = "Give an engine to install, such as vllm==0.32.0, or served:NAME for what the endpoint serves."
        raise UsageError(
            f"{recipe.name} is a shape, filled with random numbers by a server of our own; an endpoint serves its own model.", todo=todo
        )
    return recipe


def _check_context(recipes: Sequence[Recipe], workloads: Sequence[Workload]) -> None:
    for recipe in recipes:
        for workload in workloads:
            if workload.total_tokens > recipe.max_model_len:
                raise UsageError(
                    f"workload {workload.name} needs {workload.total_tokens:,} tokens of context, {recipe.name} is served with "
                    f"{recipe.max_model_len:,}.",
                    todo="Shorten the workload, or raise max_model_len in the recipe.",
                )


def _check_models(plan: Plan) -> None:
    """Refuse a model that is not here before anything starts. What cannot be served anyway is left to the boot, which says why."""
    cells = (planned.cell for planned in plan.boots)
    for recipe in {cell.recipe.recipe_id: cell.recipe for cell in cells if why_not(cell, plan.node) is None}.values():
        check_available(recipe)


FollowUp = Callable[[Sequence[BootResult]], Sequence[PlannedBoot]]
"""From all boots of the visit so far to the ones to make next; nothing ends the visit."""


def no_follow_up(made: Sequence[BootResult]) -> Sequence[PlannedBoot]:
    """The plan is all there is to do."""
    return ()


def in_turn(*follow_ups: FollowUp) -> FollowUp:
    """Each follows up only where those before it ask for nothing (more)."""
    return lambda made: next((boots for follow_up in follow_ups if (boots := follow_up(made))), ())


def run_session(
    request: RunRequest,
    plan: Plan,
    store: Store,
    cache_root: Path,
    watcher: Watcher,
    follow_up: FollowUp = no_follow_up,
    start: Start | None = None,
    collect: Callable[[Boot], None] = lambda boot: None,
) -> list[BootResult]:
    """Make every boot of the plan, then those that `follow_up` asks for, until it asks for none. `start`, `collect`: see `Workshop`.

    Stops early when interrupted, or when a teardown could not prove that the node is clean (M22).
    """
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
        neighbours = _neighbours(request, plan, store)
        store.ingest_pending()
        shop = dataclasses.replace(_workshop(request, plan, store, cache_root, watcher, interrupts), start=start, neighbours=neighbours)
        shop = dataclasses.replace(shop, collect=collect)
        session = request.session or SessionRecord(shop.session_id, plan.node.node_id, "run", utc_now())
        store.keep(session)
        boots: Sequence[PlannedBoot] = plan.boots
        while boots and _make_boots(boots, shop, watcher, results):
            boots = follow_up(results)
        _close(session, store, results)
    return results


def _close(session: SessionRecord, store: Store, results: Sequence[BootResult]) -> None:
    """Keep how the visit ended. It is void if the node was already off before its first boot: nothing after that has a sound beginning."""
    anchors = [r.run.run_id for r in results if r.run.purpose is Purpose.ANCHOR and r.run.outcome is Outcome.PASS]
    void = results[0].void if results and (results[0].void or "").startswith(BEFORE) else None
    ended = dataclasses.replace(
        session,
        finished_at=utc_now(),
        void=void is not None,
        void_reason=void,
        anchor_run_id=anchors[0] if anchors else session.anchor_run_id,
    )
    try:
        store.keep(ended)
    except StoreError as error:
        if results:
            results[-1].notes.append(f"the visit's record could not be completed: {error}")


def _neighbours(request: RunRequest, plan: Plan, store: Store) -> tuple[str, ...]:
    """Sentences on our own servers that still run here. Raises InfrastructureError for one, unless the user wants to measure beside it.

    Endpoints are measured whatever runs: a kept server may be the very one.
    """
    if all(planned.cell.spec.distribution == "endpoint" for planned in plan.boots):
        return ()
    kept = kept_servers(store)
    if kept and not request.beside_kept:
        todo = f"End it: {kept[0].end_by_hand}; or measure beside it with --beside-kept."
        raise InfrastructureError(f"{kept[0].sentence()}: it would take its share of what is measured.", todo=todo)
    return tuple(f"measured beside another server: {server.sentence()}" for server in kept)


def _make_boots(boots: Sequence[PlannedBoot], shop: Workshop, watcher: Watcher, results: list[BootResult]) -> bool:
    """Make these boots, each added to `results`. False if no further boot may follow."""
    made = len(results)
    shop = dataclasses.replace(shop, made=results)
    boots = with_canaries(boots, shop.node, [result.planned.cell for result in results])
    for number, planned in enumerate(boots, start=made + 1):
        watcher.boot(number, made + len(boots), planned)
        result = run_boot(planned, shop)
        results.append(result)
        watcher.done(result)
        if result.run.outcome is Outcome.INTERRUPTED or result.unsafe is not None:
            return False
    return True


def _workshop(request: RunRequest, plan: Plan, store: Store, cache_root: Path, watcher: Watcher, interrupts: Interrupts) -> Workshop:
    return Workshop(
        store=store,
        cache_root=cache_root,
        node=plan.node,
        has_cuda=has_cuda(plan.node),
        session_id=request.session.session_id if request.session is not None else uuid.uuid4().hex[:16],
        checkup=Checkup.of(store, plan.node, has_cuda=has_cuda(plan.node), now=utc_now),
        interrupts=interrupts,
        progress=watcher.phase,
        keep_server=request.keep_server,
        may_download=request.download,
        questions=ask_again,
    )
