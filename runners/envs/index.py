"""Which versions of a package the configured index has.

Trap: a program with an index's host in its code ignores the user's mirror, and a mistyped version fails twenty minutes later. Rule: pip is
asked, with the user's configuration, and a wrong name or version is refused at once with the nearest ones that exist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from packaging.version import InvalidVersion, Version

from results.redact import plain, redact
from runners.envs.command import Finished, run_command
from runners.envs.pip_settings import pip_command
from runners.errors import InfrastructureError

_TIMEOUT_S = 180.0
_AVAILABLE = re.compile(r"^Available versions:(.*)$", re.MULTILINE)
_NO_ANSWER = re.compile(
    r"(?i)retrying|not a trusted or secure host|connection|timed? ?out|could not fetch|ssl|certificate|proxy|name or service|"
    r"http error|\b(?:401|403|407|5\d\d)\b"
)


def ask_pip(distribution: str) -> Finished:
    """Run `pip index versions` for a distribution, as the user has configured pip.

    At least one retry: pip 23.2.1 reports a failed connection only when it retries, and otherwise says just "no matching distribution".
    """
    command = pip_command("index", "versions", "--retries", "2", distribution)
    return run_command(command, environment=os.environ, folder=Path.cwd(), timeout_s=_TIMEOUT_S)


def list_versions(distribution: str, ask: Callable[[str], Finished] = ask_pip) -> tuple[Version, ...]:
    """Final versions of `distribution` that fit this machine and Python, newest first; empty if the index does not know it.

    Raises InfrastructureError if the index cannot be reached.
    """
    done = ask(distribution)
    listed = _AVAILABLE.search(done.output)
    if done.returncode == 0 and listed:
        return tuple(sorted(_versions(listed.group(1)), reverse=True))
    if done.returncode is None:
        raise _unreachable(f"the package index did not answer within {_TIMEOUT_S:.0f} s")
    troubles = [line for line in done.messages if _NO_ANSWER.search(line)]
    if troubles:
        raise _unreachable(f"the package index cannot be reached: {plain(redact(troubles[0]), 300)}")
    if any("No matching distribution" in line for line in done.messages):
        return ()
    last = plain(redact(done.messages[-1]), 300) if done.messages else "no message"
    raise _unreachable(f"pip could not list the versions of {distribution}: {last}")


def nearest_versions(wanted: str, available: Sequence[Version], n: int = 5) -> tuple[Version, ...]:
    """The `n` existing versions nearest to `wanted`, newest first: its neighbours in order, or the most alike for what is no version."""
    try:
        version = Version(wanted)
    except InvalidVersion:
        alike = sorted(available, key=lambda v: SequenceMatcher(None, str(v), wanted).ratio(), reverse=True)
        return tuple(sorted(alike[:n], reverse=True))
    ordered = sorted(available)
    place = sum(v < version for v in ordered)
    start = max(0, min(place - (n + 1) // 2, len(ordered) - n))
    return tuple(reversed(ordered[start : start + n]))


def _versions(text: str) -> list[Version]:
    found = []
    for part in text.split(","):
        try:
            found.append(Version(part.strip()))
        except InvalidVersion:
            continue
    return found


def _unreachable(message: str) -> InfrastructureError:
    return InfrastructureError(
        message + ".",
        where="pip index versions",
        todo="Check index-url, trusted-host, proxy and cert in `python -m pip config list`, or the network.",
    )
