"""Timed work before everybody else's, for a comparison on a machine that is not quiet.

Trap: on a busy machine every client is late by whatever else runs, and a table compares luck. Rule: with `--realtime` each client, ours and
the peers', runs before ordinary processes while it times; what comes before (imports, prompts, tokenizers) runs like everything else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

_LOOK_S = 0.05
_WAIT_S = 120.0


def raise_this_process() -> bool:
    """Run this process, not its children, before ordinary ones; False where that is not allowed."""
    return _raise(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK)


@contextmanager
def raised_once(begun: Callable[[], bool], process: int) -> Iterator[None]:
    """Inside the block: as soon as `begun` says that streams are asked for (warm-up), every thread below `process` is raised."""
    stop = threading.Event()

    def watch() -> None:
        for _ in range(int(_WAIT_S / _LOOK_S)):
            if stop.wait(_LOOK_S):
                return
            if begun():
                for thread in _threads(process):
                    _raise(thread, os.SCHED_RR)
                return

    watcher = threading.Thread(target=watch, name="raise", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _threads(process: int) -> list[int]:
    """Ids of all threads of a process and its descendants that live now."""
    try:
        top = psutil.Process(process)
        return [thread.id for one in (top, *top.children(recursive=True)) for thread in one.threads()]
    except psutil.Error:
        return []


def _raise(thread: int, policy: int) -> bool:
    try:
        os.sched_setscheduler(thread, policy, os.sched_param(1))
    except OSError:
        return False
    return True
