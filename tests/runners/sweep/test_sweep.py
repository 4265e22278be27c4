"""Sweeps through the real worker and the real pipeline, in a planted environment whose engine is a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from results.boot_folder import BootFolder
from results.store import Store
from results.vocabulary import Outcome, Phase, Purpose
from runners.process.members import MARK
from runners.sweep import pool
from runners.sweep.offline import judge_jobs, read_answers
from runners.sweep.session import SweepRequest, write_jobs_of
from tests.runners.sweep.planted_worker import PACKAGES, REPOSITORY, Bench, plant


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One planted environment for all tests of this module."""
    root = tmp_path_factory.mktemp("cache")
    plant(root)
    return root


@pytest.fixture
def bench(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A store of its own; no engine process of it may live when the test is over."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("FAKE_FAULT", raising=False)
    made = Bench(Store(tmp_path / "home"), cache)
    yield made
    workers = {folder.name for folder in (tmp_path / "home" / "workers").glob("*")}
    living = [p.pid for p in psutil.process_iter() if _mark(p) in workers and p.status() != psutil.STATUS_ZOMBIE]
    assert living == []


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except psutil.Error:
        return None


def test_one_process_serves_every_checkpoint_and_leaves_ordinary_rows(bench: Bench) -> None:
    done = bench.sweep("dense", "moe")
    assert done.processes == 1
    assert [r.run.outcome for r in done.results] == [Outcome.PASS, Outcome.PASS]
    rows = bench.store.query("SELECT * FROM runs ORDER BY started_at, run_id")
    assert [r["recipe_name"] for r in rows] == ["canary-dense", "canary-moe"]
    assert all(r["in_process"] and r["purpose"] == Purpose.SWEEP and r["server_version"] == "0.32.0" for r in rows)
    assert bench.store.query("SELECT count(*) n FROM samples") == [{"n": 0}], "a shared process is never timed"
    phases = {p["phase"] for p in bench.store.query("SELECT DISTINCT phase FROM phases")}
    assert phases >= {Phase.READY, Phase.COHERENCE}
    sessions = bench.store.query("SELECT kind FROM sessions")
    assert sessions == [{"kind": "sweep"}]


def test_each_boot_has_its_own_part_of_the_log(bench: Bench) -> None:
    done = bench.sweep("dense", "moe")
    logs = [BootFolder(bench.store.boots, r.run.run_id).log.read_text() for r in done.results]
    assert "dense-bf16" in logs[0] and "moe-bf16" not in logs[0]
    assert "moe-bf16" in logs[1] and "dense-bf16" not in logs[1]


@pytest.mark.parametrize(
    ("fault", "outcome", "words"),
    [
        ("crash:moe", Outcome.CRASH, "the fake engine crashes on this checkpoint"),
        ("dies:moe", Outcome.CRASH, "illegal memory access"),
        ("wrong:moe", Outcome.WRONG, "differ"),
    ],
)
def test_a_checkpoint_that_fails_is_made_again_alone_and_the_others_pass(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fault: str, outcome: Outcome, words: str
) -> None:
    monkeypatch.setenv("FAKE_FAULT", fault)
    done = bench.sweep("moe", "dense")
    first, other, again = done.results
    assert (first.run.outcome, other.run.outcome, again.run.outcome) == (outcome, Outcome.PASS, outcome)
    assert again.run.control_of == first.run.run_id
    assert words in (again.run.reason or "")
    assert (again.run.signature is not None) is (outcome is Outcome.CRASH)


def test_a_checkpoint_that_the_engine_says_it_has_no_kernel_for_is_unsupported_and_not_made_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", "refuse:moe")
    done = bench.sweep("moe", "dense")
    assert [r.run.outcome for r in done.results] == [Outcome.UNSUPPORTED, Outcome.PASS]
    assert "Failed to find a kernel" in (done.results[0].run.reason or "")
    assert done.processes == 2, "a process that failed to load is not used again"


def test_a_checkpoint_that_hangs_is_ended_and_the_others_pass(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "hang:moe")
    monkeypatch.setattr(pool, "LIMITS", pool.Limits(import_s=60, load_s=12, unload_s=2))
    done = bench.sweep("moe", "dense")
    assert [r.run.outcome for r in done.results] == [Outcome.HANG, Outcome.PASS, Outcome.HANG]


def test_what_an_earlier_checkpoint_left_behind_is_not_held_against_a_later_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "leaves:dense")
    done = bench.sweep("dense", "moe")
    first, spoilt, alone = done.results
    assert (first.run.outcome, alone.run.outcome) == (Outcome.PASS, Outcome.PASS)
    assert spoilt.run.outcome is Outcome.INFRASTRUCTURE
    (row,) = bench.store.query("SELECT outcome, reason FROM runs WHERE run_id = ?", [spoilt.run.run_id])
    assert row["outcome"] == "infrastructure"
    assert "alone it passes" in row["reason"] and alone.run.run_id in row["reason"]


