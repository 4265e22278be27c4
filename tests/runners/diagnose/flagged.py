"""A world with planted vLLM environments that start `flagged_engine.py`, on a node that says it has a GPU (or none)."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from uv import find_uv_bin

from results.records import NodeRecord
from results.store import Store
from runners.diagnose.follow_up import Controls, Limits
from runners.envs.build import read_build
from runners.envs.maker import STAMP, Maker
from runners.envs.pip_settings import for_uv, read_pip_settings
from runners.envs.pythons import choose, installed_pythons
from runners.envs.resolve import plan_for
from runners.node.facts import has_cuda
from runners.pipeline import BootResult
from runners.session import RunRequest, make_plan, run_session
from runners.spec import EngineSpec
from tests.runners.diagnose.silent_watcher import SilentWatcher

GB10 = NodeRecord("node-gb10", "spark", gpu_name="NVIDIA GB10", compute_capability="12.1", cuda_version="13.0", driver_version="580.95.05")
NO_GPU = NodeRecord("node-cpu", "box")
DEFAULT = Limits()
_ENGINE = Path(__file__).with_name("flagged_engine.py")
_PYTHON = """#!/bin/sh
case " $* " in
  *" vllm.entrypoints.cli.main "*|*" vllm.entrypoints.openai.api_server "*)
    shift 2; FLAGGED_VERSION={version} exec {python} {engine} "$@" ;;
esac
exec {python} "$@"
"""


def plant(cache: Path, version: str, *, cuda: bool, engine: Path = _ENGINE) -> None:
    """Put an environment that looks finished where Sparkproof would have made it. `engine` is started in place of vLLM's server."""
    plan = plan_for(EngineSpec.parse(f"vllm=={version}"), has_cuda=cuda)
    uv = Path(find_uv_bin())
    maker = Maker(cache / "environments", uv, for_uv(read_pip_settings(), os.environ), lambda: installed_pythons(uv))
    environment = maker._root(plan, choose(maker.pythons(), SpecifierSet(plan.python))[0])
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.write_text(_PYTHON.format(version=version, python=sys.executable, engine=engine))
    python.chmod(0o755)
    build = read_build(python, plan.engine, plan.version, plan.distribution, os.environ)
    (environment / STAMP).write_text(json.dumps({"build": asdict(build), "plan": asdict(plan)}))


@dataclass
class World:
    """A store, a cache and a node."""

    store: Store
    cache: Path
    node: NodeRecord
    monkeypatch: pytest.MonkeyPatch

    def run(
        self, fault: str, *, version: str = "0.32.0", backend: str = "default", limits: Limits = DEFAULT
    ) -> tuple[list[BootResult], Controls]:
        """`sparkproof run --controls` of the dense canary with a fault injected into every boot of it."""
        self.monkeypatch.setenv("FLAGGED_FAULT", fault)
        request = RunRequest((f"vllm=={version}",), ("canary-dense",), (backend,), repeats=1)
        plan = make_plan(request, read=lambda label: self.node)
        controls = Controls(self.store, self.cache, has_cuda(self.node), limits)
        results = run_session(request, plan, self.store, self.cache, SilentWatcher(), controls)
        return results, controls
