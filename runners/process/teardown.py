"""End a boot and prove that nothing of it is left (M22).

Trap: orphaned `EngineCore` and scheduler processes keep 60 GB, and the next boot is measured beside them, or fails with a memory error
that is nobody's. Rule: ask the server, then its group, then kill every proven member; afterwards prove that none lives, the port is
closed, and the node's memory is back within 1 GiB of the baseline taken before the launch, what other processes took or gave back
meanwhile left out: a neighbour that grew is no leak of ours, and one that shrank hides none. Unknown is not clean.

The server alone gets the first SIGTERM: engines end their children in order, and signalling everybody at once makes them log a crash
that never was. Processes that are not proven to be ours are named, never touched.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from runners.node.memory import private_memory_bytes, used_memory_bytes
from runners.process.members import Members, Target, describe, members, send
from runners.process.ports import Listeners, port_owner
from runners.process.server import LaunchRecord, ServerProcess, read_record
from runners.process.table import ProcessStat, machine_boot_id, read_stat


def _no_gpu() -> frozenset[int]:
    return frozenset()


@dataclass(frozen=True)
class TeardownLimits:
    """`grace_s`: from the first SIGTERM to SIGKILL, at most half of it for the server alone. `children_s`: what its children then get to
    end by themselves before they are signalled too. `kill_s`: until killed processes must be gone, and the port and the GPU released.

    `memory_s`: until memory must be back (the driver frees it late); `memory_slack_bytes`: how near to the baseline (M22).
    """

    grace_s: float = 20.0
    children_s: float = 2.0
    kill_s: float = 15.0
    memory_s: float = 60.0
    memory_slack_bytes: int = 1 << 30
    poll_s: float = 0.1


LIMITS = TeardownLimits()


@dataclass(frozen=True)
class Machine:
    """How to look at the machine and act on it. `gpu_pids` are processes that hold GPU memory, None where NVML cannot tell."""

    members: Callable[[Target], Members] = members
    send: Callable[[ProcessStat, int], bool] = send
    listeners: Callable[[int], Listeners] = port_owner
    used_memory: Callable[[], int | None] = used_memory_bytes
    private_memory: Callable[[], int | None] = private_memory_bytes
    gpu_pids: Callable[[], frozenset[int] | None] = _no_gpu
    boot_id: Callable[[], str] = machine_boot_id
    read_stat: Callable[[int], ProcessStat | None] = read_stat
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


MACHINE = Machine()


@dataclass(frozen=True)
class TeardownProof:
    """Whether nothing of a boot is left. If not `clean`, the next boot must be refused with `reason`.

    `killed_hard`: SIGKILL was needed. `survivors`: numbers of proven members still alive. `memory_after_bytes`: used memory of the node at
    the end, None if unknown.
    """

    clean: bool
    seconds: float
    killed_hard: bool
    survivors: tuple[int, ...]
    memory_after_bytes: int | None
    reason: str


def _nobody(processes: tuple[ProcessStat, ...]) -> bool:
    return not processes


@dataclass
class _Ending:
    """One teardown under way; everything it has seen."""

    target: Target
    machine: Machine
    limits: TeardownLimits
    hurry: Callable[[], bool]
    started: float
    seen: set[int] = field(default_factory=set)
    killed_hard: bool = False
    denied: set[int] = field(default_factory=set)

    def look(self) -> Members:
        found = self.machine.members(self.target)
        self.seen |= {p.pid for p in found.proven}
        return found

    def signal(self, processes: tuple[ProcessStat, ...], number: int) -> None:
        for process in processes:
            try:
                self.machine.send(process, number)
            except psutil.AccessDenied:
                self.denied.add(process.pid)

    def wait(self, gone: Callable[[tuple[ProcessStat, ...]], bool], until: float) -> tuple[ProcessStat, ...]:
        """Wait until `gone(living members)`, the time is over, or we are told to hurry; who lives then."""
        while True:
            alive = self.look().alive
            if gone(alive) or self.machine.clock() >= until or self.hurry():
                return alive
            self.machine.sleep(self.limits.poll_s)

    def end_processes(self) -> None:
        alive = self.look().alive
        if self._server(alive) and not self.hurry():
            self.signal(self._server(alive), signal.SIGTERM)
            self.wait(lambda living: not self._server(living), self.started + self.limits.grace_s / 2)
            alive = self.wait(_nobody, min(self.machine.clock() + self.limits.children_s, self.started + self.limits.grace_s))
        if alive and not self.hurry():
            self.signal(alive, signal.SIGTERM)
            alive = self.wait(_nobody, self.started + self.limits.grace_s)
        if alive:
            self._kill()

    def _server(self, processes: tuple[ProcessStat, ...]) -> tuple[ProcessStat, ...]:
        return tuple(p for p in processes if (p.pid, p.start_ticks) == (self.target.pid, self.target.start_ticks))

    def _kill(self) -> None:
        until = self.machine.clock() + self.limits.kill_s
        while alive := self.look().alive:  # again and again: a process that forks while we look leaves a child for the next round
            self.killed_hard = True
            self.signal(alive, signal.SIGKILL)
            if self.machine.clock() >= until:
                return
            self.machine.sleep(self.limits.poll_s)


def stop(
    server: ServerProcess,
    *,
    hurry: Callable[[], bool] = lambda: False,
    limits: TeardownLimits = LIMITS,
    machine: Machine = MACHINE,
    judge_memory: bool = True,
) -> TeardownProof:
    """End a server that this runner launched, reap it, and prove that nothing is left.

    `judge_memory` False: other runners start servers meanwhile, so the node's memory is reported, not judged. `hurry` is asked all the
    time: once true, the grace is over (see `Interrupts.hurry`). Works for a server that is dead already.
    """
    ending = _Ending(server.record.target, machine, limits, hurry, machine.clock())
    ending.end_processes()
    proof = _prove(ending, server.record, judge_memory=judge_memory)
    if not proof.survivors:
        server.reap()
    return proof


def end_orphans(boot_folder: Path, *, limits: TeardownLimits = LIMITS, machine: Machine = MACHINE) -> TeardownProof:
    """End what a killed runner left behind, found through `process.json`; only under the node's lock.

    Nothing to do if nothing was launched or the machine has booted since. Refused while the runner of that boot lives. Memory is
    reported, not judged: the baseline is from another time.
    """
    started = machine.clock()
    try:
        record = read_record(boot_folder)
    except (OSError, ValueError) as error:
        return _untouched(machine, started, False, f"cannot tell what was launched: {error}")
    if record is None:
        return _untouched(machine, started, True, "no server was launched in this boot folder")
    if record.machine_boot_id != machine.boot_id():
        return _untouched(machine, started, True, "the machine has booted since: nothing of that boot can live")
    if _runner_lives(record, machine):
        return _untouched(machine, started, False, f"its runner (pid {record.runner_pid}) is still alive: it must end its own server")
    ending = _Ending(record.target, machine, limits, lambda: False, started)
    ending.end_processes()
    return _prove(ending, record, judge_memory=False)


def _untouched(machine: Machine, started: float, clean: bool, reason: str) -> TeardownProof:
    return TeardownProof(clean, machine.clock() - started, False, (), machine.used_memory(), reason)


def _runner_lives(record: LaunchRecord, machine: Machine) -> bool:
    if record.runner_pid == os.getpid():
        return False
    runner = machine.read_stat(record.runner_pid)
    return runner is not None and runner.alive and runner.start_ticks == record.runner_start_ticks


def _prove(ending: _Ending, record: LaunchRecord, *, judge_memory: bool = True) -> TeardownProof:
    left, port = ending.look(), record.port
    faults: list[str] = []
    if left.alive:
        denied = " (we may not signal it)" if ending.denied & left.pids else ""
        faults.append(f"still alive: {describe(left.alive)}{denied}")
    if left.doubtful:
        faults.append(f"in the group of our dead server, but not proven ours, so not touched: {describe(left.doubtful)}")
    patience_s = 0.0 if left.alive or ending.hurry() else ending.limits.kill_s
    faults += _wait_for_none(ending, patience_s, lambda: _port_faults(ending, port))
    faults += _wait_for_none(ending, patience_s, lambda: _gpu_faults(ending))
    if judge_memory:
        faults += _wait_for_none(ending, ending.limits.memory_s if patience_s else 0.0, lambda: _memory_faults(ending, record))
    seconds = ending.machine.clock() - ending.started
    memory = "memory is back" if judge_memory else "memory is not judged"
    reason = "; ".join(faults) or f"no process of ours lives, port {port} is closed, {memory}"
    survivors = tuple(sorted(left.pids))
    return TeardownProof(not faults, seconds, ending.killed_hard, survivors, ending.machine.used_memory(), reason)


def _wait_for_none(ending: _Ending, seconds: float, find_faults: Callable[[], list[str]]) -> list[str]:
    until = ending.machine.clock() + seconds
    while faults := find_faults():
        if ending.machine.clock() >= until or ending.hurry():
            break
        ending.machine.sleep(ending.limits.poll_s)
    return faults


def _port_faults(ending: _Ending, port: int) -> list[str]:
    found = ending.machine.listeners(port)
    if not found.any:
        return []
    who = ", ".join(f"pid {p}" for p in sorted(found.pids)) or "a process of another user"
    ours = "ours" if found.pids & ending.seen else "not proven ours, so not touched"
    return [f"port {port} is still open: {who} listens on it ({ours})"]


def _gpu_faults(ending: _Ending) -> list[str]:
    holding = ending.machine.gpu_pids() or frozenset()  # None: NVML cannot tell; the process table and unified memory still do
    return [f"the driver still lists pid {pid} with GPU memory" for pid in sorted(holding & ending.seen)]


def _memory_faults(ending: _Ending, record: LaunchRecord) -> list[str]:
    used, before = ending.machine.used_memory(), record.memory_baseline_bytes
    if used is None or before is None:
        return ["used memory is not known, before or after: cannot prove that it is back"]
    private, private_before = ending.machine.private_memory(), record.private_baseline_bytes
    neighbours = private - private_before if private is not None and private_before is not None else 0
    over = used - before - neighbours
    if over <= ending.limits.memory_slack_bytes:
        return []
    return [f"{over / 2**30:.1f} GiB more memory in use than before the launch: something still holds it (see also /dev/shm)"]
