"""Ctrl-C, SIGTERM and SIGHUP, in an orderly way.

Trap: the second Ctrl-C lands in the middle of teardown and leaves the server running; a hangup ends the runner without any teardown.
Rule: the first signal raises `Interrupted` once, in the main thread; any further one only sets `hurry`, which makes teardown kill at
once. Inside `held_back` (launch, teardown, commits) even the first one waits until the block is over.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user or the system wants us to stop. Like KeyboardInterrupt no Exception, so that no library swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


class Interrupts:
    """What was received so far."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._raised = False
        self._held = 0

    def hurry(self) -> bool:
        """Whether the user has asked twice: end hard, now."""
        return len(self.received) > 1

    def handle(self, number: int, frame: FrameType | None = None) -> None:
        """The signal handler."""
        self.received.append(number)
        self._raise_once()

    def _raise_once(self) -> None:
        if self.received and not self._raised and not self._held:
            self._raised = True
            raise Interrupted(self.received[0])

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Run a block to its end; a first signal that came meanwhile raises `Interrupted` afterwards."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._raise_once()


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Handle the three signals until the block ends, then put the previous handlers back. Main thread only.

    A signal that is ignored stays ignored (`nohup`, background jobs).
    """
    interrupts = Interrupts()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    try:
        for number in ours:
            signal.signal(number, interrupts.handle)
        yield interrupts
    finally:
        for number in ours:
            signal.signal(number, before[number] if before[number] is not None else signal.SIG_DFL)
