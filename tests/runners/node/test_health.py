from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from results.records import NodeRecord, ResourceRecord
from results.vocabulary import Phase
from runners.node.gpu import NO_GPU_SAMPLE, GpuSample
from runners.node.health import (
    LEAST_HISTORY,
    PROBE_TOLERANCE,
    Reading,
    drop_caches,
    judge,
    nominal_gb_s,
    record,
    throttled_while_timed,
    tolerance,
)
from runners.node.memory import MemInfo
from runners.node.probe import NUMPY, TORCH_CUDA, ProbeResult

GIB = 1 << 30
GB10 = NodeRecord("0" * 16, "spark", gpu_name="NVIDIA GB10", compute_capability="12.1")
H200 = NodeRecord("1" * 16, "h200", gpu_name="NVIDIA H200", compute_capability="9.0")
CPU = NodeRecord("2" * 16, "cpu")
WELL = GpuSample(power_w=62.0, sm_clock_mhz=2405, temperature_c=64.0, utilization_percent=96.0)
STUCK = GpuSample(power_w=19.5, sm_clock_mhz=799, temperature_c=48.0, utilization_percent=96.0)
"""M19: 42.7 in place of 73.9 tok/s, with P0 shown."""
STEADY = [238.0, 239.0, 238.5, 237.8, 238.2, 238.4]
MEMORY = MemInfo(total_bytes=128 * GIB, available_bytes=110 * GIB, swap_total_bytes=16 * GIB, swap_free_bytes=16 * GIB)


def reading(bandwidth: float | None = 238.0, gpu: GpuSample = WELL, probe: str = TORCH_CUDA) -> Reading:
    return Reading(MEMORY, 500 * GIB, gpu, (), 0, ProbeResult(probe, bandwidth, None if bandwidth else "no torch"))


def test_node_like_its_own_history_is_ok_and_has_its_percentages() -> None:
    judged = judge(reading(240.0), STEADY, GB10)
    assert (judged.verdict, judged.reasons) == ("ok", ())
    assert judged.percent_of_nominal == pytest.approx(100 * 240 / 273)
    assert judged.percent_of_history == pytest.approx(100 * 240 / statistics.median(STEADY))


@pytest.mark.parametrize(("bandwidth", "direction"), [(238.3 * 63 / 94, "slower"), (238.3 * 0.94, "slower"), (238.3 * 1.06, "faster")])
def test_hidden_slow_state_that_no_sensor_shows_voids_the_visit(bandwidth: float, direction: str) -> None:
    judged = judge(reading(bandwidth), STEADY, GB10)
    assert judged.verdict == "void"
    assert direction in judged.reasons[0] and "238.3 GB/s" in judged.reasons[0]


def test_probe_within_five_percent_is_no_reason() -> None:
    assert judge(reading(238.3 * 0.96), STEADY, GB10).verdict == "ok"


def test_node_whose_own_probes_swing_is_allowed_its_own_noise() -> None:
    noisy = [12.0, 7.5, 13.5, 5.2, 12.5, 14.8, 12.4, 9.0] * 4
    assert tolerance(noisy) > 0.3
    assert judge(reading(9.5, NO_GPU_SAMPLE, NUMPY), noisy, CPU).verdict == "ok"
    assert judge(reading(2.0, NO_GPU_SAMPLE, NUMPY), noisy, CPU).verdict == "void"
    assert tolerance(noisy[:5]) > tolerance(noisy), "five probes know their own spread badly"


@pytest.mark.parametrize("length", range(LEAST_HISTORY))
def test_without_enough_history_nothing_is_void(length: int) -> None:
    judged = judge(reading(100.0), STEADY[:length], GB10)
    assert judged.verdict == "ok"
    assert judged.percent_of_history is None
    assert judged.reasons == (f"no history yet: {length} of {LEAST_HISTORY} probes",)


@pytest.mark.parametrize(
    "gpu",
    [STUCK, replace(WELL, power_w=22.0), replace(WELL, sm_clock_mhz=1499), replace(STUCK, sm_clock_mhz=None), replace(STUCK, power_w=None)],
)
def test_gb10_at_full_load_with_little_power_or_clock_is_platform_suspect(gpu: GpuSample) -> None:
    judged = judge(reading(gpu=gpu), STEADY, GB10)
    assert judged.verdict == "suspect"
    assert judged.reasons[0].startswith("platform-suspect:")


@pytest.mark.parametrize(
    ("gpu", "node"),
    [
        (replace(STUCK, utilization_percent=90.0), GB10),
        (replace(STUCK, utilization_percent=None), GB10),
        (GpuSample(utilization_percent=96.0), GB10),
        (STUCK, H200),
        (WELL, GB10),
    ],
    ids=["not busy", "utilisation unknown", "power and clock unknown", "another GPU's limits are others", "well"],
)
def test_what_is_not_known_or_not_busy_is_no_suspicion(gpu: GpuSample, node: NodeRecord) -> None:
    assert judge(reading(gpu=gpu), STEADY, node).verdict == "ok"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"throttle_reasons": ("gpu_idle", "hw_thermal_slowdown")}, "hw_thermal_slowdown"),
        ({"other_gpu_processes": 2}, "2 other process(es) hold GPU memory"),
        ({"disk_free_bytes": GIB}, "1.0 GiB of disk"),
        ({"memory": replace(MEMORY, swap_free_bytes=13 * GIB)}, "3.0 GiB of swap"),
        ({"gpu": replace(WELL, temperature_c=93.0)}, "93 °C"),
    ],
)
def test_sensor_that_worries_makes_the_node_suspect_and_says_why(change: dict[str, object], words: str) -> None:
    judged = judge(replace(reading(), **change), STEADY, GB10)  # type: ignore[arg-type]
    assert judged.verdict == "suspect"
    assert words in "; ".join(judged.reasons)


