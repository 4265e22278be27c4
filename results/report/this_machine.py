"""What this machine and its user are called, so that a report can leave it out."""

from __future__ import annotations

import getpass
import os
import platform
import socket
from pathlib import Path

from results.report.anonymous import Identity


def this_machine() -> Identity:
    """Names of this machine, of the present user, and the user's home folder. What cannot be found out is left out."""
    try:
        users = {getpass.getuser()}
    except (KeyError, OSError):
        users = set()
    users |= {value for name in ("USER", "LOGNAME", "SUDO_USER") if (value := os.environ.get(name))}
    try:
        homes = {str(Path.home())}
    except RuntimeError:
        homes = set()
    return Identity(frozenset(name for name in (socket.gethostname(), platform.node()) if name), frozenset(users), frozenset(homes))
