"""The generated repository: one branch per engine, one commit and one tag per release.

Trap: a user's git configuration (hooks, signing, default branch) or a date of today ends up in the commits, and two exports differ. Rule:
the whole repository is one `git fast-import` stream with every name and date in it, fed to a git that reads no configuration; equal
histories give equal commit hashes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

from results.asv.shape import Release
from results.errors import StoreError

_AUTHOR = "Sparkproof <sparkproof@invalid>"
_TIMEOUT_S = 120


def import_stream(releases: Sequence[Release]) -> bytes:
    """The input of `git fast-import`: releases must be in order within each engine. The branches have no common history."""
    parts: list[bytes] = []
    for number, release in enumerate(releases, start=1):
        seconds = int(release.date.timestamp())
        when = release.date.astimezone(UTC).date().isoformat()
        known = f"Published {when}." if release.published else f"First booted here {when}; its publication date is not known."
        message = f"{release.engine} {release.version}\n\n{known}\n".encode()
        content = f"{release.engine} {release.version}\n".encode()
        earlier = [n for n, other in enumerate(releases[: number - 1], start=1) if other.engine == release.engine]
        parts += [
            f"commit refs/heads/{release.engine}\nmark :{number}\n".encode(),
            f"author {_AUTHOR} {seconds} +0000\ncommitter {_AUTHOR} {seconds} +0000\n".encode(),
            b"data %d\n%s\n" % (len(message), message),
            f"from :{earlier[-1]}\n".encode() if earlier else b"",
            b"M 100644 inline RELEASE\ndata %d\n%s\n" % (len(content), content),
            f"reset refs/tags/{release.tag}\nfrom :{number}\n\n".encode(),
        ]
    return b"".join([*parts, b"done\n"])


def make_repository(folder: Path, releases: Sequence[Release]) -> dict[str, str]:
    """Make the bare repository in `folder`, which must not exist. Returns the commit of every tag. Raises StoreError."""
    _git(folder.parent, "init", "--quiet", "--bare", "--template=", str(folder))
    _git(folder, "fast-import", "--quiet", "--done", stdin=import_stream(releases))
    if releases:
        _git(folder, "symbolic-ref", "HEAD", f"refs/heads/{releases[0].engine}")
    listed = _git(folder, "for-each-ref", "--format=%(refname:strip=2) %(objectname)", "refs/tags")
    return dict(line.split(" ", 1) for line in listed.splitlines())


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> str:
    keep = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**keep, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, input=stdin, env=environment, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise StoreError("git is not installed", where="git", todo="Install git; asv needs it, too.") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"git could not be run: {error}", where="git") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise StoreError(f"git {arguments[0]} failed: {said[-1][:300] if said else 'no message'}", where=str(folder))
    return done.stdout.decode(errors="replace")
