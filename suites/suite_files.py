"""Suites: which recipes, backends and workloads one run measures, how often. One TOML file each in this folder, or any path of a user's.

Trap: a nightly suite with a typo measures the wrong thing until somebody looks. Rule: every field is checked when the file is read, and an
error names the line. `docs/suites.md` describes the fields.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from suites.errors import SuiteError
from suites.toml_files import SuiteModel, read_toml
from suites.workloads import STANDARD_WORKLOADS, Workload

_HERE = Path(__file__).parent


class BackendChoice(SuiteModel):
    """Backends by kind of node: a CPU node runs other kernels than a CUDA node."""

    cpu: tuple[str, ...] = ("eager",)
    cuda: tuple[str, ...] = ("default",)


class NightlyChoice(SuiteModel):
    """What `sparkproof nightly` does with a suite besides measuring its cells."""

    engines: tuple[str, ...] = Field(default=("vllm", "sglang"), min_length=1)
    """Engines whose releases are looked for on the configured index."""
    releases: int = Field(default=3, ge=1, le=50)
    """How many of the newest stable releases of each engine are to be measured."""
    prereleases: bool = False
    """Whether pre-releases count as releases."""
    also: tuple[str, ...] = ()
    """Engine specs measured besides, such as `vllm==0.32.0@docker` or an image of a nightly build."""
    anchor: str | None = None
    """The pinned release, such as `vllm==0.31.0`, booted once in every session on the suite's first canary."""
    self_check_days: int = Field(default=30, ge=1, le=366)
    """How often the anchor is measured twice under two names, for our own false-alarm rate."""
    confirm: bool = True
    """Whether what failed once or moved is booted again, both releases in turns, until it is decided."""
    environments_gb: float = Field(default=100.0, gt=0)
    """Disk that engine environments may take before the least recently used ones go, in GB (10^9 bytes)."""

    @field_validator("anchor")
    @classmethod
    def _is_pinned(cls, anchor: str | None) -> str | None:
        if anchor is not None and not re.fullmatch(r"[a-z]{1,20}==[0-9][^@\s]{0,40}", anchor):
            raise ValueError(f"{anchor!r} is no pinned release; expected something like 'vllm==0.31.0'")
        return anchor


class Suite(SuiteModel):
    """One suite file."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")
    description: str = ""
    recipes: tuple[str, ...] = Field(min_length=1)
    backends: BackendChoice = BackendChoice()
    boots: int = Field(default=1, ge=1, le=20)
    workloads: tuple[Workload, ...] = Field(default=STANDARD_WORKLOADS, min_length=1)
    context: tuple[Annotated[int, Field(ge=256, le=1_048_576)], ...] = ()
    """Depths at which recall is tried after timing, in tokens, as far as the server's context reaches; empty: not at all."""
    nightly: NightlyChoice = NightlyChoice()


def suite_for(name_or_path: str) -> Suite:
    """The suite called so, or read from a path. Raises SuiteError naming file and line, or the suites that exist."""
    path = Path(name_or_path).expanduser()
    if path.suffix == ".toml":
        if not path.exists():
            raise SuiteError("there is no such suite file.", where=str(path), todo=f"Shipped suites: {', '.join(_shipped())}.")
        return read_toml(path, Suite)
    known = _shipped()
    if name_or_path not in known:
        close = get_close_matches(name_or_path, known, n=3) or sorted(known)
        raise SuiteError(f"unknown suite {name_or_path[:80]!r}.", todo=f"Known: {', '.join(close)}; or give the path of a .toml file.")
    return read_toml(known[name_or_path], Suite)


def _shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(_HERE.glob("*.toml"))}
