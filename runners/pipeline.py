"""One boot from beginning to end: every phase in order, one final row whatever happens, and the server gone.

Trap: an exception between two phases leaves a server running, or a boot without a row. Rule: one function owns the order; a failure of any
kind becomes the conclusion of the row, teardown always runs, and only then is the row final.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from results.boot_folder import BootSummary, new_run_id
from results.errors import StoreError
from results.records import PROTOCOL_VERSION, NodeRecord, ResourceRecord, RunRecord
from results.store import Store
from results.vocabulary import Outcome, Phase, Purpose
from runners import phases
from runners.admission import admit
from runners.boot import Boot
from runners.context import phase as context_phase
from runners.engines.base import ServeCommand
from runners.engines.kernels import mismatches
from runners.errors import SparkproofError
from runners.failure import PhaseFailure
from runners.launchers import docker as containers
from runners.launchers.docker_server import DockerServer
from runners.launchers.endpoint import conceal
from runners.node.checkup import Checkup
from runners.node_watch import NodeWatch
from runners.plan import PlannedBoot
from runners.process.interrupt import Interrupted, Interrupts
from runners.process.log import shorten
from runners.process.server import launch
from runners.recorder import Recorder, utc_now
from runners.serving import Hurry, OwnServer, Serving
from suites.errors import SuiteError

Start = Callable[[Boot, ServeCommand], Serving | None]
"""Starts the server of a boot, or leaves it to the pipeline (None)."""


@dataclass(frozen=True)
class Workshop:
    """What all boots of a session share. `progress` gets the boot's phase and a line of detail.

    `checkup` looks at the node before and after each timed boot (None: nobody looks).
    `start` starts a boot's server in place of a process of its own (None: the boot gets its own); `questions` asks a server that failed its
    gate once more, before it is ended.
    """

    store: Store
    cache_root: Path
    node: NodeRecord
    has_cuda: bool
    session_id: str
    interrupts: Interrupts
    progress: Callable[[Phase, str], None] = lambda phase, detail: None
    keep_server: bool = False
    may_download: bool = False
    neighbours: tuple[str, ...] = ()
    """What else of ours runs on this node, to be warned of in every boot."""
    checkup: Checkup | None = None
    start: Start | None = None
    questions: Callable[[Boot], None] = lambda boot: None
    made: Sequence[BootResult] = ()
    """The boots of this session so far."""
    collect: Callable[[Boot], None] = lambda boot: None
    """Asks a server that has passed its gate for what a reference is made of."""


@dataclass
class BootResult:
    """How a boot ended. `kept` is the address of a server left running on request, `kept_end` the command that ends it; `unsafe` why no
    further boot may follow on this node, `void` why its numbers do not count (the node's health changed)."""

    run: RunRecord
    planned: PlannedBoot
    kept: str | None = None
    kept_end: str | None = None
    unsafe: str | None = None
    unstored: str | None = None
    void: str | None = None
    notes: list[str] = field(default_factory=list)


def run_boot(planned: PlannedBoot, shop: Workshop) -> BootResult:
    """Make one boot. Raises nothing but a disk that cannot even take the boot's folder (StoreError); interruption is an outcome."""
    recorder = _recorder(planned, shop)
    boot = Boot(
        cell=planned.cell,
        recorder=recorder,
        node=shop.node,
        cache_root=shop.cache_root,
        has_cuda=shop.has_cuda,
        progress=lambda detail: shop.progress(recorder.run.phase, conceal(detail, os.environ)),
        may_download=shop.may_download,
    )
    result = BootResult(recorder.run, planned)
    watch = NodeWatch(boot, shop.checkup if planned.timed and shop.start is None else None)
    try:
        with shop.interrupts.held_back():
            recorder.begin()
            for sentence in shop.neighbours:
                recorder.warn(sentence)
    except OSError as error:
        raise StoreError(f"the boot's folder cannot be written: {error.strerror}", where=str(recorder.folder.path), todo=_DISK) from error
    except (Interrupted, KeyboardInterrupt) as stop:
        recorder.conclude(Outcome.INTERRUPTED, f"stopped in phase {recorder.run.phase}: {stop}")
    if recorder.run.outcome is None:
        _conclude(boot, shop, watch, timed=planned.timed)
    with shop.interrupts.held_back():
        _tear_down(boot, shop, result)
        if boot.serving is not None and result.kept is None and not shop.interrupts.received:
            _look_again(watch)
        watch.close()
        recorder.finish()
    result.run, result.unstored, result.void = recorder.run, recorder.unstored, watch.void
    return result


def _conclude(boot: Boot, shop: Workshop, watch: NodeWatch, *, timed: bool) -> None:
    """Run the phases; whatever happens becomes the conclusion of the row."""
    recorder = boot.recorder
    try:
        try:
            _run_phases(boot, shop, watch, timed=timed)
            recorder.conclude(*_conclusion(boot))
        except PhaseFailure as failure:
            recorder.conclude(failure.outcome, failure.reason, signature=failure.signature, excerpt=failure.excerpt)
            _ask_again(boot, shop)
    except (Interrupted, KeyboardInterrupt) as stop:
        recorder.conclude(Outcome.INTERRUPTED, f"stopped in phase {recorder.run.phase}: {stop}")
    except (SparkproofError, SuiteError) as error:
        recorder.conclude(Outcome.INFRASTRUCTURE, str(error))
    except OSError as error:
        recorder.conclude(Outcome.INFRASTRUCTURE, _os_error(error))
    except Exception as error:  # noqa: BLE001 - a bug of ours must still leave a row and no server
        recorder.conclude(Outcome.INFRASTRUCTURE, f"a fault of Sparkproof itself: {error!r}", excerpt=traceback.format_exc(limit=-12))


_DISK = "Free space on that disk, or set SPARKPROOF_HOME to another one."


def _recorder(planned: PlannedBoot, shop: Workshop) -> Recorder:
    cell = planned.cell
    run = RunRecord(
        run_id=new_run_id(),
        session_id=shop.session_id,
        cell_id=cell.cell_id(shop.node.node_id, None),
        series_id=cell.series_id(shop.node.node_id),
        engine=cell.spec.name,
        engine_version=cell.spec.version or "unknown",
        distribution=cell.spec.distribution,
        recipe_name=cell.recipe.name,
        backend_name=cell.backend.name,
        node_id=shop.node.node_id,
        protocol_version=PROTOCOL_VERSION,
        started_at=utc_now(),
        purpose=planned.purpose,
        control_of=planned.control_of,
        weights="dummy" if cell.recipe.dummy else "real",
    )
    return Recorder(
        shop.store,
        BootSummary(run, shop.node),
        on_phase=lambda phase: shop.progress(phase, ""),
        conceal=lambda text: conceal(text, os.environ),
    )


def _ask_again(boot: Boot, shop: Workshop) -> None:
    """What a server that fails its gate can still be asked costs seconds; each control boot costs minutes."""
    run = boot.recorder.run
    failed = run.phase in (Phase.COHERENCE, Phase.RECHECK) and run.outcome in (Outcome.INCOHERENT, Outcome.WRONG)
    if failed and run.purpose is not Purpose.CONTROL:
        with boot.recorder.phase(Phase.CONTROL):
            shop.questions(boot)


def _look_again(watch: NodeWatch) -> None:
    """The boot has its outcome: what goes wrong while looking at the node is only worth a warning."""
    try:
        watch.after()
    except Exception as error:  # noqa: BLE001 - the row of a finished boot must not be lost to a bug of ours
        watch.boot.recorder.warn(f"the node could not be looked at after the boot: {error!r}")


def _run_phases(boot: Boot, shop: Workshop, watch: NodeWatch, *, timed: bool) -> None:
    recorder = boot.recorder

    def emit(sample: ResourceRecord) -> None:
        recorder.append([sample])
        watch.sample(sample)

    def serve(command: ServeCommand, port: int) -> Serving:
        with shop.interrupts.held_back():
            placed = shop.start(boot, command) if shop.start is not None else None
            if placed is not None:
                return placed
            server = _start(boot, command, port, emit, shop.interrupts.hurry)
            boot.serving = server
        recorder.update(memory_baseline_bytes=server.process.record.memory_baseline_bytes)
        return server

    with recorder.phase(Phase.RESOLVE):
        phases.resolve(boot)
    with recorder.phase(Phase.INSTALL):
        phases.install(boot)
        admit(boot.cell.recipe, recorder.run, [result.run for result in shop.made])
    watch.before()
    with recorder.phase(Phase.LAUNCH):
        phases.launch_server(boot, serve)
    with recorder.phase(Phase.READY):
        phases.ready(boot)
    with recorder.phase(Phase.IDENTIFY):
        phases.identify(boot)
        recorder.note_memory_after_load()
    if not boot.cell.recipe.dummy:
        with recorder.phase(Phase.COHERENCE):
            phases.coherence(boot)
            shop.collect(boot)
    if not timed:
        return
    with recorder.phase(Phase.WARMUP):
        phases.warm_up(boot)
    with recorder.phase(Phase.THROUGHPUT):
        phases.throughput(boot)
    if boot.cell.recipe.dummy:
        return  # neither its text after load nor its memory of a passage means anything
    if boot.cell.context:
        with recorder.phase(Phase.CONTEXT):
            context_phase.verify(boot)
    with recorder.phase(Phase.RECHECK):
        phases.check_again(boot)


def _start(boot: Boot, command: ServeCommand, port: int, emit: Callable[[ResourceRecord], None], hurry: Hurry) -> OwnServer | DockerServer:
    recorder = boot.recorder
    folder, run_id = recorder.folder.path, recorder.run.run_id
    if boot.image is None:
        return OwnServer(launch(command, folder, run_id, port), emit, lambda: recorder.run.phase, hurry)
    mounts = phases.mounts_of(boot)
    container = containers.launch(boot.docker, command, boot.image, folder, run_id, port, mounts, has_cuda=boot.has_cuda)
    return DockerServer(container, emit, lambda: recorder.run.phase, hurry)


def _conclusion(boot: Boot) -> tuple[Outcome, str | None]:
    """Pass, unless a kernel that was asked for is not the one that ran (M23). A kernel nobody reports is unknown, which is no fallback."""
    run = boot.recorder.run
    differing = mismatches(run.engine, run.configured, run.actual)
    if differing:
        words = (f"{m.slot}: asked for {m.configured}, ran {m.actual}" for m in differing)
        return Outcome.FALLBACK, "not the kernel asked for: " + "; ".join(words)
    return Outcome.PASS, None


def _tear_down(boot: Boot, shop: Workshop, result: BootResult) -> None:
    recorder, serving = boot.recorder, boot.serving
    if serving is None:
        return
    keep = shop.keep_server and result.planned.timed and recorder.run.outcome is Outcome.PASS
    if keep and isinstance(serving, OwnServer | DockerServer):
        result.kept, result.kept_end = serving.base_url, serving.end_by_hand
        result.notes.extend(serving.unwatch())
        return
    with recorder.phase(Phase.TEARDOWN):
        proof = serving.stop()
    if proof is None:
        return
    try:
        if recorder.folder.log.exists():
            shorten(recorder.folder.log)
    except OSError as error:
        recorder.warn(f"the log could not be shortened: {error}")
    recorder.note_memory_after_teardown(proof.memory_after_bytes)
    if not proof.clean:
        recorder.warn(f"teardown could not prove that everything is gone: {proof.reason}")
        result.unsafe = proof.reason


def _os_error(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: {error.filename or 'boot folder'}. {_DISK}"
    return f"the operating system refused: {error}"
