"""Whole nights through the command line, with the scripted engine planted for two releases, and the releases of the configured index."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from results.store import Store
from runners.process.members import MARK
from tests.planted import Planted, plant

_LONGEST_S = 240.0
RELEASES = ("0.32.0", "0.31.0")

SUITE = """
name = "night"
recipes = ["canary-dense"]
boots = 3
context = [2048]
workloads = [{ name = "decode_c1", prompt_tokens = 64, completion_tokens = 24, concurrency = 1, repeats = 2 }]

[nightly]
engines = ["vllm"]
releases = 2
anchor = "vllm==0.31.0"
self_check_days = 366
confirm = false
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """One planted cache with both releases for all tests of this module."""
    root = tmp_path_factory.mktemp("nightly")
    for version in RELEASES:
        planted = plant(root, version)
    return planted


@pytest.fixture
def night(world: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planted]:
    """A fresh store and a suite file; nothing of ours may live when the test is over.

    Nothing is confirmed and no probe judges the node: both depend on how busy this machine is.
    """
    monkeypatch.setenv("SPARKPROOF_PROBE", "0")
    (tmp_path / "cache").symlink_to(world.root / "cache")
    (tmp_path / "night.toml").write_text(SUITE)
    fresh = Planted(tmp_path, RELEASES[0])
    fresh.home.mkdir()
    # the self-check, which would need six more boots, was made lately
    (fresh.home / "nightly.json").write_text(json.dumps({"last_self_check_at": "2099-01-01T00:00:00+00:00"}))
    yield fresh
    assert _ours(fresh) == []


def _ours(planted: Planted) -> list[str]:
    runs = {folder.name for folder in (planted.home / "boots").glob("*")}
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) in runs and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def _arguments(planted: Planted, *more: str) -> tuple[str, ...]:
    return ("nightly", "--suite", str(planted.root / "night.toml"), "--json", *more)


def _run(planted: Planted, *more: str, **environment: str) -> tuple[int, Any, str]:
    done = planted.sparkproof(*_arguments(planted, *more), timeout_s=_LONGEST_S, **environment)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr


def _boots(planted: Planted) -> list[dict[str, Any]]:
    return Store(planted.home).query("SELECT * FROM runs ORDER BY started_at, run_id")


def _wait_for_finished(planted: Planted, runner: subprocess.Popen[str], boots: int, phase: str) -> None:
    """Until so many boots have an outcome and another one is in `phase`."""
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        rows = [json.loads(p.read_text())["run"] for p in (planted.home / "boots").glob("*/run.json")]
        if sum(r["outcome"] is not None for r in rows) >= boots and any(r["outcome"] is None and r["phase"] == phase for r in rows):
            return
        assert runner.poll() is None, runner.stderr.read() if runner.stderr else ""
        time.sleep(0.02)
    pytest.fail(f"{boots} finished boots and one in {phase} were never seen")


