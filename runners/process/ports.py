"""Who listens on a port.

Trap: a health check was once answered by a neighbour's server, and vLLM sets SO_REUSEPORT, with which two servers share one port. Rule:
a port is ours only if every listener on it belongs to our processes; an owner that we may not see is not ours.
"""

from __future__ import annotations

import errno
import random
import socket
from contextlib import suppress
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Listeners:
    """Who listens on one TCP port. `hidden`: also a process of another user, whose number we may not see."""

    pids: frozenset[int] = frozenset()
    hidden: bool = False

    @property
    def any(self) -> bool:
        """Whether anybody listens at all."""
        return bool(self.pids) or self.hidden


LOWEST_PORT, HIGHEST_PORT = 32_768, 55_535
"""SGLang 0.5.14 and 0.5.15.post1 end at once unless their port + 10,000 is a port too; of a fifth of those that Linux gives it is not."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now. Somebody may take it before the server does; `wait_until_ready` finds that out. Raises OSError."""
    candidates = range(LOWEST_PORT, HIGHEST_PORT + 1)
    for port in random.sample(candidates, len(candidates)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    raise OSError(errno.EADDRINUSE, f"no port from {LOWEST_PORT} to {HIGHEST_PORT} is free", host)


def port_owner(port: int) -> Listeners:
    """Every process that listens on this port, on any address, over IPv4 or IPv6."""
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port]
    return Listeners(frozenset(c.pid for c in listening if c.pid is not None), any(c.pid is None for c in listening))
