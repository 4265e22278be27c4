"""Real server logs (`tests/data/boot-logs`): what a boot that ended so is filed as."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.vocabulary import Outcome
from runners.log_diagnosis import diagnose

LOGS = Path(__file__).parents[1] / "data" / "boot-logs"


@pytest.mark.parametrize(
    ("log", "engine", "version", "outcome", "words"),
    [
        ("vllm-0.26.0-h200-moe-nvfp4-triton.log", "vllm", "0.26.0", Outcome.UNSUPPORTED, "moe_backend='triton' is not supported"),
        ("vllm-0.26.0-h200-moe-bf16-marlin.log", "vllm", "0.26.0", Outcome.UNSUPPORTED, "moe_backend='marlin' is not supported"),
        ("sglang-0.5.14-h200-dense-nvfp4.log", "sglang", "0.5.14", Outcome.UNSUPPORTED, "does not support w4a4 nvfp4"),
        ("sglang-0.5.14-h200-dense-nvfp4a16.log", "sglang", "0.5.14", Outcome.CRASH, "num_bits"),
    ],
)
def test_a_failed_start_names_its_first_cause(log: str, engine: str, version: str, outcome: Outcome, words: str) -> None:
    found = diagnose(engine, version, LOGS / log, Outcome.CRASH, "the server exited with code 1 before it was ready")
    assert found.outcome is outcome
    assert found.reason.startswith("the server exited with code 1")
    assert found.signature
    assert words in (found.excerpt or "")


@pytest.mark.parametrize(
    ("engine", "version", "line"),
    [
        ("vllm", "0.32.0", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."),
        ("vllm", "0.32.0", "ValueError: To serve at least one request with the models's max seq len (131072), 9.0 GiB KV cache is needed"),
        ("sglang", "0.5.14", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    ],
)
def test_a_kv_cache_that_does_not_fit_is_out_of_memory_and_no_crash(tmp_path: Path, engine: str, version: str, line: str) -> None:
    log = tmp_path / "server.log"
    prefix = "(EngineCore pid=1) ERROR 11-30 13:00:00 [core.py:1] " if engine == "vllm" else ""
    log.write_text(f"{prefix}{line}\n")
    assert diagnose(engine, version, log, Outcome.CRASH, "the server exited with code 1").outcome is Outcome.OOM


def test_a_healthy_log_explains_nothing_and_its_end_is_kept() -> None:
    found = diagnose("vllm", "0.32.0", LOGS / "vllm-0.32.0-cpu.log", Outcome.HANG, "silent for 180 s")
    assert (found.outcome, found.reason, found.signature) == (Outcome.HANG, "silent for 180 s", None)
    assert found.excerpt


def test_what_the_kernel_proved_is_not_overruled_by_the_log() -> None:
    log = LOGS / "vllm-0.26.0-h200-moe-nvfp4-triton.log"
    assert diagnose("vllm", "0.26.0", log, Outcome.OOM, "killed by the kernel").outcome is Outcome.OOM


def test_a_boot_without_a_log_keeps_what_was_seen_from_outside(tmp_path: Path) -> None:
    found = diagnose("vllm", "0.32.0", tmp_path / "none.log", Outcome.CRASH, "gone")
    assert (found.outcome, found.reason, found.excerpt) == (Outcome.CRASH, "gone", None)


def test_a_log_of_one_endless_line_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"\xff" * 3_000_000)
    assert diagnose("vllm", "0.32.0", log, Outcome.CRASH, "gone").outcome is Outcome.CRASH


def test_a_catalogued_failure_names_the_public_issues(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("RuntimeError: CUDA error: no kernel image is available for execution on the device\n")
    found = diagnose("vllm", "0.17.1", log, Outcome.CRASH, "the server exited with code 1")
    assert "(reported: " in found.reason
    assert found.reason.endswith("(reported: sgl-project/sglang#29317)")
