"""Which Python an engine's environment is made with.

Trap: an engine is tied to the Python that runs us, and a release without a wheel for that one is called broken. Rule: every Python found
that the recipe allows is a candidate, our own first, then the newest; one that uv may download comes last.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from runners.envs.command import run_command

_DOWNLOADABLE = ("3.12", "3.13", "3.11", "3.10")
"""Minor versions in the order in which one would be downloaded: 3.12 is what DGX OS carries and most wheels exist for."""


@dataclass(frozen=True)
class Candidate:
    """`version` is `3.12` or `3.12.1`; `request` is what uv is given: a path, or a version that it may download."""

    version: str
    request: str

    @property
    def tag(self) -> str:
        """The wheel tag of this Python, e.g. `cp312`."""
        major, minor = self.version.split(".")[:2]
        return f"cp{major}{minor}"


def choose(installed: Iterable[Candidate], allowed: SpecifierSet) -> tuple[Candidate, ...]:
    """Candidates in the order of trying, one per minor version. `installed` starts with our own Python."""
    fitting = [c for c in installed if allowed.contains(Version(c.version), prereleases=False)]
    ordered = fitting[:1] + sorted(fitting[1:], key=lambda c: Version(c.version), reverse=True)
    by_tag: dict[str, Candidate] = {}
    for candidate in ordered:
        by_tag.setdefault(candidate.tag, candidate)
    downloadable = [Candidate(v, v) for v in _DOWNLOADABLE if allowed.contains(Version(v))]
    absent = [c for c in downloadable if c.tag not in by_tag]
    return (*by_tag.values(), *absent[:1])


def parse_python_list(listing: str) -> tuple[Candidate, ...]:
    """Read `uv python list --only-installed --output-format json`; anything but a default CPython is left out."""
    found = []
    for entry in json.loads(listing):
        usable = entry.get("implementation") == "cpython" and entry.get("variant", "default") == "default" and entry.get("path")
        try:
            version = Version(str(entry.get("version")))
        except InvalidVersion:
            continue
        if usable and not version.is_prerelease:
            found.append(Candidate(str(version), str(entry["path"])))
    return tuple(found)


def installed_pythons(uv: Path) -> tuple[Candidate, ...]:
    """Our own Python (outside its virtual environment), then every other one that uv finds."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = Candidate(".".join(map(str, sys.version_info[:3])), str(base if base.exists() else sys.executable))
    command = [str(uv), "python", "list", "--only-installed", "--no-python-downloads", "--output-format", "json"]
    done = run_command(command, environment=os.environ, folder=Path("/"), timeout_s=60)
    return (own, *(parse_python_list(done.output) if done.returncode == 0 else ()))
