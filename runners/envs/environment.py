"""The environment of an engine or a tool: `ensure` gives it, and makes it when it is not there yet."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import platformdirs
from packaging.requirements import InvalidRequirement, Requirement
from uv import find_uv_bin

from runners.engines.identity import same_public_version
from runners.envs.build import read_build
from runners.envs.maker import NOT_INHERITED, Environment, Maker
from runners.envs.pip_settings import for_uv, read_pip_settings
from runners.envs.pythons import installed_pythons
from runners.envs.recipes import InstallPlan, plan_install, read_recipes
from runners.envs.resolve import plan_for
from runners.errors import InfrastructureError, UsageError
from runners.spec import EngineSpec

__all__ = ["Environment", "cache_folder", "ensure", "ensure_tool"]


def cache_folder() -> Path:
    """Where environments and converted weights are kept: `$SPARKPROOF_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("SPARKPROOF_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path(platformdirs.user_cache_dir("sparkproof"))


def ensure(spec: EngineSpec, *, has_cuda: bool, progress: Callable[[str], None], cache_root: Path | None = None) -> Environment:
    """The environment of a spec whose version is known (see `resolve_version`), made on first use and reused afterwards.

    One given by its folder is used as it is: nothing is installed into it. `progress` gets one line at a time. Raises UsageError,
    Unsupported, InstallFailed or InfrastructureError.
    """
    if spec.target:
        return _given(spec)
    return _ensure_plan(plan_for(spec, has_cuda=has_cuda), progress, cache_root)


def ensure_tool(name: str, *, progress: Callable[[str], None], extra: tuple[str, ...] = (), cache_root: Path | None = None) -> Environment:
    """The environment of one of our own tools (`gguf-converter`) with `extra` requirements. Its version is the one its recipe names."""
    recipes = read_recipes().get(name)
    if not recipes:
        raise UsageError(f"{name!r} is not a tool we know.")
    for text in extra:
        try:
            Requirement(text)
        except InvalidRequirement:
            raise UsageError(f"{text!r} is not the name of a package.") from None
    version = recipes[0].versions.removeprefix("==")
    plan = plan_install(name, version, recipes, "cpu", platform.machine())
    return _ensure_plan(replace(plan, requires=(*plan.requires, *extra)), progress, cache_root)


def _given(spec: EngineSpec) -> Environment:
    """The environment in the folder that the spec names, if it holds the release that the spec names."""
    root, version = Path(spec.target), spec.version or ""
    python = root / "bin" / "python"
    if not python.is_file():
        raise InfrastructureError(f"{spec.target} is not a virtual environment: it has no bin/python.", todo="Give the folder of one.")
    environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    build = read_build(python, spec.name, version, f"{spec.name}=={version}", environment)
    found = [wheel for wheel in build.wheels if wheel.partition("==")[0] in (spec.name, f"{spec.name}-cpu")]
    if not any(same_public_version(version, wheel.partition("==")[2]) for wheel in found):
        held = " and ".join(found) or f"no {spec.name}"
        raise InfrastructureError(f"{spec.name} {version} was asked for, but there is {held}.", where=spec.target)
    return Environment(python, root, replace(build, distribution=found[0]))


def _ensure_plan(plan: InstallPlan, progress: Callable[[str], None], cache_root: Path | None) -> Environment:
    try:
        uv = Path(find_uv_bin())
    except FileNotFoundError:
        uv = None
    maker = Maker(
        folder=(cache_root or cache_folder()) / "environments",
        uv=uv,
        settings=lambda: for_uv(read_pip_settings(), os.environ),
        pythons=lambda: installed_pythons(uv) if uv is not None else (),
        progress=progress,
    )
    return maker.ensure(plan)
