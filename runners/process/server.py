"""Start an engine server so that it can always be found and ended again.

Traps: a runner that is killed leaves a server nobody can name; a `VLLM_ATTENTION_BACKEND` exported in the user's shell becomes every
cell's backend; a pid that was waited for belongs to somebody else a moment later. Rules: `process.json` is on disk before the process
exists and completed right after; every process carries our mark; the engine's own variables come only from the command; the leader is
not reaped before teardown is done, so its number stays ours.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from runners.engines.base import ServeCommand
from runners.errors import InfrastructureError
from runners.node.memory import private_memory_bytes, used_memory_bytes
from runners.process.log import LOG_LIMITS, LogLimits, log_trouble
from runners.process.members import MARK, Members, Target, members
from runners.process.oom import KernelWitness
from runners.process.table import machine_boot_id, read_stat

LOG_NAME = "server.log"
RECORD_NAME = "process.json"
NOT_INHERITED = ("VLLM_", "SGLANG_", "SGL_", "PYTHONPATH", "PYTHONHOME", "SPARKPROOF_API_KEY")
"""Prefixes of variables that a server never inherits: engine switches and module paths would change what is measured unseen, and the
key of an endpoint is nobody else's."""

_SHOW_PROC = "Mount it, and let it show our own processes."
_RUN_ID = re.compile(r"[A-Za-z0-9._:+-]{1,200}")
_MOST_RECORD_BYTES = 64 << 10


class LaunchError(InfrastructureError):
    """The server could not be started at all, which says nothing about the engine."""


@dataclass(frozen=True)
class LaunchRecord:
    """What `process.json` holds. `pid` is the server, leader of its own group and session; None until it exists.

    `start_ticks` are clock ticks since the machine booted, and `machine_boot_id` says which boot. The runner is recorded too: while it
    lives, the server is not an orphan. `memory_baseline_bytes` is the node's used memory just before the start (M20),
    `private_baseline_bytes` the part of it that processes owned then.
    """

    run_id: str
    port: int
    machine_boot_id: str
    runner_pid: int
    runner_start_ticks: int
    memory_baseline_bytes: int | None
    pid: int | None = None
    start_ticks: int | None = None
    private_baseline_bytes: int | None = None

    @property
    def target(self) -> Target:
        """Whose processes these are; older ones than the runner cannot be ours."""
        return Target(self.run_id, self.runner_start_ticks, self.pid, self.start_ticks)


@dataclass(frozen=True)
class Exit:
    """How a process ended: an exit code, or the signal that killed it. Both None: ended, but the kernel no longer tells how."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"was killed by {_signal_name(self.signal)}"
        return f"exited with code {self.code}" if self.code is not None else "ended (status lost)"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class ServerProcess:
    """A started server. Nothing else may wait for `handle`: `exit` looks without reaping, `reap` ends its claim on the number."""

    record: LaunchRecord
    folder: Path
    witness: KernelWitness
    handle: subprocess.Popen[bytes]

    @property
    def log_path(self) -> Path:
        """Everything the server prints."""
        return self.folder / LOG_NAME

    def members(self) -> Members:
        """The processes of this boot now."""
        return members(self.record.target)

    def exit(self) -> Exit | None:
        """How the server process ended, None while it runs."""
        if self.handle.returncode is None:
            try:
                seen = os.waitid(os.P_PID, self.handle.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return Exit()
            if seen is None:
                return None
            return Exit(code=seen.si_status) if seen.si_code == os.CLD_EXITED else Exit(signal=seen.si_status)
        return Exit(code=self.handle.returncode) if self.handle.returncode >= 0 else Exit(signal=-self.handle.returncode)

    def reap(self) -> Exit | None:
        """Let the kernel forget the ended server; its number is no longer ours afterwards. None while it runs."""
        self.handle.poll()
        return self.exit()


def server_environment(inherited: Mapping[str, str], command: ServeCommand, run_id: str) -> dict[str, str]:
    """The server's environment: inherited without `NOT_INHERITED`, then the command's, then our mark (kept readable by SPT_NOENV)."""
    kept = {k: v for k, v in inherited.items() if not k.startswith(NOT_INHERITED)}
    return {**kept, **command.environment, "SPT_NOENV": "1", MARK: run_id}


def launch(
    command: ServeCommand,
    boot_folder: Path,
    run_id: str,
    port: int,
    *,
    inherited: Mapping[str, str] = os.environ,
    log_limits: LogLimits = LOG_LIMITS,
    used_memory: Callable[[], int | None] = used_memory_bytes,
    private_memory: Callable[[], int | None] = private_memory_bytes,
) -> ServerProcess:
    """Start the server in a session of its own, its output in `server.log`, its working directory the boot folder.

    Raises LaunchError if the folder was used before, the disk is nearly full, or the program cannot be started; then nothing runs.
    Call it with signals held back (`Interrupts.held_back`), so that the returned server cannot be lost on its way to the caller.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise LaunchError(f"the run id {run_id!r} is not plain", todo="Use letters, digits and . _ : + - only.")
    if not command.argv:
        raise LaunchError("the serve command is empty", todo="Give a program and its arguments.")
    if not boot_folder.is_dir():
        raise LaunchError("there is no such folder", where=str(boot_folder), todo="Create the boot folder first.")
    trouble = log_trouble(boot_folder / LOG_NAME, log_limits)
    if trouble:
        raise LaunchError(f"the server was not started: {trouble}", where=str(boot_folder))
    record = replace(_record_before(run_id, port, used_memory()), private_baseline_bytes=private_memory())
    witness = KernelWitness.now()
    log = _open_log(boot_folder / LOG_NAME)
    try:
        write_record(boot_folder, record)
        handle = _start(command, boot_folder, server_environment(inherited, command, run_id), log)
    finally:
        os.close(log)
    try:
        stat = read_stat(handle.pid)
        if stat is None:
            raise LaunchError(f"the kernel does not show process {handle.pid} that was just started", where="/proc", todo=_SHOW_PROC)
        record = replace(record, pid=handle.pid, start_ticks=stat.start_ticks)
        write_record(boot_folder, record)
    except BaseException:
        os.killpg(handle.pid, signal.SIGKILL)
        handle.wait()
        raise
    return ServerProcess(record, boot_folder, witness, handle)


