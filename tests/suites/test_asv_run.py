"""`asv run` makes a boot of the canary and files it under the release it booted, and asv's own commands can read it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from results.asv.export import export
from results.store import Store
from tests.planted import plant as plant_engine
from tests.results.planted_boots import plant as plant_boots

SUITE = Path(__file__).resolve().parents[2] / "suites" / "asv"


def test_asv_run_makes_one_real_boot_and_files_it_under_the_release(tmp_path: Path) -> None:
    planted = plant_engine(tmp_path)
    history = Store(tmp_path / "history")
    plant_boots(history, {"0.31.0": [100.0], "0.32.0": [100.0]})
    folder = tmp_path / "asv"
    export(history, folder, SUITE)
    environment = planted.environment(HOME=str(tmp_path), SPARKPROOF_ASV_ENGINE="vllm==0.32.0")

    def asv(*arguments: str) -> str:
        command = [sys.executable, "-m", "asv", "--config", "run.conf.json", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (commit,) = subprocess.run(
        ["git", "rev-parse", "vllm-0.32.0"], cwd=folder / "releases", capture_output=True, text=True, check=True
    ).stdout.split()
    asv("machine", "--machine", "spark", "--yes")
    asv("run", "-E", f"existing:{sys.executable}", "--set-commit-hash", commit, "--machine", "spark")
    (result,) = (folder / "run" / "results" / "spark").glob(f"{commit[:8]}-*.json")
    values = {name: row[0] for name, row in json.loads(result.read_text())["results"].items()}
    (boot,) = Store(planted.home).query(
        "SELECT r.outcome, m.decode_tok_s FROM runs r JOIN boot_medians m USING (run_id) WHERE m.concurrency = 1"
    )
    assert boot["outcome"] == "pass"
    assert values["canary_boot.CanaryBoot.track_incoherent"] == [0]
    assert abs(values["canary_boot.CanaryBoot.track_time_per_token"][0] * boot["decode_tok_s"] - 1) < 1e-6
    assert "track_time_per_token" in asv("show", "vllm-0.32.0")
