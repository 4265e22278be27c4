"""Fingerprints: equal for the same crash, different for different crashes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.engines.fingerprint import fingerprint, normalise
from tests.runners.engines.boot_logs import lines_of


def _log(
    *,
    pid: int,
    clock: str,
    folder: str,
    line: int,
    address: str,
    shape: str,
    size: str,
    kind: str = "RuntimeError",
    where: str = "load_model",
) -> list[str]:
    prefix = f"(EngineCore pid={pid}) ERROR 11-30 {clock} [core.py:{line}] "
    return [
        f"{prefix}EngineCore failed to start.",
        f"{prefix}Traceback (most recent call last):",
        f'{prefix}  File "{folder}/vllm/v1/worker/gpu_worker.py", line {line}, in {where}',
        f"{prefix}    self.model_runner.load_model()",
        f'{prefix}  File "{folder}/vllm/model_executor/models/qwen3_moe.py", line {line + 7}, in forward',
        f"{prefix}{kind}: tensor at {address} of shape {shape} in {folder}/weights.bin needs {size} on sm_121",
    ]


_ONE = _log(pid=7, clock="12:00:01", folder="/home/a/venv/lib", line=431, address="0x7f00deadbeef", shape="[8, 4096]", size="12.5 GiB")


def test_same_crash_of_another_boot_has_the_same_fingerprint() -> None:
    other = _log(pid=99123, clock="23:59:59", folder="/srv/x", line=77, address="0x55aa", shape="[16, 128, 2]", size="3 GiB")
    assert fingerprint(_ONE) == fingerprint(other)


def test_log_prefix_does_not_matter() -> None:
    bare = [line.split("] ", 1)[1] for line in _ONE]
    assert fingerprint(bare) == fingerprint(_ONE)
    docker = [f"vllm-1  | {line}" for line in _ONE]
    assert fingerprint(docker) == fingerprint(_ONE)


@pytest.mark.parametrize("change", [{"kind": "ValueError"}, {"where": "profile_run"}])
def test_other_crash_has_another_fingerprint(change: dict[str, str]) -> None:
    base = {"pid": 7, "clock": "12:00:01", "folder": "/v", "line": 431, "address": "0x1", "shape": "[1]", "size": "1 GiB"}
    assert fingerprint(_log(**{**base, **change})) != fingerprint(_ONE)  # type: ignore[arg-type]


def test_fingerprint_begins_with_the_exception() -> None:
    assert fingerprint(_ONE).startswith("RuntimeError-")


def test_recorded_crash_is_the_same_for_dense_and_moe_model() -> None:
    dense = fingerprint(lines_of("sglang-0.5.14-h200-dense-nvfp4a16"))
    assert dense == fingerprint(lines_of("sglang-0.5.14-h200-moe-nvfp4a16"))
    assert dense.startswith("AttributeError-")
    assert dense != fingerprint(lines_of("sglang-0.5.14-h200-dense-nvfp4"))


def test_lines_without_any_error_are_unknown() -> None:
    assert fingerprint(["all is well", ""]) == "unknown"


def test_error_without_traceback_is_named_by_its_line() -> None:
    one = fingerprint(["INFO x", "terminate called: fatal error at 0x1234 pid 77"])
    assert one == fingerprint(["terminate called: fatal error at 0xffff pid 8"])
    assert one.startswith("failure-")


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("at 0xdeadbeef", "at <address>"),
        ("listen tcp://192.0.2.2:4711 failed", "listen <address> failed"),
        ("10.0.0.7:80 refused", "<address> refused"),
        ("2026-11-30 12:00:01,123 late", "<time> late"),
        ("file /opt/x/y.so:33 missing", "file <path> missing"),
        ("shape [1, 2048, 4096] vs (3, 4)", "shape <shape> vs <shape>"),
        ("needs 12,345 tokens and 1.5e-3", "needs # tokens and #"),
        ("Tried to allocate 20.00 MiB", "Tried to allocate # MiB"),
        ("kernel for sm_121 fp8 nvfp4 w4a16 qwen3", "kernel for sm_121 fp8 nvfp4 w4a16 qwen3"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id <id>"),
    ],
)
def test_what_varies_is_replaced_and_kernel_names_stay(text: str, normal: str) -> None:
    assert normalise(text) == normal


@given(st.integers(0, 2**48), st.integers(1, 99999), st.integers(1, 9999))
def test_numbers_never_change_the_fingerprint(address: int, pid: int, line: int) -> None:
    other = _log(pid=pid, clock="01:02:03", folder="/v", line=line, address=hex(address), shape=f"[{pid}, {line}]", size=f"{line} GiB")
    assert fingerprint(other) == fingerprint(_ONE)


@given(st.lists(st.text(max_size=300), max_size=20))
def test_any_lines_have_a_fingerprint(lines: list[str]) -> None:
    assert fingerprint(lines)
