"""Progress of a session on standard error: a live line on a terminal, one plain line per phase elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from results.vocabulary import Outcome, Phase, Purpose
from runners.cli.shell import err, shown
from runners.node.lock import LockOwner
from runners.pipeline import BootResult
from runners.plan import PlannedBoot
from runners.stale import StaleBoot


class SessionProgress:
    """Shows one bar over all boots and the phase of the present one. Use as a context manager.

    `open_ended`: each boot is chosen after the one before, so that nobody knows how many there will be.
    """

    def __init__(self, *, open_ended: bool = False) -> None:
        self._open_ended = open_ended
        self._live = err.is_terminal
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[cell]}", style="bold", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[phase]}"),
            TextColumn("{task.fields[detail]}", style="dim", markup=False),
            TimeElapsedColumn(),
            console=err,
            transient=True,
        )
        self._task: TaskID | None = None
        self._label = ""
        self._phase: Phase | None = None
        self._since = time.monotonic()

    def __enter__(self) -> SessionProgress:
        if self._live:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bar.stop()

    def waiting(self, owner: LockOwner | None) -> None:
        """Another runner measures on this node."""
        who = f"pid {owner.pid} since {owner.since}: {' '.join(owner.command)}" if owner else "another process"
        self._line(f"waiting for the runner that measures on this node ({who})")

    def stale(self, boots: Sequence[StaleBoot]) -> None:
        """Unfinished boots of earlier runners were cleaned up."""
        for boot in boots:
            self._line(f"unfinished boot {boot.run_id} of an earlier runner: {boot.proof.reason}")

    def boot(self, number: int, of: int, planned: PlannedBoot) -> None:
        """A boot begins."""
        cell = planned.cell
        count = f" boot {planned.number}/{planned.of}" if planned.of > 1 else ""
        why = "" if planned.purpose is Purpose.MEASURE else f" ({planned.purpose.replace('_', '-')})"
        self._label = f"{cell.spec.name} {cell.spec.version or ''} {cell.recipe.name} {cell.backend.name}{count}{why}"
        total = None if self._open_ended else of
        place = f"{number}" if self._open_ended else f"{number}/{of}"
        if self._live and self._task is None:
            self._task = self._bar.add_task("", total=total, cell="", phase="", detail="", count="")
        if self._live and self._task is not None:
            self._bar.update(self._task, total=total, completed=number - 1, cell=shown(self._label), count=place)
        else:
            self._line(f"[{place}] {self._label}")
        self._phase = None

    def phase(self, phase: Phase, detail: str) -> None:
        """A phase begins, or says what it is doing."""
        if self._live and self._task is not None:
            self._bar.update(self._task, phase=str(phase), detail=shown(detail, 90).replace("\n", " "))
        elif phase != self._phase:
            self._phase_line()
            self._since = time.monotonic()
        if not self._live and detail and phase is Phase.INSTALL:  # the one phase that can take many minutes with news to tell
            self._line(f"      {detail}")
        self._phase = phase

    def done(self, result: BootResult) -> None:
        """A boot has ended."""
        if not self._live:
            self._phase_line()
        run = result.run
        style = "green" if run.outcome is Outcome.PASS else "red"
        reason = f": {shown(run.reason, 400)}" if run.reason else ""
        err.print(Text.assemble((str(run.outcome), style), f" {shown(self._label)}{reason}"))
        if result.kept:
            self._line(f"left running at {result.kept}, as asked; stop it with: {result.kept_end}")
        if result.unstored:
            self._line(f"not in the database yet: {result.unstored}")
        if result.unsafe:
            self._line(f"stopping here, the node is not clean: {result.unsafe}")

    def _phase_line(self) -> None:
        if self._phase is not None:
            self._line(f"    {self._phase} {time.monotonic() - self._since:.1f} s")

    def _line(self, text: str) -> None:
        err.print(shown(text, 1_000), markup=False)
