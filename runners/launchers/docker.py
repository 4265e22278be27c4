"""`@docker:IMAGE`: an engine server in a container, watched and ended like one of our own processes.

Traps: a container outlives the runner that started it and nobody finds it; its port is open to the whole network; its processes belong to
root, so that we may not signal them; a container that dies is deleted together with its exit code and log; mounting a cached model's
folder mounts dangling links. Rules: every container is named and labelled after its boot and its runner, published on 127.0.0.1 only, ended
and removed by docker and then proven gone; its log is followed into `server.log`; a model is mounted read-only, at its own path, with
everything its links point to.

Written against docker 28's command line and tested with a stand-in for it; no container was run by us.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from results.redact import HIDDEN, plain, redact, redact_environment
from runners.engines.base import ServeCommand
from runners.errors import InfrastructureError, SparkproofError
from runners.launchers.docker_cli import Docker, ImageIdentity, explain
from runners.node.memory import private_memory_bytes, used_memory_bytes
from runners.process.log import LOG_LIMITS, LogLimits, log_trouble
from runners.process.members import MARK, Members, find_members
from runners.process.oom import KernelWitness
from runners.process.ports import Listeners
from runners.process.server import LOG_NAME, Exit, LaunchError, LaunchRecord, ServerProcess
from runners.process.table import machine_boot_id, read_stat, read_table

RECORD_NAME = "container.json"
RUN_LABEL = "sparkproof.run_id"
RUNNER_LABEL = "sparkproof.runner"
HOST_INSIDE = "0.0.0.0"
"""What the server must listen on inside its container; outside, the port is published on 127.0.0.1 only."""
HOME_INSIDE = "/sparkproof-home"
"""HOME of the server, where engines keep compiled kernels (~/.cache, ~/.triton): a volume per image, so that no two images share them."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_STACK_BYTES = 64 << 20
_MOST_RECORD_BYTES = 64 << 10


@dataclass(frozen=True)
class Mount:
    """A folder of the node, at the same path inside, read-only."""

    path: Path


@dataclass(frozen=True)
class ContainerRecord:
    """What `container.json` holds: enough to find and end the container after the runner died. `launch` is as in `process.json`."""

    name: str
    image: str
    container_id: str | None
    launch: LaunchRecord


def container_name(run_id: str) -> str:
    """`sparkproof-RUN_ID`. Raises LaunchError for an id that is no name."""
    if not _RUN_ID.fullmatch(run_id):
        raise LaunchError(f"the run id {run_id[:80]!r} is not plain", todo="Use letters, digits and . _ - only.")
    return f"sparkproof-{run_id}"


def model_mounts(folder: Path) -> tuple[Mount, ...]:
    """What must be mounted so that a model folder is whole inside: itself, and the folder above links that leave it (a hub's cache).

    Raises LaunchError for a path that a mount cannot name.
    """
    folder = folder.absolute()
    outside = [p.resolve() for p in folder.rglob("*") if p.is_symlink() and not p.resolve().is_relative_to(folder.resolve())]
    paths = {folder}
    if outside:
        paths.add(Path(os.path.commonpath([str(p.parent) for p in outside])))
    kept = sorted(p for p in paths if not any(p != other and p.is_relative_to(other) for other in paths))
    if any("," in str(p) or '"' in str(p) for p in kept):
        raise LaunchError("docker cannot mount a path with a comma or a quote", where=str(kept[0]), todo="Move the model.")
    return tuple(Mount(p) for p in kept)


