"""An environment that is there already, given by its folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runners.envs.environment import ensure
from runners.envs.resolve import resolve_version
from runners.errors import InfrastructureError, UsageError
from runners.spec import EngineSpec


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A folder like a virtual environment whose Python finds vllm 0.26.0+cu130 beside everything that ours finds."""
    info = tmp_path / "site" / "vllm-0.26.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: vllm\nVersion: 0.26.0+cu130\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={tmp_path / "site"} exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


def _ensure(spec: str, cache: Path) -> object:
    parsed = resolve_version(EngineSpec.parse(spec), has_cuda=True, lister=lambda name: pytest.fail("the index was asked"))
    return ensure(parsed, has_cuda=True, progress=lambda line: None, cache_root=cache)


def test_an_environment_given_by_its_folder_is_used_as_it_is(environment: Path, tmp_path: Path) -> None:
    found = ensure(
        EngineSpec.parse(f"vllm==0.26.0@venv:{environment}"), has_cuda=True, progress=lambda line: None, cache_root=tmp_path / "cache"
    )
    assert (found.python, found.root) == (environment / "bin" / "python", environment)
    assert (found.build.version, found.build.distribution) == ("0.26.0", "vllm==0.26.0+cu130")
    assert not (tmp_path / "cache").exists()


def test_a_folder_with_another_release_is_refused_with_what_it_holds(environment: Path, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"vllm 0\.25\.0 was asked for, but there is vllm==0\.26\.0\+cu130"):
        _ensure(f"vllm==0.25.0@venv:{environment}", tmp_path / "cache")
    with pytest.raises(InfrastructureError, match="there is no sglang"):
        _ensure(f"sglang==0.5.14@venv:{environment}", tmp_path / "cache")


def test_a_folder_without_a_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="no bin/python"):
        _ensure(f"vllm==0.26.0@venv:{tmp_path}", tmp_path / "cache")


def test_a_folder_needs_the_release_that_is_in_it() -> None:
    with pytest.raises(UsageError, match="which release"):
        EngineSpec.parse("vllm@venv:/opt/vllm")
