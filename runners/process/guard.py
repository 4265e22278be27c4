"""End a boot whose log or disk passes its limit, at any phase.

Trap: the limit is passed while the runner waits for an answer, and nobody looks. Rule: the telemetry sampler calls the guard every
second; it kills the processes, so that the waiting request fails, and keeps the reason, so that the failure is ours and not the engine's.
"""

from __future__ import annotations

import signal

import psutil

from runners.process.log import LOG_LIMITS, LogLimits, log_trouble
from runners.process.members import send
from runners.process.server import ServerProcess


class LogGuard:
    """`trouble` is None until a limit was passed; then it says why the server was killed (an `infrastructure` outcome)."""

    def __init__(self, server: ServerProcess, limits: LogLimits = LOG_LIMITS) -> None:
        self._server = server
        self._limits = limits
        self.trouble: str | None = None

    def check(self) -> None:
        """Look once; kill once."""
        if self.trouble is not None:
            return
        self.trouble = log_trouble(self._server.log_path, self._limits)
        if self.trouble is None:
            return
        for process in self._server.members().alive:
            try:
                send(process, signal.SIGKILL)
            except psutil.AccessDenied:
                self.trouble += f"; pid {process.pid} may not be signalled"