def run_argv(
    program: str,
    command: ServeCommand,
    image: ImageIdentity,
    run_id: str,
    runner: str,
    port: int,
    mounts: Sequence[Mount],
    *,
    has_cuda: bool,
) -> tuple[str, ...]:
    """The exact `docker run` of a boot. A value of the environment that looks secret is named only; docker takes it from ours.

    `--init`: an engine as process 1 would ignore SIGTERM. Shared memory, locked memory and stack as both engines' images ask for.
    Raises LaunchError if the server would listen where docker cannot reach it.
    """
    host = command.argv[command.argv.index("--host") + 1] if "--host" in command.argv[:-1] else None
    if host != HOST_INSIDE:
        raise LaunchError(f"a server in a container must listen on {HOST_INSIDE}, not on {host}", todo=f"Serve with --host {HOST_INSIDE}.")
    argv = [program, "run", "--detach", "--pull", "never", "--init", "--name", container_name(run_id)]
    argv += ["--label", f"{RUN_LABEL}={run_id}", "--label", f"{RUNNER_LABEL}={runner}"]
    argv += ["--gpus", "all"] if has_cuda else []
    argv += ["--ipc", "host", "--ulimit", "memlock=-1:-1", "--ulimit", f"stack={_STACK_BYTES}:{_STACK_BYTES}"]
    argv += ["--publish", f"127.0.0.1:{port}:{port}/tcp"]
    argv += ["--log-driver", "json-file", "--log-opt", "max-size=1g", "--log-opt", "max-file=2"]
    for mount in mounts:
        argv += ["--mount", f"type=bind,source={mount.path},target={mount.path},readonly"]
    argv += ["--mount", f"type=volume,source={cache_volume(image)},target={HOME_INSIDE}"]
    hidden = redact_environment(command.environment)
    for name, value in sorted({"HOME": HOME_INSIDE, **command.environment, MARK: run_id}.items()):
        argv += ["--env", name if hidden.get(name) == HIDDEN else f"{name}={value}"]
    return (*argv, "--entrypoint", command.argv[0], image.reference, *command.argv[1:])


def planned_argv(
    docker: Docker, command: ServeCommand, image: ImageIdentity, run_id: str, port: int, mounts: Sequence[Mount], *, has_cuda: bool
) -> tuple[str, ...]:
    """What `launch` will run for this runner, to be recorded before it does. Raises LaunchError."""
    runner = runner_label(_record_before(run_id, port, None))
    return run_argv(docker.program, command, image, run_id, runner, port, mounts, has_cuda=has_cuda)


def cache_volume(image: ImageIdentity) -> str:
    """Name of the volume with this image's compiled kernels."""
    return f"sparkproof-cache-{image.image_id.removeprefix('sha256:')[:12]}"


def belongs_to(pid: int, container_id: str, proc: Path = Path("/proc")) -> bool:
    """Whether the kernel counts a process to the container: its cgroup names the container's id."""
    try:
        return container_id in (proc / str(pid) / "cgroup").read_text()
    except OSError:
        return False


@dataclass(frozen=True)
class ContainerProcess(ServerProcess):
    """A running container in the shape of a server process. `handle` is our `docker logs` that fills `server.log`, not the server.

    Its processes are found below the container's first one, in the node's own process table.
    """

    docker: Docker
    container: ContainerRecord

    @property
    def name(self) -> str:
        """The container's name."""
        return self.container.name

    def members(self) -> Members:
        """The processes inside the container now; empty once it has ended."""
        if self.record.pid is None:
            return Members(())
        return find_members(self.record.target, read_table(), frozenset())

    def state(self) -> Mapping[str, Any] | None:
        """Docker's word on the container; empty if it is gone, None if docker does not answer (which says nothing about the container)."""
        finished = self.docker.ask("container", "inspect", "--format", "{{json .}}", self.name)
        if finished.returncode != 0:
            gone = any("no such container" in line.lower() for line in finished.messages)
            return {} if gone else None
        try:
            found = json.loads(finished.output)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def exit(self) -> Exit | None:
        """How the container ended, None while it runs or docker does not answer."""
        found = self.state()
        return None if found is None else exit_of(found)

    def reap(self) -> Exit | None:
        """Nothing to reap: docker holds the exit code until the container is removed."""
        return self.exit()

    def listeners(self) -> Listeners:
        """Ours if docker says that this running container holds the published port. Docker lets nobody else have it meanwhile."""
        found = self.state() or {}
        bound = ((found.get("NetworkSettings") or {}).get("Ports") or {}).get(f"{self.record.port}/tcp") or []
        ours = any(isinstance(b, dict) and b.get("HostPort") == str(self.record.port) and b.get("HostIp") == "127.0.0.1" for b in bound)
        return Listeners(frozenset({self.record.pid}) if ours and self.record.pid is not None else frozenset())

    def memory_reason(self) -> str | None:
        """A sentence if docker or the kernel says that memory ran out."""
        state = (self.state() or {}).get("State") or {}
        return "docker says OOMKilled" if state.get("OOMKilled") is True else self.witness.report().memory_reason()


