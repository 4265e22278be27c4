"""Install the next environment while the present boot is measured, at the lowest priority. Off unless asked for.

Trap: the night waits ten minutes for each install, so somebody installs beside the measuring, and every rate of that boot is wrong. Rule:
it is done only on request (`benchmarks/install_beside` measures what it costs), by a process of its own that is idle whenever anything
else wants the processor or the disk, one at a time, and that is gone when the night is.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from runners.envs.environment import ensure
from runners.errors import SparkproofError
from runners.plan import Cell
from runners.spec import EngineSpec

_PATIENCE_S = 10.0


def lowest_priority() -> None:
    """Make this process, and what it starts, wait for everybody else: niceness 19, idle I/O class (Linux only)."""
    me = psutil.Process()
    me.nice(19)
    me.ionice(psutil.IOPRIO_CLASS_IDLE)


def command_for(spec: EngineSpec, cache_root: Path, *, has_cuda: bool) -> tuple[str, ...]:
    """The command that installs one environment."""
    return (sys.executable, "-m", "runners.nightly.install_ahead", str(spec), str(cache_root), *(["--cuda"] if has_cuda else []))


class InstallAhead:
    """One install at a time, in a process group of its own. Use as a context manager: whatever still runs is ended with it."""

    def __init__(
        self, cache_root: Path, *, has_cuda: bool, start: Callable[[Sequence[str]], subprocess.Popen[bytes]] | None = None
    ) -> None:
        self._cache_root, self._has_cuda, self._start = cache_root, has_cuda, start or _start
        self._running: subprocess.Popen[bytes] | None = None
        self._asked: set[str] = set()

    def __enter__(self) -> InstallAhead:
        return self

    def __exit__(self, *_: object) -> None:
        running, self._running = self._running, None
        if running is None or running.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(running.pid, number)
            try:
                running.wait(_PATIENCE_S)
                return
            except subprocess.TimeoutExpired:
                continue

    def next(self, cell: Cell | None) -> None:
        """Begin with the environment of `cell`, unless one is being made, it was asked for before, or it needs none."""
        busy = self._running is not None and self._running.poll() is None
        if cell is None or busy or cell.spec.distribution != "venv" or str(cell.spec) in self._asked:
            return
        self._asked.add(str(cell.spec))
        self._running = self._start(command_for(cell.spec, self._cache_root, has_cuda=self._has_cuda))


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(list(command), stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def main() -> None:
    """Install one environment; a failure is left to the boot that needs it, which says why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spec")
    parser.add_argument("cache_root", type=Path)
    parser.add_argument("--cuda", action="store_true")
    options = parser.parse_args()
    lowest_priority()
    try:
        ensure(EngineSpec.parse(options.spec), has_cuda=options.cuda, progress=lambda line: None, cache_root=options.cache_root)
    except SparkproofError:
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
