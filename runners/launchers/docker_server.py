"""A container as the pipeline's `Serving`, from its first second to the proof that it is gone; and the containers of runners that died.

Trap: `docker stop` returns and the memory is still held, or the runner is killed and its container serves on for days. Rule: an end is
proven (M22): no container with our label, none of its processes, port closed, memory back; every container says whose runner it belongs to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from results.records import ResourceRecord
from results.vocabulary import Phase
from runners.envs.command import end_group
from runners.errors import SparkproofError
from runners.launchers.docker import RUN_LABEL, RUNNER_LABEL, ContainerProcess, read_record, remaining, remove, runner_label
from runners.launchers.docker_cli import Docker
from runners.process.guard import LogGuard
from runners.process.log import LOG_LIMITS, LogLimits, log_trouble, read_end
from runners.process.ready import READY_LIMITS, Evidence, NotReady, Probes, Readiness, Ready, ReadyLimits, explain
from runners.process.server import LaunchRecord
from runners.process.table import ProcessStat
from runners.process.teardown import LIMITS, MACHINE, Machine, TeardownLimits, TeardownProof
from runners.process.telemetry import SOURCES
from runners.process.vitals import Watch
from runners.serving import WatchedServer

Clean = bool
Fault = TypeVar("Fault")


class ContainerGuard(LogGuard):
    """Ends the container when its log or the disk passes its limit; its processes are root's, so docker must do it."""

    def __init__(self, container: ContainerProcess, limits: LogLimits = LOG_LIMITS) -> None:
        super().__init__(container, limits)
        self._container = container

    def check(self) -> None:
        """Look once; kill once."""
        if self.trouble is None:
            self.trouble = log_trouble(self._container.log_path, self._limits)
            if self.trouble is not None:
                self._container.docker.ask("kill", self._container.name)