def exit_of(found: Mapping[str, Any]) -> Exit | None:
    """Read `docker container inspect`: an exit code above 128 is the signal that docker's shim saw. Gone without a trace: `Exit()`."""
    if not found:
        return Exit()
    state = found.get("State")
    if not isinstance(state, dict) or state.get("Status") in ("running", "created", "restarting", "paused"):
        return None
    code = state.get("ExitCode")
    if not isinstance(code, int):
        return Exit()
    return Exit(signal=code - 128) if 128 < code <= 128 + 64 else Exit(code=code)


def launch(
    docker: Docker,
    command: ServeCommand,
    image: ImageIdentity,
    boot_folder: Path,
    run_id: str,
    port: int,
    mounts: Sequence[Mount] = (),
    *,
    has_cuda: bool = True,
    log_limits: LogLimits = LOG_LIMITS,
    used_memory: Callable[[], int | None] = used_memory_bytes,
    private_memory: Callable[[], int | None] = private_memory_bytes,
    is_inside: Callable[[int, str], bool] = belongs_to,
) -> ContainerProcess:
    """Start the container and follow its log.

    Raises LaunchError, UsageError (the image) or InfrastructureError (docker); then nothing is left. Call it with signals held back, like
    `runners.process.server.launch`. A secret-looking variable reaches docker through our own environment, never on its command line.
    """
    trouble = log_trouble(boot_folder / LOG_NAME, log_limits)
    if trouble:
        raise LaunchError(f"the server was not started: {trouble}", where=str(boot_folder))
    record = replace(_record_before(run_id, port, used_memory()), private_baseline_bytes=private_memory())
    container = ContainerRecord(container_name(run_id), image.reference, None, record)
    runner = runner_label(record)
    argv = run_argv(docker.program, command, image, run_id, runner, port, mounts, has_cuda=has_cuda)
    speaking = replace(docker, environment={**docker.environment, **command.environment})
    witness = KernelWitness.now()
    write_record(boot_folder, container)
    try:
        container_id = _started(speaking, argv, container.name, runner)
        container = replace(container, container_id=container_id)
        write_record(boot_folder, container)
        return _watched(docker, container, boot_folder, witness, is_inside)
    except BaseException as error:
        try:
            if not remove(docker, container.name, runner):
                error.add_note(f"The container {container.name} could not be removed.")
        except SparkproofError as second:
            error.add_note(f"Whether the container {container.name} is gone is not known: {second}")
        raise


def _record_before(run_id: str, port: int, memory_baseline_bytes: int | None) -> LaunchRecord:
    runner = read_stat(os.getpid())
    if runner is None:
        raise LaunchError("the process table cannot be read", where="/proc", todo="Mount /proc so that it shows our own processes.")
    return LaunchRecord(run_id, port, machine_boot_id(), runner.pid, runner.start_ticks, memory_baseline_bytes)


def runner_label(record: LaunchRecord) -> str:
    """`PID:START_TICKS:MACHINE_BOOT_ID` of the runner that a container belongs to."""
    return f"{record.runner_pid}:{record.runner_start_ticks}:{record.machine_boot_id}"


def _started(docker: Docker, argv: Sequence[str], name: str, runner: str) -> str:
    """The id of the container that `docker run` made. A container of this name that we made ourselves, and that is dead, is replaced."""
    for last in (False, True):
        finished = docker.ask(*argv[1:], timeout_s=300.0)
        if finished.returncode == 0:
            container_id = finished.output.strip().splitlines()[-1] if finished.output.strip() else ""
            if not re.fullmatch(r"[0-9a-f]{12,64}", container_id):
                raise InfrastructureError(f"`docker run` answered {plain(container_id, 80)!r} instead of an id.", todo="Check docker.")
            return container_id
        taken = any("already in use by container" in line for line in finished.messages)
        if finished.returncode is None:
            raise InfrastructureError("`docker run` did not end within 300 s.", todo="Check the docker daemon.")
        if not taken or last or not remove(docker, name, runner):
            break
    if taken:
        todo = f"`docker rm --force {name}` if it is not needed."
        raise LaunchError(f"a container named {name} exists and is not ours", todo=todo)
    raise explain("run", finished.messages)