@pytest.mark.parametrize("reasons", [None, (), ("gpu_idle",), ("sw_power_cap",)])
def test_ordinary_throttle_reasons_are_no_suspicion(reasons: tuple[str, ...] | None) -> None:
    assert judge(replace(reading(), throttle_reasons=reasons), STEADY, GB10).verdict == "ok"


def test_void_wins_over_suspect_and_both_are_said() -> None:
    judged = judge(reading(150.0, STUCK), STEADY, GB10)
    assert judged.verdict == "void"
    assert len(judged.reasons) == 2


def test_no_probe_is_unknown_and_never_ok() -> None:
    assert judge(reading(None), STEADY, GB10).verdict == "unknown"
    assert judge(replace(reading(), probe=None), STEADY, GB10).reasons == ("no probe",)


def test_node_of_which_nothing_is_known_is_unknown() -> None:
    judged = judge(Reading(MemInfo(), None, NO_GPU_SAMPLE), (), CPU)
    row = record("20261130T130501Z-1f00ab42", "before", "2026-11-30T13:05:01+00:00", Reading(MemInfo(), None, NO_GPU_SAMPLE), judged)
    assert (row.verdict, row.bandwidth_gb_s, row.memory_available_bytes, row.swap_used_bytes) == ("unknown", None, None, None)


@pytest.mark.parametrize(
    ("name", "value"), [("NVIDIA GB10", 273.0), ("NVIDIA H200", 4800.0), ("NVIDIA H100 PCIe", 2000.0), ("GeForce", None), (None, None)]
)
def test_nominal_bandwidth_is_known_for_data_sheet_gpus_only(name: str | None, value: float | None) -> None:
    assert nominal_gb_s(name) == value


def test_a_cpus_bandwidth_is_no_share_of_the_gpus_nominal_one() -> None:
    assert judge(reading(12.0, probe=NUMPY), (), GB10).percent_of_nominal is None


def timed(gpu: GpuSample, phase: Phase = Phase.THROUGHPUT) -> ResourceRecord:
    return ResourceRecord(
        "r", 1.0, phase, gpu_power_w=gpu.power_w, gpu_sm_clock_mhz=gpu.sm_clock_mhz, gpu_utilization_percent=gpu.utilization_percent
    )


def test_throttling_in_most_busy_samples_of_the_timing_is_said_with_the_worst_one() -> None:
    told = throttled_while_timed([timed(STUCK)] * 3 + [timed(WELL)] * 2, GB10)
    assert told is not None and "3 of 5 busy samples" in told and "19.5 W, 799 MHz" in told


@pytest.mark.parametrize(
    ("samples", "node"),
    [
        ([timed(STUCK)] * 2, GB10),
        ([timed(STUCK)] * 3 + [timed(WELL)] * 3, GB10),
        ([timed(STUCK, Phase.LAUNCH)] * 9, GB10),
        ([timed(replace(STUCK, utilization_percent=5.0))] * 9, GB10),
        ([timed(STUCK)] * 9, H200),
        ([], GB10),
    ],
    ids=["too few", "half", "not timed", "idle", "not a GB10", "none"],
)
def test_too_little_evidence_of_throttling_is_none(samples: list[ResourceRecord], node: NodeRecord) -> None:
    assert throttled_while_timed(samples, node) is None


@given(st.lists(st.floats(1.0, 1e4), min_size=LEAST_HISTORY, max_size=40), st.floats(1.0, 1e4))
def test_void_means_further_from_the_median_than_allowed(history: list[float], bandwidth: float) -> None:
    share = bandwidth / statistics.median(history)
    assume(abs(abs(share - 1) - tolerance(history)) > 1e-9)
    assert tolerance(history) >= PROBE_TOLERANCE
    assert (judge(reading(bandwidth), history, GB10).verdict == "void") == (abs(share - 1) > tolerance(history))


def test_recorded_probes_of_an_h200_are_steady_enough_for_five_percent() -> None:
    recorded = json.loads((Path(__file__).parents[2] / "data" / "node" / "h200-gemv.json").read_text())["bfloat16 32768x16384 GB/s"]
    assert tolerance(recorded) == PROBE_TOLERANCE
    assert {judge(reading(value), recorded, H200).verdict for value in recorded} == {"ok"}
    assert 85 < (judge(reading(recorded[0]), recorded, H200).percent_of_nominal or 0) < 90
    assert judge(reading(statistics.median(recorded) * 0.94), recorded, H200).verdict == "void"


def test_caches_are_dropped_after_a_sync_and_only_where_permitted(tmp_path: Path) -> None:
    synced: list[str] = []
    control = tmp_path / "drop_caches"
    control.touch()
    assert drop_caches(control, lambda: synced.append("sync"))
    assert (synced, control.read_text()) == (["sync"], "3\n")
    assert not drop_caches(tmp_path / "missing" / "drop_caches", lambda: synced.append("again"))
    assert synced == ["sync"]
