"""What an earlier runner left behind: boots without an outcome, and servers without a runner.

Trap: after `kill -9` or a power cut a server keeps the memory, and its boot looks as if it were still running, or, if the runner died while
it ended the server, as if all were done. Rule: every start looks for boots that were not finished whose runner is gone, ends exactly their
processes and containers, and files those without an outcome as `interrupted`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from results.boot_folder import BootFolder, all_folders
from results.errors import FolderError
from results.records import RunRecord
from results.store import Store
from results.vocabulary import Outcome
from runners.launchers import docker_server
from runners.launchers.docker_cli import Docker
from runners.process.teardown import TeardownProof, end_orphans
from runners.recorder import utc_now


def end_boot(folder: BootFolder, docker: Docker | None = None) -> TeardownProof:
    """End what was started for one boot: its container if it had one, else its processes."""
    container = docker_server.end_orphan(docker or Docker(), folder.path)
    return container if container is not None else end_orphans(folder.path)


def end_stray_containers(store: Store, docker: Docker) -> list[StaleBoot]:
    """Remove containers of ours whose runner is gone, even if their boot's folder is gone too; after `end_stale_boots`.

    A boot that this store knows as ended keeps its container: it was left running on request. Raises in words if docker does not answer.
    """
    found = []
    for orphan, gone in docker_server.end_orphans(docker, spare=lambda run_id: _is_finished(store, run_id)):
        name = f"container {orphan.container_id[:12]}"
        reason = f"the {name} is removed, memory is not judged" if gone else f"the {name} is still there"
        found.append(StaleBoot(orphan.run_id, TeardownProof(gone, 0.0, False, (), None, reason)))
    return found


def _is_finished(store: Store, run_id: str) -> bool:
    try:
        return BootFolder(store.boots, run_id).summary().run.finished_at is not None
    except FolderError:
        return False


@dataclass(frozen=True)
class StaleBoot:
    """One boot that was found unfinished, and what became of its processes."""

    run_id: str
    proof: TeardownProof


def end_stale_boots(store: Store, end: Callable[[BootFolder], TeardownProof] | None = None) -> list[StaleBoot]:
    """File every unfinished boot as interrupted and end its orphans. Call it under the node's lock: then no other runner lives.

    A boot whose processes could not be proven gone stays as it is, so that the next start tries again.
    """
    found: list[StaleBoot] = []
    for folder in all_folders(store.boots):
        try:
            summary = folder.summary()
        except FolderError:
            continue  # `rebuild` names damaged folders
        if summary.run.finished_at is not None:
            continue
        proof = (end or end_boot)(folder)
        found.append(StaleBoot(folder.run_id, proof))
        if proof.clean:
            folder.write_summary(dataclasses.replace(summary, run=_filed(summary.run, proof)))
    return found


def _filed(run: RunRecord, proof: TeardownProof) -> RunRecord:
    """The final row: an outcome that was known before the runner died stands."""
    if run.outcome is not None:
        said = f"the runner ended before it had cleaned up; {proof.reason}"
        return dataclasses.replace(run, warnings=(*run.warnings, said), finished_at=utc_now())
    reason = f"the runner ended without finishing this boot (phase {run.phase}); {proof.reason}"
    return dataclasses.replace(run, outcome=Outcome.INTERRUPTED, reason=reason, finished_at=utc_now())
