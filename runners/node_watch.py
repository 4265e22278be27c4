"""What is watched of the node around one boot: its health before and after, and the kernel's log meanwhile.

Trap: a boot on a sick node looks like a regression of the engine, and the sign of it is only looked for when somebody asks. Rule: every
timed boot has a health row before its server starts and one after it is gone; what they say is part of the boot's warnings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from results.records import HealthRecord, KernelMessageRecord, ResourceRecord
from results.vocabulary import Phase
from runners.boot import Boot
from runners.node import health
from runners.node.checkup import AFTER, BEFORE, Checkup
from runners.node.kernel_log import MOST_LINES, KernelTail, journal_lines

_MOST_TIMED = 7_200


@dataclass
class NodeWatch:
    """The watch over one boot. `void` says why its numbers do not count (None: they do, as far as the node can tell)."""

    boot: Boot
    checkup: Checkup | None
    tail: KernelTail = field(default_factory=KernelTail)
    clock: Callable[[], float] = time.time
    void: str | None = None
    _timed: list[ResourceRecord] = field(default_factory=list)
    _lines: int = 0
    _began: float = 0.0

    def __post_init__(self) -> None:
        self._began = self.clock()

    def before(self) -> None:
        """Look at the node once the environment is there and nothing runs yet."""
        if self.checkup is not None:
            self.boot.progress("looking at the node's health")
            self._keep(self.checkup.look(self._run_id, BEFORE, self._python, probe=self._probes))

    def sample(self, record: ResourceRecord) -> None:
        """Take one telemetry sample along; called once a second, so it must be cheap."""
        if record.phase is Phase.THROUGHPUT and len(self._timed) < _MOST_TIMED:
            self._timed.append(record)
        for line in self.tail.new_lines():
            self._tell(line, record.elapsed_s)

    def after(self) -> None:
        """Look again once the server is gone."""
        if self.checkup is None:
            return
        if not self.tail.readable:
            for kernel in journal_lines(self._began):
                self._tell(kernel.line, max(0.0, (kernel.epoch_s or self.clock()) - self._began))
        self._keep(self.checkup.look(self._run_id, AFTER, self._python, probe=self._probes, timed=self._timed))

    def close(self) -> None:
        """Stop following the kernel's log."""
        self.tail.close()

    @property
    def _run_id(self) -> str:
        return self.boot.recorder.run.run_id

    @property
    def _python(self) -> Path | None:
        return self.boot.environment.python if self.boot.environment is not None else None

    @property
    def _probes(self) -> bool:
        """An endpoint's server is at work: a probe would disturb it and be disturbed by it."""
        return self.boot.cell.spec.distribution != "endpoint"

    def _keep(self, record: HealthRecord) -> None:
        self.boot.recorder.append([record])
        if record.verdict == health.VOID:
            self.void = self.void or f"{record.moment} the boot: {record.reasons[0]}"
        if record.verdict in (health.VOID, health.SUSPECT):
            self.boot.recorder.warn(f"the node is {record.verdict} {record.moment} the boot: {'; '.join(record.reasons)}")

    def _tell(self, line: str, elapsed_s: float) -> None:
        if self._lines < MOST_LINES:
            self._lines += 1
            self.boot.recorder.append([KernelMessageRecord(self._run_id, elapsed_s, line)])
