"""Servers that an earlier visit left running on request, and that would be measured beside.

Trap: `--keep-server` was for an hour of trying out; the next night's boots share memory and processor with it, and a release looks slower.
Rule: every start looks for the kept servers of its store, and refuses to measure beside one unless it is told to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from results.boot_folder import BootFolder, all_folders
from results.errors import FolderError
from results.store import Store
from runners.launchers import docker as containers
from runners.process.server import LaunchRecord, read_record
from runners.process.table import ProcessStat, machine_boot_id, read_stat


@dataclass(frozen=True)
class KeptServer:
    """A server of a finished boot that still runs; `end_by_hand` is the command that ends it."""

    run_id: str
    name: str
    pid: int
    port: int
    end_by_hand: str

    def sentence(self) -> str:
        """What it is, for a person."""
        return f"{self.name} of boot {self.run_id} (pid {self.pid}, port {self.port}) was left running with --keep-server"


def kept_servers(
    store: Store, boot_id: Callable[[], str] = machine_boot_id, stat: Callable[[int], ProcessStat | None] = read_stat
) -> list[KeptServer]:
    """The servers of this store's finished boots that still run. Call it after `end_stale_boots`: then no unfinished boot has one."""
    now = boot_id()
    return [kept for folder in all_folders(store.boots) if (kept := _kept(folder, now, stat)) is not None]


def _kept(folder: BootFolder, boot_id: str, stat: Callable[[int], ProcessStat | None]) -> KeptServer | None:
    found = _launched(folder.path)
    if found is None:
        return None
    launch, container = found
    if launch.machine_boot_id != boot_id or launch.pid is None:
        return None
    leader = stat(launch.pid)
    if leader is None or not leader.alive or leader.start_ticks != launch.start_ticks or not _is_finished(folder):
        return None
    end = f"docker rm --force {container}" if container is not None else f"kill -- -{launch.pid}"
    return KeptServer(folder.run_id, container or f"{leader.name}", launch.pid, launch.port, end)


def _launched(path: Path) -> tuple[LaunchRecord, str | None] | None:
    """How a boot's server was started, and its container's name if it has one."""
    try:
        container = containers.read_record(path)
        if container is not None:
            return container.launch, container.name
        launch = read_record(path)
    except (OSError, ValueError):
        return None  # `rebuild` names damaged folders
    return None if launch is None else (launch, None)


def _is_finished(folder: BootFolder) -> bool:
    try:
        return folder.summary().run.finished_at is not None
    except FolderError:
        return False
