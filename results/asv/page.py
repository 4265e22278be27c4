"""The page: made by `asv publish`, shown by asv-tachyon's page, which brings its scripts along.

Traps: the stock page of asv loads its scripts from content networks, so it is empty offline; `asv preview` listens on every interface.
Rule: the page's own files replace the stock ones after every publish, and the preview listens on loopback only.
"""

from __future__ import annotations

import functools
import http.server
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from results.errors import StoreError

_TIMEOUT_S = 900
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Published:
    """Where the page is, and whether it works offline (asv-tachyon is installed)."""

    html: Path
    offline: bool


def publish(folder: Path) -> Published:
    """Run `asv publish` on an exported folder and put the page in place. Raises StoreError with what asv said."""
    if not (folder / "asv.conf.json").exists():
        raise StoreError("no export here", where=str(folder), todo="Make one: sparkproof asv export --to DIR")
    _run(folder, "asv", "publish", "--no-pull")
    offline = find_spec("asv_tachyon") is not None
    if offline:
        _run(folder, "asv_tachyon", "install", "html", "--no-backup")
    return Published(folder / "html", offline)


def page_server(html: Path, port: int) -> http.server.ThreadingHTTPServer:
    """A server of the page on loopback (port 0: any free one), not yet serving. Raises StoreError if the port is taken."""
    handler = functools.partial(_Quiet, directory=str(html))
    try:
        return http.server.ThreadingHTTPServer((_LOOPBACK, port), handler)
    except OSError as error:
        raise StoreError(f"port {port} cannot be used: {error.strerror}", where=_LOOPBACK, todo="Give another one: --port 0") from error


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: standard error belongs to the command."""


def _run(folder: Path, module: str, *arguments: str) -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"{module} could not be run: {error}", where=str(folder)) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise StoreError(f"{module} {arguments[0]} failed: {said[-1][:300] if said else 'no message'}", where=str(folder))
