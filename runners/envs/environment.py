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

from runners.envs.maker import Environment, Maker
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

    `progress` gets one line at a time. Raises UsageError, Unsupported, InstallFailed or InfrastructureError.
    """
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


def _ensure_plan(plan: InstallPlan, progress: Callable[[str], None], cache_root: Path | None) -> Environment:
    try:
        uv = Path(find_uv_bin())
    except FileNotFoundError as error:
        raise InfrastructureError(
            "uv is not in our environment.", todo="Remove the .venv folder of the checkout and start again."
        ) from error
    maker = Maker(
        folder=(cache_root or cache_folder()) / "environments",
        uv=uv,
        settings=lambda: for_uv(read_pip_settings(), os.environ),
        pythons=lambda: installed_pythons(uv),
        progress=progress,
    )
    return maker.ensure(plan)
