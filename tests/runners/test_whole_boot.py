"""Whole boots through the command line, against the scripted engine in a planted environment (`tests/planted.py`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from results.store import Store
from runners.process.members import MARK
from tests.planted import Planted, plant

_LONGEST_S = 120.0
_STARTED: list[subprocess.Popen[str]] = []
"""Runners of the present test that are not waited for elsewhere; a test that fails must not leave one."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """One planted cache for all tests of this module; each test has a store of its own."""
    return plant(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def planted(world: Planted, tmp_path: Path) -> Iterator[Planted]:
    """The planted world with a fresh store; nothing of ours may live when the test is over."""
    (tmp_path / "cache").symlink_to(world.root / "cache")
    fresh = Planted(tmp_path, world.version)
    yield fresh
    for runner in _STARTED:
        if runner.poll() is None:
            runner.terminate()
            runner.wait(60)
    _STARTED.clear()
    assert _ours(fresh) == []


def _ours(planted: Planted) -> list[str]:
    """Command lines of living servers of boots in this store."""
    runs = {folder.name for folder in (planted.home / "boots").glob("*")}
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) in runs and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def _store(planted: Planted) -> Store:
    return Store(planted.home)


def test_a_good_engine_passes_the_gate_is_timed_and_leaves_everything_behind(planted: Planted) -> None:
    code, shown = planted.run()
    assert code == 0, shown
    (cell,) = shown["cells"]
    assert (cell["outcome"], cell["gate_matched"], cell["gate_prompts"]) == ("pass", 89, 89)
    assert cell["launch_bound"]
    assert cell["decode_tok_s"]["count"] == 1
    assert set(cell["phase_s"]) >= {"resolve", "install", "launch", "ready", "identify", "coherence", "throughput", "recheck", "teardown"}
    folder = planted.home / "boots" / cell["run_ids"][0]
    assert {p.name for p in folder.iterdir()} >= {"run.json", "samples.jsonl", "coherence.jsonl", "server.log", "serve.sh", "process.json"}
    assert "--port" in (folder / "serve.sh").read_text()
    store = _store(planted)
    samples = store.query("SELECT workload, concurrency, cold, count(*) n FROM samples GROUP BY ALL ORDER BY ALL")
    assert {(s["workload"], s["n"]) for s in samples if not s["cold"]} == {("decode_c1", 1), ("decode_c8", 8)}
    build = store.query("SELECT len(wheels) n FROM engine_builds")[0]
    assert build["n"] > 20
    run = store.query("SELECT * FROM runs")[0]
    assert run["engine_token_count"] == run["client_token_count"]


def test_the_second_version_shows_the_change_against_the_first(planted: Planted, world: Planted) -> None:
    older = Planted(planted.root, plant_version(world, "0.31.0"))
    assert older.run(SCRIPTED_VERSION="0.31.0")[0] == 0
    code, shown = planted.run()
    assert code == 0
    previous = shown["cells"][0]["previous"]
    assert (previous["engine_version"], previous["outcome"]) == ("0.31.0", "pass")
    assert previous["decode_change"] is not None


def plant_version(world: Planted, version: str) -> str:
    plant(world.root, version)
    return version


@pytest.mark.parametrize(
    ("environment", "code", "outcome", "words"),
    [
        ({"SCRIPTED_AS": "flood"}, 1, "incoherent", "token_flood"),
        ({"SCRIPTED_AS": "wrong"}, 1, "wrong", "differ from the known good"),
        ({"SCRIPTED_AS": "dies"}, 1, "crash", "decode_c1"),
        ({"SCRIPTED_AS": "error_event"}, 1, "crash", "error"),
        ({"SCRIPTED_BOOT": "crash"}, 1, "crash", "exited with code 1"),
        ({"SCRIPTED_BOOT": "oom"}, 1, "oom", "out of memory"),
        ({"SCRIPTED_VERSION": "0.31.0"}, 3, "infrastructure", "the server says it is 0.31.0"),
    ],
)
def test_a_misbehaving_engine_gets_its_outcome(planted: Planted, environment: dict[str, str], code: int, outcome: str, words: str) -> None:
    got, shown = planted.run(**environment)
    assert got == code, shown
    (cell,) = shown["cells"]
    assert cell["outcome"] == outcome
    assert words in cell["reason"]
    assert cell["decode_tok_s"] is None


def test_nothing_is_timed_after_a_failed_gate(planted: Planted) -> None:
    planted.run(SCRIPTED_AS="flood")
    store = _store(planted)
    assert store.query("SELECT count(*) n FROM samples") == [{"n": 0}]
    assert store.query("SELECT count(*) n FROM coherence_results WHERE verdict = 'token_flood'")[0]["n"] > 0


def test_refused_optional_fields_are_dropped_and_said(planted: Planted) -> None:
    code, shown = planted.run(SCRIPTED_AS="refuses_usage")
    run = _store(planted).query("SELECT * FROM runs")[0]
    assert run["dropped_request_fields"] == ["stream_options.include_usage", "stream_options.continuous_usage_stats"]
    assert code == 1, "without token counts no sample is valid, and a cell without one valid sample is a failure (M8)"
    assert "no_valid_sample" in shown["cells"][0]["reason"]


def test_one_burst_has_no_decode_rate_and_says_why(planted: Planted) -> None:
    planted.run(SCRIPTED_AS="burst")
    rows = _store(planted).query("SELECT decode_tok_s, null_reason, invalid_reason FROM samples WHERE NOT cold")
    assert rows
    assert all(r["decode_tok_s"] is None and (r["null_reason"] or r["invalid_reason"]) for r in rows)


def _start(planted: Planted, **environment: str) -> subprocess.Popen[str]:
    runner = subprocess.Popen(
        planted.command("run", "--engine", f"vllm=={planted.version}", "--model", "canary-dense", "--repeats", "1"),
        env=planted.environment(**environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _STARTED.append(runner)
    return runner


def _wait_for_phase(planted: Planted, runner: subprocess.Popen[str], phase: str) -> None:
    """Until the boot's row says `phase`."""
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        for path in (planted.home / "boots").glob("*/run.json"):
            if json.loads(path.read_text())["run"]["phase"] == phase:
                return
        assert runner.poll() is None, runner.stderr.read() if runner.stderr else ""
        time.sleep(0.02)
    pytest.fail(f"phase {phase} was never reached")


