"""Environments of the peers, one each, made once below a folder with the user's own package index settings.

Trap: a peer that is installed beside our dependencies changes them, or is changed by them. Rule: every peer has a virtual environment that
nobody else uses, ours is never touched, and what cannot be installed is said with the installer's own words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from uv import find_uv_bin

from runners.envs.command import run_command
from runners.envs.environment import cache_folder
from runners.envs.pip_settings import for_uv, read_pip_settings

_LIMIT_S = 900.0


def default_folder() -> Path:
    """Where peers are kept if the user names no folder."""
    return cache_folder() / "truth-peers"


def newest_vllm() -> Path | None:
    """Python of the newest environment with vLLM that `sparkproof run` has made; None if there is none."""
    found = [p for p in (cache_folder() / "environments").glob("vllm-*/bin/python") if p.is_file()]
    return max(found, key=lambda p: [int(n) for n in p.parts[-3].split("-")[1].split(".") if n.isdigit()], default=None)


def make_environment(folder: Path, name: str, say: Callable[[str], None]) -> str | None:
    """Install the newest release of `name` into `folder/name`; None if it is there now, else why not."""
    root = folder / name
    if (root / "bin" / name).is_file():
        return None
    say(f"installing {name}")
    folder.mkdir(parents=True, exist_ok=True)
    settings = for_uv(read_pip_settings(), os.environ)
    environment = {**os.environ, **settings.environment}
    uv, python = find_uv_bin(), str(root / "bin" / "python")
    for argv in ([uv, "venv", "--quiet", "--python", sys.executable, str(root)], [uv, "pip", "install", "--python", python, name]):
        done = run_command(argv, environment=environment, folder=folder, timeout_s=_LIMIT_S)
        if done.returncode != 0:
            return f"{name}: cannot be installed: {' | '.join(done.messages[-3:])[-400:]}"
    return None if (root / "bin" / name).is_file() else f"{name}: installed, but there is no command of that name"
