"""`sparkproof diagnose` as a user types it: of a boot made before, and from nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.planted import Planted
from tests.runners.diagnose.flagged import plant


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A planted cache of a node without a GPU."""
    cache = tmp_path_factory.mktemp("world") / "cache"
    plant(cache, "0.32.0", cuda=False)
    return cache


@pytest.fixture
def world(cache: Path, tmp_path: Path) -> Planted:
    """The planted cache with a store of its own."""
    (tmp_path / "cache").symlink_to(cache)
    return Planted(tmp_path, "0.32.0")


def run(world: Planted, *arguments: str, fault: str) -> subprocess.CompletedProcess[str]:
    return world.sparkproof(*arguments, timeout_s=240, FLAGGED_FAULT=fault)


def test_a_failed_run_is_diagnosed_by_itself_and_afterwards_by_its_id(world: Planted) -> None:
    cell = ("--engine", "vllm==0.32.0", "--model", "canary-dense", "--backend", "eager")
    silent = run(world, "run", *cell, "--repeats", "1", "--no-controls", "--json", fault="prefix_cache")
    assert silent.returncode == 1
    shown = json.loads(silent.stdout)
    assert shown["diagnoses"] == []
    (failed,) = shown["cells"][0]["run_ids"]
    done = run(world, "diagnose", failed[-8:], "--json", fault="prefix_cache")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    (diagnosis,) = answer["diagnoses"]
    assert (diagnosis["run_id"], diagnosis["conclusion"], diagnosis["detail"]) == (failed, "kv_cache", "prefix_cache")
    assert diagnosis["use_instead"] == ["--no-enable-prefix-caching"]
    assert [boot["purpose"] for boot in answer["boots"]] == ["control"]
    again = json.loads(world.sparkproof("show", failed[-8:], "--json").stdout)
    assert again["diagnoses"][0]["conclusion"] == "kv_cache"
    assert "diagnosis: kv_cache (prefix_cache)" in " ".join(world.sparkproof("show", failed[-8:]).stdout.split())


def test_a_cell_that_passes_has_nothing_to_diagnose(world: Planted) -> None:
    done = run(world, "diagnose", "--engine", "vllm==0.32.0", "--model", "canary-dense", "--backend", "eager", fault="none")
    assert done.returncode == 0, done.stderr
    assert "nothing to diagnose" in done.stdout


def test_a_passing_run_cannot_be_diagnosed(world: Planted) -> None:
    made = run(world, "run", "--engine", "vllm==0.32.0", "--model", "canary-dense", "--repeats", "1", "--json", fault="none")
    (passed,) = json.loads(made.stdout)["cells"][0]["run_ids"]
    done = run(world, "diagnose", passed, fault="none")
    assert done.returncode == 2
    assert "ended as pass" in " ".join(done.stderr.split())