class DockerServer(WatchedServer):
    """A container that we started (see `runners.serving.Serving`)."""

    process: ContainerProcess

    def __init__(
        self,
        process: ContainerProcess,
        emit: Callable[[ResourceRecord], None],
        phase: Callable[[], Phase],
        hurry: Callable[[], bool],
        machine: Machine = MACHINE,
    ) -> None:
        sources = dataclasses.replace(SOURCES, members=lambda target: process.members())
        super().__init__(process, emit, phase, hurry, sources=sources, machine=machine, guard=ContainerGuard(process))

    def wait_ready(
        self,
        served_name: str,
        probes: Probes,
        limits: ReadyLimits = READY_LIMITS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Ready | NotReady:
        """As for a process of ours, except that docker says who holds the port: the socket belongs to its proxy."""
        watch = Watch(self.process)
        readiness = Readiness(probes, self.process.listeners, served_name, limits=limits, clock=clock)
        while (verdict := readiness.step(watch.look())) is None:
            sleep(limits.poll_s)
        if isinstance(verdict, Ready):
            return verdict
        return explain(verdict, Evidence(read_end(self.process.log_path), self.process.memory_reason()))

    @property
    def end_by_hand(self) -> str:
        """The command that ends it when it is kept."""
        return f"docker rm --force {self.process.name}"

    def stop(self) -> TeardownProof:
        """End and remove the container, and prove it."""
        proof = stop(self.process, hurry=self._hurry, machine=self._machine)
        self.unwatch()
        return proof


def stop(
    process: ContainerProcess,
    *,
    hurry: Callable[[], bool] = lambda: False,
    limits: TeardownLimits = LIMITS,
    machine: Machine = MACHINE,
) -> TeardownProof:
    """SIGTERM, after the grace (or when told to hurry) SIGKILL, the rest of the log, removal, proof. Works for a dead container too."""
    started = machine.clock()
    seen = process.members().alive
    killed_hard = _end(process, hurry, limits, machine)
    _finish_log(process.handle, limits.kill_s)
    faults: list[str] = []
    try:
        if not remove(process.docker, process.name, runner_label(process.container.launch)):
            faults.append(f"the container {process.name} is still there")
        faults += [
            f"a container of this boot is left: {i[:12]}" for i in remaining(process.docker, f"label={RUN_LABEL}={process.record.run_id}")
        ]
    except SparkproofError as error:
        faults.append(f"docker does not say whether the container is gone: {error}")
    survivors = _wait(lambda: [p for p in seen if _alive(p, machine)], limits.kill_s, limits, machine, hurry)
    faults += [f"still alive: {p.name} (pid {p.pid})" for p in survivors]
    faults += _wait(lambda: _port(process.record.port, machine), limits.kill_s, limits, machine, hurry)
    faults += _wait(lambda: _gpu(seen, machine), limits.kill_s, limits, machine, hurry)
    faults += _wait(lambda: _memory(process.record, limits, machine), 0.0 if survivors else limits.memory_s, limits, machine, hurry)
    reason = (
        "; ".join(faults) or f"the container is removed, none of its processes lives, port {process.record.port} is closed, memory is back"
    )
    seconds = machine.clock() - started
    return TeardownProof(not faults, seconds, killed_hard, tuple(p.pid for p in survivors), machine.used_memory(), reason)


def _end(process: ContainerProcess, hurry: Callable[[], bool], limits: TeardownLimits, machine: Machine) -> bool:
    """Whether SIGKILL was needed. A container that has ended is left as it is."""
    if process.exit() is not None:
        return False
    if not hurry():
        process.docker.ask("kill", "--signal", "TERM", process.name)
        _wait(lambda: [] if process.exit() is not None else ["running"], limits.grace_s, limits, machine, hurry)
    if process.exit() is not None:
        return False
    process.docker.ask("kill", process.name)
    _wait(lambda: [] if process.exit() is not None else ["running"], limits.kill_s, limits, machine, lambda: False)
    return True


def _finish_log(follower: subprocess.Popen[bytes], patience_s: float) -> None:
    """Let `docker logs` write what is left; it ends with the container."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        follower.wait(patience_s)
        return
    end_group(follower)


def _wait(
    faults: Callable[[], list[Fault]], seconds: float, limits: TeardownLimits, machine: Machine, hurry: Callable[[], bool]
) -> list[Fault]:
    until = machine.clock() + seconds
    while found := faults():
        if machine.clock() >= until or hurry():
            break
        machine.sleep(limits.poll_s)
    return found


def _alive(process: ProcessStat, machine: Machine) -> bool:
    now = machine.read_stat(process.pid)
    return now is not None and now.alive and now.start_ticks == process.start_ticks


def _port(port: int, machine: Machine) -> list[str]:
    return [f"port {port} is still open"] if machine.listeners(port).any else []


def _gpu(seen: tuple[ProcessStat, ...], machine: Machine) -> list[str]:
    holding = machine.gpu_pids() or frozenset()
    return [f"the driver still lists pid {p.pid} with GPU memory" for p in seen if p.pid in holding]


def _memory(record: LaunchRecord, limits: TeardownLimits, machine: Machine) -> list[str]:
    used = machine.used_memory()
    if used is None or record.memory_baseline_bytes is None:
        return ["used memory is not known, before or after: cannot prove that it is back"]
    private, private_before = machine.private_memory(), record.private_baseline_bytes
    neighbours = private - private_before if private is not None and private_before is not None else 0
    over = used - record.memory_baseline_bytes - max(0, neighbours)
    return [f"{over / 2**30:.1f} GiB more memory in use than before the launch"] if over > limits.memory_slack_bytes else []


@dataclass(frozen=True)
class Orphan:
    """A container of ours whose runner is gone."""

    container_id: str
    run_id: str
    runner: str


def find_orphans(docker: Docker, machine: Machine = MACHINE) -> tuple[Orphan, ...]:
    """Every container with our label whose runner does not live any more. One whose label cannot be read is left alone."""
    layout = "\t".join(("{{.ID}}", f'{{{{.Label "{RUN_LABEL}"}}}}', f'{{{{.Label "{RUNNER_LABEL}"}}}}'))
    listed = docker.must("ps", "--all", "--no-trunc", "--filter", f"label={RUN_LABEL}", "--format", layout)
    rows = [line.split("\t") for line in listed.splitlines()]
    return tuple(Orphan(*row) for row in rows if len(row) == 3 and _runner_is_gone(row[2], machine))


def end_orphans(
    docker: Docker, machine: Machine = MACHINE, *, spare: Callable[[str], bool] = lambda run_id: False
) -> tuple[tuple[Orphan, Clean], ...]:
    """Remove them, running or not, except those whose boot `spare` names; whether each is gone.

    Only under the node's lock, like every teardown of other runners' boots.
    """
    orphans = [orphan for orphan in find_orphans(docker, machine) if not spare(orphan.run_id)]
    return tuple((orphan, remove(docker, orphan.container_id, orphan.runner)) for orphan in orphans)


def end_orphan(docker: Docker, boot_folder: Path, machine: Machine = MACHINE) -> TeardownProof | None:
    """End what a killed runner left of this boot, found through `container.json`; None if no container was started for it.

    Memory is reported, not judged: the baseline is from another time. A container survives a reboot of the machine; it is ended then too.
    """
    started = machine.clock()

    def proof(clean: bool, reason: str) -> TeardownProof:
        return TeardownProof(clean, machine.clock() - started, False, (), machine.used_memory(), reason)

    try:
        record = read_record(boot_folder)
        if record is None:
            return None
        runner = runner_label(record.launch)
        if not _runner_is_gone(runner, machine):
            return proof(False, f"its runner (pid {record.launch.runner_pid}) is still alive: it must end its own server")
        if remove(docker, record.name, runner):
            return proof(True, f"the container {record.name} is removed, memory is not judged")
        return proof(False, f"the container {record.name} is still there")
    except (OSError, ValueError, SparkproofError) as error:
        return proof(False, f"cannot tell whether its container is gone: {error}")


def _runner_is_gone(label: str, machine: Machine) -> bool:
    pid, _, rest = label.partition(":")
    ticks, _, boot_id = rest.partition(":")
    if not (pid.isdecimal() and ticks.isdecimal() and boot_id):
        return False
    if boot_id != machine.boot_id():
        return True
    runner = machine.read_stat(int(pid))
    return runner is None or not runner.alive or runner.start_ticks != int(ticks)