@pytest.mark.parametrize("phase", ["install", "ready", "coherence", "throughput"])
def test_a_killed_runner_leaves_no_server_once_the_next_one_starts(planted: Planted, phase: str) -> None:
    runner = _start(planted)
    _wait_for_phase(planted, runner, phase)
    runner.kill()
    runner.communicate(timeout=30)
    code, shown = planted.run()
    assert code == 0, shown
    first, second = _store(planted).query("SELECT outcome, phase, reason FROM runs ORDER BY started_at, run_id")
    assert (first["outcome"], first["phase"]) == ("interrupted", phase)
    assert "without finishing" in first["reason"]
    assert second["outcome"] == "pass"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_runner_ends_its_server_and_files_the_boot(planted: Planted, number: signal.Signals) -> None:
    runner = _start(planted)
    _wait_for_phase(planted, runner, "coherence")
    os.kill(runner.pid, number)
    runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert _store(planted).query("SELECT outcome, phase FROM runs") == [{"outcome": "interrupted", "phase": "coherence"}]


def test_a_server_that_never_answers_and_ignores_sigterm_is_ended_on_interrupt(planted: Planted) -> None:
    runner = _start(planted, SCRIPTED_BOOT="never_ready")
    _wait_for_phase(planted, runner, "ready")
    os.kill(runner.pid, signal.SIGINT)
    runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert _ours(planted) == []


def test_a_reader_that_holds_the_database_does_not_break_a_run(planted: Planted) -> None:
    planted.run()
    store = _store(planted)
    runner = _start(planted)
    _wait_for_phase(planted, runner, "coherence")
    with store.reading() as connection:
        connection.execute("SELECT count(*) FROM runs").fetchall()
        time.sleep(1.0)  # the reader's own pace: it keeps the file while the run goes on
    runner.communicate(timeout=_LONGEST_S)
    assert runner.returncode == 0
    assert len(store.query("SELECT * FROM runs WHERE outcome = 'pass'")) == 2


def test_a_disk_that_fills_up_is_named_and_the_store_stays_readable(planted: Planted) -> None:
    small = planted.root / "small"
    small.mkdir()
    command = planted.command("run", "--engine", f"vllm=={planted.version}", "--model", "canary-dense", "--repeats", "1", "--json")
    mount = 'mount -t tmpfs -o size=700k tmpfs "$0" && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, str(small), *command],
        env=planted.environment(SPARKPROOF_HOME=str(small)),
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "free" in done.stderr.lower() or "disk" in done.stderr.lower()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--engine", "vllm==9.9.9"), 2, "does not exist on the configured index"),
        (("--engine", "foo==1"), 2, "is not an engine we know"),
        (("--engine", "vllm==0.32.0", "--model", "/no/such/folder"), 2, "config.json"),
        (("--engine", "vllm==0.32.0", "--backend", "marln"), 2, "marlin"),
        (("--engine", "vllm==0.32.0", "--suite", "smoek"), 2, "smoke"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(planted: Planted, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = planted.sparkproof("run", *arguments)
    assert done.returncode == code
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (planted.home / "boots").exists()


def test_a_dry_run_prints_the_command_and_starts_nothing(planted: Planted) -> None:
    done = planted.sparkproof("run", "--engine", "vllm==0.32.0", "--model", "canary-dense", "--dry-run", "--json")
    (boot,) = json.loads(done.stdout)["boots"]
    assert "vllm.entrypoints.openai.api_server" in boot["command"]
    assert not planted.home.exists()
