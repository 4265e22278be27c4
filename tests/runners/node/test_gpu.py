from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.node.gpu import SMI_FIELDS, GpuIdentity, GpuSample, Nvml, ask_smi, parse_smi, read_gpu

DATA = Path(__file__).parents[2] / "data" / "node"
GIB = 1 << 30
MISSING = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

GB10: dict[str, Any] = {
    "nvmlDeviceGetName": "NVIDIA GB10",
    "nvmlDeviceGetCudaComputeCapability": (12, 1),
    "nvmlSystemGetDriverVersion": "580.159.03",
    "nvmlSystemGetCudaDriverVersion_v2": 13000,
    "nvmlDeviceGetMaxClockInfo": 3003,
    "nvmlDeviceGetPowerUsage": 19_500,
    "nvmlDeviceGetClockInfo": 799,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=96, memory=0),
    "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=7, usedGpuMemory=63 * GIB), SimpleNamespace(pid=8, usedGpuMemory=GIB)],
}
"""What a GB10 answers; every question that is not in it is NVML_ERROR_NOT_SUPPORTED (device memory, VBIOS)."""


class FakeNvml:
    """NVML as a table of answers, with the real library's constants and errors."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = {"nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetHandleByIndex": "device", **answers}
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            self.asked.append(name)
            answer = self.answers.get(name, MISSING)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return ask


def opened(answers: dict[str, Any]) -> Nvml:
    connection = Nvml.open(FakeNvml(answers))
    assert connection is not None
    return connection


def test_gb10_is_identified_although_half_of_its_questions_are_not_supported() -> None:
    assert opened(GB10).identity() == GpuIdentity("NVIDIA GB10", "12.1", "580.159.03", "13.0", None, 3003)


def test_a_gpu_is_told_from_another_one_of_its_kind() -> None:
    assert opened({**GB10, "nvmlDeviceGetUUID": "GPU-6b1d"}).identity().uuid == "GPU-6b1d"


def test_gb10_sample_takes_memory_from_its_processes() -> None:
    assert opened(GB10).sample() == GpuSample(64 * GIB, 19.5, 799, 61.0, 96.0)


@pytest.mark.parametrize(
    ("answers", "used"),
    [
        ({"nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5 * GIB)}, 5 * GIB),
        ({"nvmlDeviceGetComputeRunningProcesses": []}, 0),
        ({"nvmlDeviceGetComputeRunningProcesses": MISSING}, None),
        ({"nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=7, usedGpuMemory=None)]}, None),
    ],
    ids=["device answers", "no process", "no list", "no amount"],
)
def test_gpu_memory_is_known_only_where_the_driver_says_it(answers: dict[str, Any], used: int | None) -> None:
    assert opened({**GB10, **answers}).sample().memory_used_bytes == used


def test_driver_that_answers_nothing_gives_nothing_and_no_error() -> None:
    silent = opened({})
    assert (silent.identity(), silent.sample(), silent.process_memory(), silent.pids()) == (GpuIdentity(), GpuSample(), None, None)


def test_processes_on_the_gpu_are_listed() -> None:
    assert opened(GB10).process_memory() == {7: 63 * GIB, 8: GIB}
    assert opened(GB10).pids() == frozenset({7, 8})


@pytest.mark.parametrize("failing", ["nvmlInit", "nvmlDeviceGetHandleByIndex"])
def test_node_without_driver_or_gpu_has_no_nvml(failing: str) -> None:
    assert Nvml.open(FakeNvml({failing: pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)})) is None


def test_every_question_exists_in_the_library() -> None:
    fake = FakeNvml({**GB10, "nvmlDeviceGetComputeRunningProcesses": MISSING})
    connection = Nvml.open(fake)
    assert connection is not None
    connection.identity()
    connection.sample()
    connection.close()
    assert {"nvmlInit", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPowerUsage", "nvmlShutdown"} <= set(fake.asked)
    assert [name for name in fake.asked if not callable(getattr(pynvml, name, None))] == []


def test_names_may_come_as_bytes() -> None:
    assert opened({"nvmlDeviceGetName": b"NVIDIA GB10"}).identity().name == "NVIDIA GB10"


def test_smi_line_of_a_gb10_is_read_with_its_gaps() -> None:
    answer = (DATA / "gb10-nvidia-smi.csv").read_text()
    assert parse_smi(answer) == GpuIdentity("NVIDIA GB10", "12.1", "580.159.03")


@pytest.mark.parametrize("gap", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]", "[GPU is lost]", ""])
def test_every_spelling_of_no_answer_is_none(gap: str) -> None:
    assert parse_smi(", ".join([gap] * len(SMI_FIELDS))) == GpuIdentity()


@pytest.mark.parametrize("answer", ["", 'Field "compute_cap" is not a valid field to query.\n', "NVIDIA-SMI has failed, because\n", "\n"])
def test_smi_that_failed_is_no_gpu(answer: str) -> None:
    assert parse_smi(answer) is None


def test_first_of_several_gpus_is_read() -> None:
    assert parse_smi("NVIDIA H200, 9.0, 575.57.08, 96.00.BC.00.01, 1980\nNVIDIA H200, 9.0, 575.57.08, x, 1\n") == GpuIdentity(
        "NVIDIA H200", "9.0", "575.57.08", None, "96.00.BC.00.01", 1980
    )


@settings(deadline=None)
@given(st.text())
def test_any_smi_output_is_read_without_an_error(answer: str) -> None:
    found = parse_smi(answer)
    assert found is None or isinstance(found, GpuIdentity)


def test_nvml_is_asked_first_and_smi_only_without_it() -> None:
    def never() -> str | None:
        raise AssertionError("nvidia-smi was asked although NVML answered")

    fake = FakeNvml(GB10)
    found = read_gpu(lambda: Nvml.open(fake), never)
    assert found is not None and found.compute_capability == "12.1"
    assert fake.asked[-1] == "nvmlShutdown"
    assert read_gpu(lambda: None, lambda: "NVIDIA GB10, 12.1, 580.1, x, 3003") == GpuIdentity(
        "NVIDIA GB10", "12.1", "580.1", None, "x", 3003
    )
    assert read_gpu(lambda: None, lambda: None) is None


@pytest.mark.parametrize(("script", "answer"), [("echo NVIDIA GB10", "NVIDIA GB10\n"), ("exit 9", None)])
def test_smi_is_run_without_a_shell_and_its_failure_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, answer: str | None
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert ask_smi() == answer


def test_smi_that_hangs_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*arguments: Any, **options: Any) -> Any:
        raise subprocess.TimeoutExpired("nvidia-smi", options["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    assert ask_smi() is None


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x1 | 0x2 | 0x10 | 0x100, ()),
        (0x4, ("sw_power_cap",)),
        (0x8 | 0x40 | 0x80, ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")),
        (0x20 | 0x1000, ("sw_thermal_slowdown", "unknown_0x1000")),
        (MISSING, None),
    ],
)
def test_what_holds_the_clocks_back_is_named_and_idle_is_not(bits: Any, reasons: tuple[str, ...] | None) -> None:
    assert opened({"nvmlDeviceGetCurrentClocksThrottleReasons": bits}).throttle_reasons() == reasons


@pytest.mark.parametrize(("milliwatts", "watts"), [(700_000, 700.0), (MISSING, None)])
def test_enforced_power_limit_is_known_only_where_the_driver_says_it(milliwatts: Any, watts: float | None) -> None:
    assert opened({**GB10, "nvmlDeviceGetEnforcedPowerLimit": milliwatts}).identity().power_limit_w == watts


def recorded(moment: str) -> dict[str, Any]:
    """What an H200 answered, as a table for `FakeNvml`; what it did not support is NVML_ERROR_NOT_SUPPORTED."""
    values = next(m["values"] for m in json.loads((DATA / "h200-nvml.json").read_text()) if m["moment"] == moment)
    answers: dict[str, Any] = {}
    for call, value in values.items():
        name, _, argument = call.removesuffix(")").partition("(")
        if isinstance(value, str) and value.startswith("!"):
            continue
        if argument in ("", "SM", "GPU"):
            answers[name] = _structure(value)
    return answers


def _structure(value: Any) -> Any:
    if isinstance(value, list):
        return [_structure(entry) for entry in value]
    return SimpleNamespace(**value) if isinstance(value, dict) else value


def test_h200_as_recorded_is_identified() -> None:
    assert opened(recorded("idle")).identity() == GpuIdentity(
        "NVIDIA H200", "9.0", "580.159.04", "13.0", "96.00.A5.00.1A", 1980, 700.0, "mains"
    )


def test_h200_as_recorded_idle_and_under_load() -> None:
    idle, load = opened(recorded("idle")), opened(recorded("load"))
    assert idle.sample() == GpuSample(644939776, 79.269, 345, 35.0, 0.0)
    assert load.sample() == GpuSample(2036203520, 478.952, 1980, 43.0, 99.0)
    assert (idle.process_memory(), load.process_memory()) == ({}, {428: 1382023168})
    assert (idle.throttle_reasons(), load.throttle_reasons()) == ((), ())


def test_h200_line_of_nvidia_smi_as_recorded() -> None:
    assert parse_smi((DATA / "h200-nvidia-smi.csv").read_text()) == GpuIdentity(
        "NVIDIA H200", "9.0", "580.159.04", None, "96.00.A5.00.1A", 1980
    )


@pytest.mark.parametrize(("source", "word"), [(0, "mains"), (1, "battery"), (2, "undersized supply"), (7, None), (MISSING, None)])
def test_undersized_supply_is_told_where_the_driver_knows_it(source: Any, word: str | None) -> None:
    assert opened({**GB10, "nvmlDeviceGetPowerSource": source}).identity().power_source == word
