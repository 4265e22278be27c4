"""Whole boots against an engine that speculates: its own counters are stored per workload, shown, and never invented."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from results.boot_folder import BootFolder
from results.store import Store
from results.summary import summarise
from runners.cli.unstored import outcome_alone, summaries_of
from tests.planted import Planted, plant

_LONGEST_S = 180.0


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """One boot of an engine that drafts six tokens a step, of which three are accepted."""
    planted = plant(tmp_path_factory.mktemp("speculative"))
    code, shown = planted.run("--backend", "ngram", SCRIPTED_AS="speculative")
    assert code == 0, shown
    return planted


def test_acceptance_over_the_timed_repeats_is_stored_and_in_the_table(measured: Planted) -> None:
    store = Store(measured.home)
    rows = store.query("SELECT workload, metric, value FROM engine_counters ORDER BY ALL")
    found = {(row["workload"], row["metric"]): row["value"] for row in rows}
    assert {workload for workload, _ in found} == {"decode_c1", "decode_c8"}
    for workload in ("decode_c1", "decode_c8"):
        assert found[workload, "spec_acceptance_rate"] == pytest.approx(0.5)
        assert found[workload, "spec_accepted_length"] == pytest.approx(4.0)
        assert (workload, "ttft_mean_s") not in found, "this engine has no such histogram"
    completions = store.query("SELECT workload, sum(completion_tokens) n FROM samples WHERE NOT cold GROUP BY workload")
    assert {row["workload"]: row["n"] for row in completions} == {w: found[w, "generation_tokens"] for w in ("decode_c1", "decode_c8")}
    (cell,) = summarise(store, [row["run_id"] for row in store.query("SELECT run_id FROM runs")])
    assert cell.counters["decode_c1"]["spec_accepted_length"] == pytest.approx(4.0)


def test_show_and_the_counters_file_hold_them(measured: Planted) -> None:
    (run_id,) = (path.name for path in (measured.home / "boots").iterdir())
    done = measured.sparkproof("show", run_id)
    assert "the engine's own counters" in done.stdout
    assert "4.00" in done.stdout
    detail = json.loads(measured.sparkproof("show", run_id, "--json").stdout)
    assert {row["metric"] for row in detail["engine_counters"]} == {"generation_tokens", "spec_acceptance_rate", "spec_accepted_length"}
    assert (measured.home / "boots" / run_id / "counters.jsonl").exists()


def test_the_flags_of_the_dimension_reach_the_server_and_are_what_was_configured(measured: Planted) -> None:
    (run,) = Store(measured.home).query("SELECT command, configured FROM runs")
    given = run["command"][run["command"].index("--speculative-config") + 1]
    assert json.loads(given)["method"] == "ngram"
    assert json.loads(run["configured"]) == {"speculative": "ngram"}


def test_a_boot_that_the_database_lacks_is_summarised_from_its_folder(measured: Planted, tmp_path: Path) -> None:
    store = Store(measured.home)
    (run_id,) = (path.name for path in store.boots.iterdir())
    run = BootFolder(store.boots, run_id).summary().run
    assert summaries_of(store.boots, [run]) == summarise(store, [run_id])
    (bare,) = summaries_of(tmp_path, [run])
    assert bare == outcome_alone(run)
    assert (bare.outcome, bare.decode_tok_s) == ("pass", None)


def test_a_result_is_shown_even_if_the_database_was_damaged_meanwhile(measured: Planted, tmp_path: Path) -> None:
    (tmp_path / "cache").symlink_to(measured.root / "cache")
    planted = Planted(tmp_path, measured.version)
    command = planted.command("run", "--engine", f"vllm=={planted.version}", "--model", "canary-dense", "--repeats", "1", "--json")
    runner = subprocess.Popen(command, env=planted.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _wait_for_phase(planted, runner, "coherence")
        (planted.home / "sparkproof.duckdb").write_bytes(b"no database" * 2000)
        stdout, stderr = runner.communicate(timeout=_LONGEST_S)
    finally:
        if runner.poll() is None:
            runner.terminate()
            runner.wait(60)
    assert runner.returncode == 3, stderr
    shown = json.loads(stdout)
    assert [(cell["outcome"], cell["gate_matched"]) for cell in shown["cells"]] == [("pass", 89)]
    assert shown["cells"][0]["decode_tok_s"]["count"] == 1
    assert [row["outcome"] for row in shown["unstored"]] == ["pass"]


def _wait_for_phase(planted: Planted, runner: subprocess.Popen[str], phase: str) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline and runner.poll() is None:
        if any(json.loads(path.read_text())["run"]["phase"] == phase for path in (planted.home / "boots").glob("*/run.json")):
            return
        time.sleep(0.02)
    pytest.fail(f"phase {phase} was never reached")
