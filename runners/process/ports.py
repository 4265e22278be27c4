"""Who listens on a port.

Trap: a health check was once answered by a neighbour's server, and vLLM sets SO_REUSEPORT, with which two servers share one port. Rule:
a port is ours only if every listener on it belongs to our processes; an owner that we may not see is not ours.
"""

from __future__ import annotations

import socket
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


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now. Somebody may take it before the server does; `wait_until_ready` finds that out."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def port_owner(port: int) -> Listeners:
    """Every process that listens on this port, on any address, over IPv4 or IPv6."""
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port]
    return Listeners(frozenset(c.pid for c in listening if c.pid is not None), any(c.pid is None for c in listening))
