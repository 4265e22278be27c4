"""A cache whose "engine environment" runs the scripted server, so that whole boots go through the real pipeline in seconds.

Nothing of Sparkproof is replaced: the environment is found by its stamp like any other, its `python` is a two-line shell script that starts
`tests/planted_engine.py` when it is asked for vLLM's API server, and behaves as our own Python for everything else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from uv import find_uv_bin

from runners.envs.build import read_build
from runners.envs.maker import STAMP, Maker
from runners.envs.pip_settings import for_uv, read_pip_settings
from runners.envs.pythons import choose, installed_pythons
from runners.envs.resolve import plan_for
from runners.spec import EngineSpec

REPOSITORY = Path(__file__).resolve().parents[1]

_PYTHON = """#!/bin/sh
case " $* " in
  *" vllm.entrypoints.openai.api_server "*) shift 2; SCRIPTED_OWN_VERSION={version} exec {python} {engine} "$@" ;;
esac
exec {python} "$@"
"""


@dataclass(frozen=True)
class Planted:
    """A home, a cache and a store of their own, with vLLM `version` planted."""

    root: Path
    version: str

    @property
    def home(self) -> Path:
        """`$SPARKPROOF_HOME`."""
        return self.root / "home"

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a `sparkproof` process that uses this planted world."""
        return {
            **os.environ,
            "SPARKPROOF_HOME": str(self.home),
            "SPARKPROOF_CACHE": str(self.root / "cache"),
            "XDG_STATE_HOME": str(self.root / "state"),
            "PYTHONPATH": str(REPOSITORY),
            **more,
        }

    def command(self, *arguments: str) -> list[str]:
        """argv of `sparkproof ARGUMENTS`."""
        return [sys.executable, "-m", "runners.cli.main", *arguments]

    def sparkproof(self, *arguments: str, timeout_s: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            self.command(*arguments), env=self.environment(**environment), capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, Any]:
        """`sparkproof run --json` of the planted engine on the dense canary: exit code and what it printed."""
        done = self.sparkproof(
            "run", "--engine", f"vllm=={self.version}", "--model", "canary-dense", "--repeats", "1", "--json", *arguments, **environment
        )
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else done.stderr


ENGINE = REPOSITORY / "tests" / "planted_engine.py"


def plant(root: Path, version: str = "0.32.0", engine: Path = ENGINE) -> Planted:
    """Make the planted environment below `root`; `engine` is what runs when vLLM's API server is asked for."""
    plan = plan_for(EngineSpec.parse(f"vllm=={version}"), has_cuda=False)
    uv = Path(find_uv_bin())
    maker = Maker(root / "cache" / "environments", uv, for_uv(read_pip_settings(), os.environ), lambda: installed_pythons(uv))
    environment = maker._root(plan, choose(maker.pythons(), SpecifierSet(plan.python))[0])
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(_PYTHON.format(python=sys.executable, engine=engine, version=version))
    python.chmod(0o755)
    build = read_build(python, plan.engine, plan.version, plan.distribution, os.environ)
    (environment / STAMP).write_text(json.dumps({"build": asdict(build), "plan": asdict(plan)}))
    return Planted(root, version)
