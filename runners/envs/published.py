"""When a release was published, as the configured index says.

Trap: the order of a history is taken from when somebody happened to boot a release, or an index's host is written into the code. Rule: uv
is asked with the user's pip configuration; its lock file (PEP 751) carries the upload times that the index gives (PEP 700). An index that
gives none, or none at all, leaves the date unknown; what is known is kept, because it never changes.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from runners.envs.command import run_command
from runners.envs.pip_settings import for_uv, read_pip_settings

_TIMEOUT_S = 60.0
_MOST_FAILURES = 2
"""Releases in a row without an answer after which the index is not asked any more."""

Ask = Callable[[str, str], str | None]
"""From package and version to the text of a lock file; None: no answer."""


def publication_dates(releases: Iterable[tuple[str, str]], kept: Path, ask: Ask | None = None) -> dict[tuple[str, str], datetime]:
    """Dates of those releases (package, version) that can be known. `kept`: a JSON file of what was asked before."""
    known = _read(kept)
    found: dict[tuple[str, str], datetime] = {}
    failures, asked = 0, ask
    for package, version in releases:
        key = f"{package}=={version}"
        if key not in known and failures < _MOST_FAILURES:
            asked = asked or asker()
            lock = asked(package, version)
            failures = failures + 1 if lock is None else 0
            date = uploaded_at(lock) if lock is not None else None
            if date is not None:
                known[key] = date.isoformat()
        if key in known:
            found[package, version] = datetime.fromisoformat(known[key])
    _write(kept, known)
    return found


def uploaded_at(lock: str) -> datetime | None:
    """The earliest upload time of any file in a lock file (PEP 751) of one package; None if it names none."""
    try:
        packages = tomllib.loads(lock).get("packages", [])
    except tomllib.TOMLDecodeError:
        return None
    files: list[Mapping[str, Any]] = []
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict):
            files += [file for file in (package.get("sdist"), *package.get("wheels", ())) if isinstance(file, dict)]
    times = [time for file in files if isinstance(time := file.get("upload-time"), datetime)]
    return min((time if time.tzinfo else time.replace(tzinfo=UTC) for time in times), default=None)


def asker() -> Ask:
    """Asks uv, under the pip configuration as it is now. Raises InfrastructureError if pip cannot be run."""
    settings = for_uv(read_pip_settings(), os.environ)
    uv = find_uv_bin()

    def ask(package: str, version: str) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            wanted, lock = Path(folder) / "wanted.in", Path(folder) / "pylock.toml"
            wanted.write_text(f"{package}=={version}\n")
            command = [
                uv,
                "pip",
                "compile",
                "--quiet",
                "--no-deps",
                "--format",
                "pylock.toml",
                "-o",
                str(lock),
                *settings.options,
                str(wanted),
            ]
            done = run_command(command, environment={**os.environ, **settings.environment}, folder=Path(folder), timeout_s=_TIMEOUT_S)
            return lock.read_text(encoding="utf-8") if done.returncode == 0 and lock.exists() else None

    return ask


def _read(kept: Path) -> dict[str, str]:
    """What was kept; a file that cannot be read is as good as none."""
    try:
        data = json.loads(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    dates: dict[str, str] = {}
    for key, value in data.items() if isinstance(data, dict) else ():
        try:
            dates[str(key)] = datetime.fromisoformat(value).isoformat()
        except (TypeError, ValueError):
            continue
    return dates


def _write(kept: Path, known: Mapping[str, str]) -> None:
    if known != _read(kept):
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_name(f".{kept.name}.{os.getpid()}")
        temporary.write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
        temporary.replace(kept)
