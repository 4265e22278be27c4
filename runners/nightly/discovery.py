"""Which releases exist that this node could measure.

Trap: the newest release on the index has no wheel for this kind of node, and the night is spent on failing installs; or one engine's index
is down and nothing at all is measured. Rule: a release counts only if a recipe installs it here and its distribution is on the configured
index; what is passed over is said with the reason, and one engine's trouble is not another's.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from runners.engines.registry import check_engine
from runners.envs.command import Finished, run_command
from runners.envs.index import list_versions
from runners.envs.pip_settings import pip_command
from runners.envs.recipes import plan_install, read_recipes
from runners.envs.resolve import Lister, node_of
from runners.errors import SparkproofError, Unsupported
from runners.spec import EngineSpec

_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Discovery:
    """`specs`: the newest releases that can be installed here, newest first for each engine. `passed_over`: newer ones, and why not.

    `troubles`: engines whose releases could not be listed.
    """

    specs: tuple[EngineSpec, ...]
    passed_over: tuple[tuple[str, str], ...] = ()
    troubles: tuple[tuple[str, str], ...] = ()


def ask_pip_for_all(distribution: str) -> Finished:
    """`pip index versions --pre`: pre-releases too."""
    command = pip_command("index", "versions", "--pre", "--retries", "2", distribution)
    return run_command(command, environment=os.environ, folder=Path.cwd(), timeout_s=_TIMEOUT_S)


def lister_for(*, prereleases: bool) -> Lister:
    """The lister of final versions, or of all."""
    return (lambda package: list_versions(package, ask_pip_for_all)) if prereleases else list_versions


def discover(
    engines: Sequence[str],
    releases: int,
    *,
    has_cuda: bool,
    prereleases: bool = False,
    machine: str | None = None,
    lister: Lister | None = None,
) -> Discovery:
    """The `releases` newest versions of each engine that can be installed on this node. Raises UsageError for an engine nobody knows."""
    for engine in engines:
        check_engine(engine, "venv")
    published = cache(lister or lister_for(prereleases=prereleases))
    specs: list[EngineSpec] = []
    passed_over: list[tuple[str, str]] = []
    troubles: list[tuple[str, str]] = []
    for engine in engines:
        try:
            found, skipped = _newest(engine, releases, published, has_cuda, prereleases, machine or platform.machine())
        except SparkproofError as error:
            troubles.append((engine, str(error)))
            continue
        specs += found
        passed_over += skipped
        if not found:
            troubles.append((engine, "no release on the configured index can be installed on this node"))
    return Discovery(tuple(specs), tuple(passed_over), tuple(troubles))


_MOST_PASSED_OVER = 20


def _newest(
    engine: str, releases: int, published: Callable[[str], Sequence[Version]], has_cuda: bool, prereleases: bool, machine: str
) -> tuple[list[EngineSpec], list[tuple[str, str]]]:
    recipes = read_recipes()[engine]
    found: list[EngineSpec] = []
    skipped: list[tuple[str, str]] = []
    versions = [v for v in published(engine) if not v.is_devrelease and (prereleases or not v.is_prerelease)]
    for version in sorted(versions, reverse=True):
        if len(found) == releases or len(skipped) == _MOST_PASSED_OVER:
            break
        try:
            plan = plan_install(engine, str(version), recipes, node_of(has_cuda), machine)
        except Unsupported as error:
            skipped.append((f"{engine}=={version}", error.message))
            continue
        package = Requirement(plan.distribution).name
        if package != engine and version not in published(package):
            skipped.append((f"{engine}=={version}", f"{plan.distribution} is not on the configured index"))
            continue
        found.append(EngineSpec(engine, str(version)))
    return found, skipped
