"""Suites: which recipes, backends and workloads one run measures, how often. One TOML file each in this folder, or any path of a user's."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from pydantic import Field

from suites.errors import SuiteError
from suites.toml_files import SuiteModel, read_toml
from suites.workloads import STANDARD_WORKLOADS, Workload

_HERE = Path(__file__).parent


class BackendChoice(SuiteModel):
    """Backends by kind of node: a CPU node runs other kernels than a CUDA node."""

    cpu: tuple[str, ...] = ("eager",)
    cuda: tuple[str, ...] = ("default",)


class Suite(SuiteModel):
    """One suite file."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")
    description: str = ""
    recipes: tuple[str, ...] = Field(min_length=1)
    backends: BackendChoice = BackendChoice()
    boots: int = Field(default=1, ge=1, le=20)
    workloads: tuple[Workload, ...] = Field(default=STANDARD_WORKLOADS, min_length=1)


def suite_for(name_or_path: str) -> Suite:
    """The suite called so, or read from a path. Raises SuiteError naming file and line, or the suites that exist."""
    path = Path(name_or_path).expanduser()
    if path.suffix == ".toml":
        return read_toml(path, Suite)
    known = {p.stem: p for p in sorted(_HERE.glob("*.toml"))}
    if name_or_path not in known:
        close = get_close_matches(name_or_path, known, n=3) or sorted(known)
        raise SuiteError(f"unknown suite {name_or_path[:80]!r}.", todo=f"Known: {', '.join(close)}; or give the path of a .toml file.")
    return read_toml(known[name_or_path], Suite)
