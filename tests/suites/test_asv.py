from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from suites.asv.canary_boot import CanaryBoot

REPOSITORY = Path(__file__).resolve().parents[2]


def test_asv_finds_the_suite_and_no_problem_in_it() -> None:
    command = [sys.executable, "-m", "asv", "check", "-E", f"existing:{sys.executable}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No problems found" in done.stdout


def test_a_rate_is_tracked_as_seconds_per_token_because_asv_knows_only_up_is_worse() -> None:
    assert CanaryBoot().track_time_per_token({"decode_tok_s": {"median": 50.0}}) == 0.02


def test_a_boot_without_a_rate_is_not_available_and_a_failed_gate_is_one() -> None:
    cell = {"decode_tok_s": None, "outcome": "incoherent"}
    assert math.isnan(CanaryBoot().track_time_per_token(cell))
    assert CanaryBoot().track_incoherent(cell) == 1
    assert CanaryBoot().track_incoherent({"outcome": "pass"}) == 0


def test_without_an_engine_the_benchmark_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKPROOF_ASV_ENGINE", raising=False)
    with pytest.raises(NotImplementedError, match="SPARKPROOF_ASV_ENGINE"):
        CanaryBoot().setup_cache()
