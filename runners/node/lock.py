"""One measuring runner per node.

Trap: a nightly run and a manual one measure beside each other, and both are wrong. Rule: whoever starts servers holds this lock; who
has to wait is told whom for. The kernel drops the lock when its holder dies, however it dies, and no server inherits it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from results.redact import plain, redact_argv
from runners.errors import InfrastructureError

MEASURING = "measuring"
"""`measuring.lock` is held, `measuring.json` says by whom."""
_POLL_S = 0.5


@dataclass(frozen=True)
class LockOwner:
    """Who measures: process number, since when (UTC, ISO 8601), and what was typed (secrets hidden)."""

    pid: int
    since: str
    command: tuple[str, ...]

    def __str__(self) -> str:
        return plain(f"pid {self.pid}, since {self.since}: {' '.join(self.command)}", 300)


class NodeBusy(InfrastructureError):
    """Somebody else still measures on this node. `owner` is None if they did not say who they are."""

    def __init__(self, owner: LockOwner | None, waited_s: float) -> None:
        who = owner or "an unknown process"
        super().__init__(f"another runner measures on this node ({who}); waited {waited_s:.0f} s.", todo="Wait for it, or end it.")
        self.owner = owner


def read_owner(state_dir: Path, name: str = MEASURING) -> LockOwner | None:
    """Who holds the lock, as they wrote it; None if that cannot be read."""
    try:
        with (state_dir / f"{name}.json").open() as file:
            found = json.loads(file.read(64 << 10))
        return LockOwner(int(found["pid"]), str(found["since"]), tuple(str(part) for part in found["command"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def node_lock(
    state_dir: Path,
    command: Sequence[str],
    *,
    wait_s: float | None = None,
    on_wait: Callable[[LockOwner | None], None] = lambda owner: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    name: str = MEASURING,
) -> Iterator[None]:
    """Hold the node for the block (or, by another `name`, something else of which there is one per node).

    Waits `wait_s` (None: as long as it takes); `on_wait` is called once, before waiting.

    Raises NodeBusy when waiting was in vain.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        todo = "Set XDG_STATE_HOME to a folder that can be written."
        raise InfrastructureError(f"the state folder cannot be made: {error.strerror}", where=str(state_dir), todo=todo) from error
    lock = FileLock(state_dir / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_wait(read_owner(state_dir, name))
        try:
            lock.acquire(timeout=-1 if wait_s is None else wait_s, poll_interval=_POLL_S)
        except Timeout as vain:
            raise NodeBusy(read_owner(state_dir, name), wait_s or 0.0) from vain
    owner = LockOwner(os.getpid(), now().isoformat(timespec="seconds"), redact_argv(command))
    try:
        (state_dir / f"{name}.json").write_text(json.dumps(asdict(owner)))
        yield
    finally:
        (state_dir / f"{name}.json").unlink(missing_ok=True)
        lock.release()
