from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.envs.uv_output import diagnose

DATA = Path(__file__).parents[2] / "data" / "envs" / "uv"

CAUSES = {
    "build-failed": ("build", "needs nvcc"),
    "bytecode-timeout": ("busy", "Bytecode timed out"),
    "conflict": ("conflict", "transformers==4.57.1"),
    "connection-refused": ("network", "Connection refused"),
    "disk-full": ("disk_full", "No space left on device"),
    "disk-full-in-cache": ("disk_full", "No space left on device"),
    "dns-error": ("network", "dns error"),
    "http-401": ("not_found", "six was not found"),
    "http-403": ("not_found", "six was not found"),
    "http-503": ("network", "503 Service Unavailable"),
    "no-such-package": ("not_found", "sparkproof-nonexistent-zzz"),
    "no-such-version": ("not_found", "sglang==9.9.9"),
    "no-wheel-for-this-python": ("python", "cp312"),
    "no-wheel-for-this-python-transitive": ("python", "cp312"),
    "requires-newer-python": ("python", "3.10.13"),
    "torch-backend-unreachable": ("network", "torch-builds.invalid"),
    "torch-cpu-not-found": ("torch_cpu_missing", "2.11.0+cpu"),
}


def test_every_recorded_failure_has_an_expected_cause():
    assert {path.stem for path in DATA.glob("*.txt")} == set(CAUSES)


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_recorded_failure_is_told_by_its_cause_and_its_decisive_line(name):
    failure = diagnose((DATA / f"{name}.txt").read_text(encoding="utf-8").splitlines())
    cause, decisive = CAUSES[name]
    assert failure.cause == cause
    assert decisive in str(failure)
    assert failure.lines[0].startswith("error:")
    assert len(failure.lines) <= 12


def test_five_hundred_lines_become_the_first_and_the_last():
    messages = ["Resolved 1 package", "error: Failed to build `x`", *(f"  line {i}" for i in range(500)), "RuntimeError: needs nvcc"]
    failure = diagnose(messages)
    assert len(failure.lines) == 12
    assert (failure.lines[0], failure.lines[-1]) == ("error: Failed to build `x`", "RuntimeError: needs nvcc")


def test_credentials_and_escapes_are_not_kept():
    failure = diagnose(["\x1b[31merror: Failed to fetch: https://user:sekret@mirror.example/simple/six/\x1b[0m"])
    assert failure.cause == "network"
    assert "sekret" not in str(failure)
    assert "\x1b" not in str(failure)


def test_silence_is_unknown_and_not_a_cause():
    assert diagnose([]).cause == "unknown"
    assert diagnose([]).lines == ("uv gave no reason",)


@given(st.lists(st.text(max_size=300), max_size=60))
def test_any_output_gives_a_bounded_answer(messages):
    failure = diagnose(messages)
    assert 1 <= len(failure.lines) <= 12
    assert all(len(line) <= 500 for line in failure.lines)