def _record_before(run_id: str, port: int, memory_baseline_bytes: int | None) -> LaunchRecord:
    runner = read_stat(os.getpid())
    if runner is None:
        raise LaunchError("the process table cannot be read", where="/proc", todo=_SHOW_PROC)
    return LaunchRecord(run_id, port, machine_boot_id(), runner.pid, runner.start_ticks, memory_baseline_bytes)


def _open_log(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except FileExistsError as exists:
        raise LaunchError("a server was launched here before", where=str(path), todo="Every boot needs a folder of its own.") from exists
    except OSError as error:
        raise LaunchError(f"cannot be written: {error.strerror}", where=str(path), todo="Give a writable results folder.") from error


def _start(command: ServeCommand, folder: Path, environment: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command.argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise LaunchError(f"cannot be started: {error}", where=command.argv[0], todo="Install the engine's environment again.") from error


def write_record(boot_folder: Path, record: LaunchRecord) -> None:
    """Write `process.json` so that a reader sees the old or the new one, whatever happens to us or the machine."""
    draft = boot_folder / f".{RECORD_NAME}.new"
    try:
        with draft.open("w") as file:
            json.dump(asdict(record), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(boot_folder / RECORD_NAME)
    except OSError as error:
        raise LaunchError(f"cannot be written: {error.strerror}", where=str(draft), todo="Give a writable results folder.") from error


def read_record(boot_folder: Path) -> LaunchRecord | None:
    """The record of a boot, None if nothing was ever launched in that folder. ValueError if the file is not one of ours."""
    path = boot_folder / RECORD_NAME
    try:
        with path.open() as file:
            found = json.loads(file.read(_MOST_RECORD_BYTES))
    except FileNotFoundError:
        return None
    try:
        record = LaunchRecord(**found)
    except TypeError as error:
        raise ValueError(f"{path}: not a record of a launched server: {error}") from error
    numbers = (record.port, record.runner_pid, record.runner_start_ticks)
    maybe = (record.pid, record.start_ticks, record.memory_baseline_bytes, record.private_baseline_bytes)
    if not all(type(n) is int for n in numbers) or not all(n is None or type(n) is int for n in maybe):
        raise ValueError(f"{path}: a number is not a number")
    if not isinstance(record.run_id, str) or not _RUN_ID.fullmatch(record.run_id) or not isinstance(record.machine_boot_id, str):
        raise ValueError(f"{path}: run id or machine boot id is not valid")
    return record