def test_formats_that_the_node_cannot_run_end_before_any_process(bench: Bench) -> None:
    done = bench.sweep("moe", formats=("nvfp4", "fp8"))
    assert done.processes == 0
    assert [(r.run.outcome, r.run.phase) for r in done.results] == [(Outcome.UNSUPPORTED, Phase.RESOLVE)] * 2
    assert all("CPU" in (r.run.reason or "") for r in done.results)


def test_jobs_carried_to_another_machine_give_the_same_verdicts(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_FAULT", "wrong:moe")
    folder = tmp_path / "carried"
    (jobs,) = write_jobs_of(SweepRequest(("vllm==0.26.0",), ("dense", "moe"), ("bf16",), ("eager",)), folder)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES), "FAKE_REPOSITORY": str(REPOSITORY), "FAKE_VERSION": "0.26.0"}
    worker = subprocess.run(
        [os.sys.executable, str(folder / "worker" / "worker.py"), "jobs", str(jobs)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert worker.returncode == 0, worker.stderr
    answers = folder / "answers.jsonl"
    answers.write_text(worker.stdout)
    store = Store(tmp_path / "home")
    hello, heard = read_answers(jobs, answers)
    dense, moe = judge_jobs(store, folder, hello, heard, "another")
    assert (dense.outcome, moe.outcome) == (Outcome.PASS, Outcome.WRONG)
    assert (dense.engine_version, dense.in_process, dense.distribution) == ("0.26.0", True, "endpoint")
    assert store.query("SELECT count(*) n FROM coherence_results WHERE run_id = ?", [dense.run_id])[0]["n"] > 100


@pytest.mark.parametrize(
    ("last_line", "outcome", "why"),
    [
        ('{"event": "ans', Outcome.INTERRUPTED, "ends in the middle of this job, after 0 of"),
        ('{"event": "crashed", "job": "canary-dense@eager", "error": "RuntimeError: illegal step"}\n', Outcome.CRASH, "illegal step"),
    ],
)
def test_an_output_that_was_cut_off_is_interrupted_and_a_crash_is_one_only_if_the_worker_says_so(
    tmp_path: Path, last_line: str, outcome: Outcome, why: str
) -> None:
    folder = tmp_path / "carried"
    (jobs,) = write_jobs_of(SweepRequest(("vllm==0.26.0",), ("dense",), ("bf16",), ("eager",)), folder)
    name = json.loads(jobs.read_text())["jobs"][0]["name"]
    answers = folder / "answers.jsonl"
    hello = {"event": "hello", "format": 1, "engine": "vllm", "version": "0.26.0", "wheels": []}
    lines = [hello, {"event": "began", "job": name}, {"event": "loaded", "job": name, "seconds": 1.0, "max_model_len": 2048}]
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines) + last_line)
    (run,) = judge_jobs(Store(tmp_path / "home"), folder, *read_answers(jobs, answers), "another")
    assert run.outcome is outcome
    assert why in (run.reason or "")
