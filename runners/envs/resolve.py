"""From what was asked for to a plan: which version, and by which recipe.

Trap: "the newest version" is one that this node cannot run, and a typo is found out after an install. Rule: a name or version that does not
exist is a usage error with the nearest ones that do; one that exists but has no recipe here is `unsupported`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from packaging.requirements import Requirement
from packaging.version import Version

from runners.engines.registry import check_engine
from runners.envs.index import list_versions, nearest_versions
from runners.envs.recipes import InstallPlan, InstallRecipe, Node, covering, plan_install, read_recipes
from runners.errors import InfrastructureError, Unsupported, UsageError
from runners.spec import EngineSpec

Lister = Callable[[str], Sequence[Version]]


def resolve_version(
    spec: EngineSpec,
    *,
    has_cuda: bool,
    machine: str | None = None,
    lister: Lister = list_versions,
    recipes: Mapping[str, Sequence[InstallRecipe]] | None = None,
) -> EngineSpec:
    """`spec` with an existing version that a recipe covers on this node: the one asked for, or the newest.

    Docker and endpoint specs, and an environment given by its folder, come back as they are. Raises UsageError, Unsupported or
    InfrastructureError (index not reachable).
    """
    check_engine(spec.name, spec.distribution)
    if spec.distribution != "venv" or spec.target:
        return spec
    known, node, here = _recipes_of(spec, recipes), node_of(has_cuda), machine or platform.machine()
    if spec.version is None:
        return replace(spec, version=str(_newest(spec.name, known, node, here, lister)))
    published = _published(spec.name, lister)
    if Version(spec.version) not in published:
        near = ", ".join(map(str, nearest_versions(spec.version, published)))
        raise UsageError(f"{spec.name} {spec.version} does not exist on the configured index.", todo=f"Nearest: {near}." if near else "")
    plan = plan_install(spec.name, spec.version, known, node, here)
    package = Requirement(plan.distribution).name
    if package != spec.name and Version(spec.version) not in (repacked := _published(package, lister)):
        near = ", ".join(map(str, nearest_versions(spec.version, repacked)))
        raise Unsupported(
            f"{plan.distribution}, which this node needs, is not on the configured index.", todo=f"Nearest: {near}." if near else ""
        )
    return spec


def plan_for(
    spec: EngineSpec, *, has_cuda: bool, machine: str | None = None, recipes: Mapping[str, Sequence[InstallRecipe]] | None = None
) -> InstallPlan:
    """The install plan of a spec whose version is known. Raises UsageError or Unsupported."""
    check_engine(spec.name, spec.distribution)
    if spec.distribution != "venv" or spec.version is None:
        raise UsageError(f"{spec} is not an environment with a version: nothing can be installed for it.")
    return plan_install(spec.name, spec.version, _recipes_of(spec, recipes), node_of(has_cuda), machine or platform.machine())


def node_of(has_cuda: bool) -> Node:
    """The kind of node that recipes are written for."""
    return "cuda" if has_cuda else "cpu"


def _recipes_of(spec: EngineSpec, recipes: Mapping[str, Sequence[InstallRecipe]] | None) -> Sequence[InstallRecipe]:
    return (recipes if recipes is not None else read_recipes())[spec.name]


def _newest(engine: str, recipes: Sequence[InstallRecipe], node: Node, machine: str, lister: Lister) -> Version:
    published = cache(lambda package: _published(package, lister))
    for version in sorted((v for v in published(engine) if not v.is_prerelease), reverse=True):
        recipe = covering(recipes, version, node, machine)
        if recipe is None:
            continue
        package = Requirement(recipe.requires[0].replace("{version}", str(version))).name
        if package == engine or version in published(package):
            return version
    raise Unsupported(
        f"no published version of {engine} can be installed on this node.", todo="Give the engine as @docker:IMAGE or @endpoint:URL."
    )


def _published(package: str, lister: Lister) -> Sequence[Version]:
    """Existing versions. These packages do exist, and pip 23.2.1 keeps quiet about an index that answers 503: none at all is our fault."""
    versions = lister(package)
    if not versions:
        raise InfrastructureError(
            f"the configured index has no version of {package}.",
            where="pip index versions",
            todo="Check index-url and extra-index-url in `python -m pip config list`.",
        )
    return versions
