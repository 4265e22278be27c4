"""A session's watcher that says nothing."""

from __future__ import annotations

from collections.abc import Sequence

from results.vocabulary import Phase
from runners.node.lock import LockOwner
from runners.pipeline import BootResult
from runners.plan import PlannedBoot
from runners.stale import StaleBoot


class SilentWatcher:
    """See `runners.session.Watcher`."""

    def waiting(self, owner: LockOwner | None) -> None:
        pass

    def stale(self, boots: Sequence[StaleBoot]) -> None:
        pass

    def boot(self, number: int, of: int, planned: PlannedBoot) -> None:
        pass

    def phase(self, phase: Phase, detail: str) -> None:
        pass

    def done(self, result: BootResult) -> None:
        pass