def _watched(
    docker: Docker, container: ContainerRecord, folder: Path, witness: KernelWitness, is_inside: Callable[[int, str], bool]
) -> ContainerProcess:
    assert container.container_id is not None
    found = _json_of(docker.must("container", "inspect", "--format", "{{json .}}", container.name))
    state = found.get("State") or {}
    pid = state.get("Pid") if isinstance(state.get("Pid"), int) and state["Pid"] > 0 else None
    stat = read_stat(pid) if pid is not None else None
    record = container.launch
    if pid is not None and stat is not None:
        if not is_inside(pid, container.container_id):
            message = "the container's processes are not in this machine's process table."
            raise InfrastructureError(message, todo="Run Sparkproof on the node itself, not inside another container.")
        record = replace(record, pid=pid, start_ticks=stat.start_ticks)
    container = replace(container, launch=record)
    write_record(folder, container)
    follower = _follow(docker, container.name, record.run_id, folder / LOG_NAME)
    return ContainerProcess(record, folder, witness, follower, docker, container)


def _follow(docker: Docker, name: str, run_id: str, log_path: Path) -> subprocess.Popen[bytes]:
    """`docker logs --follow` into the log file; it ends by itself when the container does."""
    try:
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except FileExistsError as exists:
        raise LaunchError("there is a log already", where=str(log_path), todo="Give every boot a folder of its own.") from exists
    except OSError as error:
        raise LaunchError(f"cannot write: {error.strerror}", where=str(log_path), todo="Check disk and permissions.") from error
    try:
        return subprocess.Popen(
            [docker.program, "logs", "--follow", name],
            env={**docker.environment, MARK: run_id},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def remove(docker: Docker, container: str, runner: str | None = None) -> bool:
    """Remove a container (name or id), running or not, with its anonymous volumes; True once docker no longer knows it.

    With `runner`, only if that is what its label says. Raises in words if docker does not answer.
    """
    label = _label(docker, container)
    if label is None:
        return True
    if runner is not None and label != runner:
        return False
    docker.ask("rm", "--force", "--volumes", container, timeout_s=60.0)
    return _label(docker, container) is None


def _label(docker: Docker, container: str) -> str | None:
    """The runner that a container says it belongs to (empty: none); None if there is no such container."""
    finished = docker.ask("container", "inspect", "--format", f'{{{{index .Config.Labels "{RUNNER_LABEL}"}}}}', container)
    if finished.returncode == 0:
        return finished.output.strip()
    if any("no such container" in line.lower() for line in finished.messages):
        return None
    raise explain("container inspect", finished.messages)


def remaining(docker: Docker, condition: str) -> tuple[str, ...]:
    """Ids of containers, running or not, that match a `docker ps` filter. Raises in words if docker does not answer."""
    return tuple(docker.must("ps", "--all", "--no-trunc", "--filter", condition, "--format", "{{.ID}}").split())


def write_record(folder: Path, record: ContainerRecord) -> None:
    """Write `container.json` so that a reader sees the old or the new one."""
    draft = folder / f".{RECORD_NAME}.new"
    with draft.open("w") as file:
        json.dump(asdict(record), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / RECORD_NAME)


def read_record(folder: Path) -> ContainerRecord | None:
    """The record of a boot, None if no container was started in that folder. ValueError if the file is not one of ours."""
    path = folder / RECORD_NAME
    try:
        with path.open() as file:
            found = json.loads(file.read(_MOST_RECORD_BYTES))
    except FileNotFoundError:
        return None
    try:
        record = ContainerRecord(**{**found, "launch": LaunchRecord(**found["launch"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path}: not a record of a container: {error}") from error
    if (
        not isinstance(record.name, str)
        or record.name != f"sparkproof-{record.launch.run_id}"
        or not _RUN_ID.fullmatch(record.launch.run_id)
    ):
        raise ValueError(f"{path}: name or run id is not valid")
    return record


def _json_of(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InfrastructureError(f"docker's answer is not JSON: {plain(redact(text), 80)!r}.", todo="Check `docker version`.")
    return found