def test_a_night_killed_three_times_goes_on_repeats_no_finished_cell_and_then_has_only_its_anchor_left(night: Planted) -> None:
    for finished, phase in enumerate(("ready", "coherence", "throughput")):
        runner = subprocess.Popen(
            night.command(*_arguments(night)), env=night.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        _wait_for_finished(night, runner, finished + 1, phase)
        runner.kill()
        runner.communicate(timeout=30)
    code, shown, said = _run(night)
    assert code == 0, (shown, said)
    assert shown["went_on"]
    boots = _boots(night)
    outcomes = Counter(str(boot["outcome"]) for boot in boots)
    assert outcomes == {"pass": 6, "interrupted": 3}, [(b["engine_version"], b["outcome"], b["purpose"]) for b in boots]
    passed = Counter((b["engine_version"], b["purpose"]) for b in boots if b["outcome"] == "pass")
    assert passed["0.32.0", "measure"] == 3
    assert sum(number for (version, _), number in passed.items() if version == "0.31.0") == 3
    assert len({b["session_id"] for b in boots}) == 1, "the machine stayed up: it is one session, with one anchor"
    (session,) = Store(night.home).query("SELECT kind, void, finished_at, anchor_run_id FROM sessions")
    assert session["kind"] == "nightly" and not session["void"] and session["finished_at"] and session["anchor_run_id"]
    code, shown, said = _run(night)
    assert code == 0, said
    assert [boot["purpose"] for boot in shown["boots"]] == ["anchor"], "one pinned release each session"
    assert shown["alarms"] == []


def test_every_boot_has_health_before_and_after_and_its_verified_context(night: Planted) -> None:
    assert _run(night, "--budget", "1s", SPARKPROOF_PROBE="1")[0] == 0
    store = Store(night.home)
    (boot,) = _boots(night)
    rows = store.query("SELECT moment, probe, bandwidth_gb_s FROM health ORDER BY read_at")
    assert [row["moment"] for row in rows] == ["before", "after"]
    assert all(row["probe"] == "numpy" and row["bandwidth_gb_s"] > 0 for row in rows)
    depths = store.query("SELECT depth_tokens, recalled FROM context_depths ORDER BY depth_tokens")
    assert [(d["depth_tokens"], d["recalled"]) for d in depths] == [(1_175, True)] + [(1_594, True)] * 3
    assert boot["outcome"] == "pass"


def test_budget_ends_the_night_at_a_boots_border_and_says_so(night: Planted) -> None:
    code, shown, _ = _run(night, "--budget", "1s")
    assert code == 0
    assert shown["ended"] == "the budget is used"
    assert len(_boots(night)) == 1


def test_a_release_that_breaks_raises_one_alarm_once_and_exit_code_1(night: Planted) -> None:
    (night.root / "night.toml").write_text(SUITE.replace("releases = 2", "releases = 1"))
    good, _, said = _run(night, SCRIPTED_BROKEN="0.32.0")
    assert good == 1, said
    states = {(b["engine_version"], b["outcome"]) for b in _boots(night)}
    assert states == {("0.31.0", "pass"), ("0.32.0", "incoherent")}
    summary = (night.home / "alarms" / "summary.md").read_text()
    assert "## Broke" in summary and "vllm 0.32.0" in summary
    assert (night.home / "alarms" / "feed.xml").read_text().count("<entry>") == 1
    again, shown, said = _run(night, SCRIPTED_BROKEN="0.32.0")
    assert (again, shown["alarms"]) == (0, []), "the same finding is never told twice"


def test_a_second_night_is_refused_and_told_whose_node_it_is(night: Planted) -> None:
    runner = subprocess.Popen(
        night.command(*_arguments(night)), env=night.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _wait_for_finished(night, runner, 0, "ready")
    second = night.sparkproof(*_arguments(night))
    os.kill(runner.pid, signal.SIGTERM)
    runner.communicate(timeout=60)
    assert second.returncode == 3
    assert f"pid {runner.pid}" in second.stderr
    assert runner.returncode == 130


def test_dry_run_lists_the_boots_by_value_and_starts_nothing(night: Planted) -> None:
    code, shown, _ = _run(night, "--dry-run")
    assert code == 0
    assert shown["releases"] == ["vllm==0.32.0", "vllm==0.31.0"]
    assert [boot["why"] for boot in shown["boots"]] == ["anchor"] + ["new_release"] * 3 + ["anchor"] * 2, "the session's anchor comes first"
    assert shown["self_check_boots"] == 0
    (night.home / "nightly.json").unlink()
    assert _run(night, "--dry-run")[1]["self_check_boots"] == 6, "never made, so due"
    assert not (night.home / "boots").exists()


def test_a_broken_suite_file_is_an_alarm_too(night: Planted) -> None:
    (night.root / "night.toml").write_text(SUITE.replace("recipes", "recipies"))
    done = night.sparkproof(*_arguments(night))
    assert done.returncode == 2
    assert "night.toml:3" in done.stderr and "recipes" in done.stderr
    assert "night itself failed" in (night.home / "alarms" / "summary.md").read_text()
