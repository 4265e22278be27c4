"""A planted vLLM environment whose Python finds the fake packages beside this file, so that the real worker runs in it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from uv import find_uv_bin

from results.records import NodeRecord
from results.store import Store
from runners.envs.build import read_build
from runners.envs.maker import STAMP, Maker
from runners.envs.pip_settings import for_uv, read_pip_settings
from runners.envs.pythons import choose, installed_pythons
from runners.envs.resolve import plan_for
from runners.spec import EngineSpec
from runners.sweep.session import SweepDone, SweepRequest, run_sweep, sweep_plan
from tests.runners.diagnose.silent_watcher import SilentWatcher

REPOSITORY = Path(__file__).resolve().parents[3]
PACKAGES = Path(__file__).with_name("fake_packages")
NO_GPU = NodeRecord("node-cpu", "box")
_PYTHON = """#!/bin/sh
case " $* " in
  *worker.py*) PYTHONPATH={packages} FAKE_REPOSITORY={repository} exec {python} "$@" ;;
esac
exec {python} "$@"
"""


def plant(cache: Path, version: str = "0.32.0") -> Path:
    """Put an environment that looks finished where Sparkproof would have made it; returns its Python."""
    plan = plan_for(EngineSpec.parse(f"vllm=={version}"), has_cuda=False)
    uv = Path(find_uv_bin())
    maker = Maker(cache / "environments", uv, for_uv(read_pip_settings(), os.environ), lambda: installed_pythons(uv))
    environment = maker._root(plan, choose(maker.pythons(), SpecifierSet(plan.python))[0])
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(_PYTHON.format(packages=PACKAGES, repository=REPOSITORY, python=sys.executable))
    python.chmod(0o755)
    build = read_build(python, plan.engine, plan.version, plan.distribution, os.environ)
    (environment / STAMP).write_text(json.dumps({"build": asdict(build), "plan": asdict(plan)}))
    return python


@dataclass
class Bench:
    """A store and a cache with the planted environment."""

    store: Store
    cache: Path

    def sweep(self, *canaries: str, formats: tuple[str, ...] = ("bf16",), backends: tuple[str, ...] = ("eager",)) -> SweepDone:
        """`sparkproof sweep` of some canaries."""
        request = SweepRequest(("vllm==0.32.0",), canaries, formats, backends)
        return run_sweep(sweep_plan(request, read=lambda label: NO_GPU), self.store, self.cache, SilentWatcher())
