"""Is this node fit to be measured on? One record before and one after each boot.

Trap: a GB10 that negotiated too little power runs at 799 MHz and 19.5 W while `nvidia-smi` says P0, and its 42.7 in place of 73.9 tok/s is
filed as a regression of the engine (M19). Rule: what a sensor shows makes a node `suspect`; a probe that differs from this node's own
history makes it `void`, and what was measured then does not count; what cannot be read makes it neither.

Sources of the limits: GB10 owners' reports of 500-850 MHz and 15-30 W at 94-96 % utilisation, and of a hidden state of two thirds of the
speed that no sensor shows.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from results.records import HealthRecord, NodeRecord, ResourceRecord
from results.vocabulary import Phase
from runners.node.gpu import GpuSample
from runners.node.memory import MemInfo, read_memory
from runners.node.probe import TORCH_CUDA, ProbeResult

OK, SUSPECT, VOID, UNKNOWN = "ok", "suspect", "void", "unknown"

PROBE_TOLERANCE = 0.05
LEAST_HISTORY = 5
"""Probes of the same kind on this node before a difference means anything."""
HISTORY_LENGTH = 40
_SIGMAS = 3.0
_MAD_TO_SIGMA = 1.4826

NOMINAL_GB_S = {"GB10": 273.0, "H200": 4800.0, "H100 NVL": 3900.0, "H100 PCIe": 2000.0, "H100": 3350.0, "B200": 8000.0}
"""Memory bandwidth of the data sheets, by a part of the GPU's name; the first that fits."""

GB10_CAPABILITY = "12.1"
BUSY_PERCENT = 90.0
LEAST_POWER_W = 40.0
LEAST_SM_CLOCK_MHZ = 1500
_LEAST_BUSY_SAMPLES = 3

_SERIOUS_THROTTLES = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
_HOT_C = 90.0
_LEAST_DISK_BYTES = 5 << 30
_MUCH_SWAP_BYTES = 1 << 30


@dataclass(frozen=True)
class Reading:
    """The node at one moment; None: not known here. `gpu` is the sample under the probe's load, else an idle one."""

    memory: MemInfo
    disk_free_bytes: int | None
    gpu: GpuSample
    throttle_reasons: tuple[str, ...] | None = None
    other_gpu_processes: int | None = None
    probe: ProbeResult | None = None
    caches_dropped: bool = False


@dataclass(frozen=True)
class Judgement:
    """`ok`, `suspect`, `void` or `unknown`, with one sentence for each reason; also the percentages of the record."""

    verdict: str
    reasons: tuple[str, ...]
    percent_of_nominal: float | None = None
    percent_of_history: float | None = None


def judge(reading: Reading, history: Sequence[float], node: NodeRecord) -> Judgement:
    """The rules of this module on one reading. `history` are earlier bandwidths (GB/s) of the same probe on this node."""
    bandwidth = reading.probe.bandwidth_gb_s if reading.probe else None
    suspicions = [*_throttled(reading.gpu, node), *_sensors(reading)]
    notes: list[str] = []
    share = None
    off = None
    if bandwidth is None:
        notes.append("no probe" if reading.probe is None else f"{reading.probe.probe}: {reading.probe.problem}")
    elif len(history) < LEAST_HISTORY:
        notes.append(f"no history yet: {len(history)} of {LEAST_HISTORY} probes")
    else:
        share = bandwidth / statistics.median(history)
        off = _off(bandwidth, share, history)
    if off is not None:
        verdict = VOID
    elif suspicions:
        verdict = SUSPECT
    else:
        verdict = UNKNOWN if bandwidth is None else OK
    nominal = nominal_gb_s(node.gpu_name) if reading.probe and reading.probe.probe == TORCH_CUDA else None
    return Judgement(
        verdict,
        (*((off,) if off else ()), *suspicions, *notes),
        percent_of_nominal=100.0 * bandwidth / nominal if bandwidth is not None and nominal is not None else None,
        percent_of_history=100.0 * share if share is not None else None,
    )


def nominal_gb_s(gpu_name: str | None) -> float | None:
    """The data sheet's memory bandwidth, None for a GPU that is not in the table."""
    return next((value for part, value in NOMINAL_GB_S.items() if part in (gpu_name or "")), None)


def tolerance(history: Sequence[float]) -> float:
    """How far a probe may be from the median of `history`, as a share of it.

    5 %, or three robust standard deviations of the history itself where that is more: a virtual machine whose neighbours come and go
    would otherwise void every visit. A short history knows its own spread badly, so five probes are allowed twice as much as many.
    """
    middle = statistics.median(history)
    deviation = statistics.median([abs(value - middle) for value in history]) * _MAD_TO_SIGMA
    return max(PROBE_TOLERANCE, _SIGMAS * (1.0 + LEAST_HISTORY / len(history)) * deviation / middle)


def _off(bandwidth: float, share: float, history: Sequence[float]) -> str | None:
    allowed = tolerance(history)
    if abs(share - 1.0) <= allowed:
        return None
    direction = "slower" if share < 1.0 else "faster"
    return (
        f"the memory probe gives {bandwidth:.4g} GB/s, {abs(share - 1.0):.0%} {direction} than this node's median of "
        f"{statistics.median(history):.4g} GB/s ({len(history)} probes, {allowed:.0%} allowed)"
    )


def _throttled(gpu: GpuSample, node: NodeRecord) -> list[str]:
    if node.compute_capability != GB10_CAPABILITY or (gpu.utilization_percent or 0.0) <= BUSY_PERCENT or not _is_low(gpu):
        return []
    return [f"platform-suspect: {_told(gpu)} under load (at least {LEAST_POWER_W:.0f} W and {LEAST_SM_CLOCK_MHZ} MHz expected)"]


def _is_low(gpu: GpuSample) -> bool:
    low_power = gpu.power_w is not None and gpu.power_w < LEAST_POWER_W
    low_clock = gpu.sm_clock_mhz is not None and gpu.sm_clock_mhz < LEAST_SM_CLOCK_MHZ
    return low_power or low_clock


def _told(gpu: GpuSample) -> str:
    parts = (
        f"{gpu.power_w:.1f} W" if gpu.power_w is not None else None,
        f"{gpu.sm_clock_mhz} MHz" if gpu.sm_clock_mhz is not None else None,
        f"{gpu.utilization_percent:.0f} % utilisation" if gpu.utilization_percent is not None else None,
    )
    return ", ".join(part for part in parts if part)


def _sensors(reading: Reading) -> list[str]:
    found = []
    serious = [name for name in reading.throttle_reasons or () if name in _SERIOUS_THROTTLES]
    if serious:
        found.append(f"the driver lowers the clocks: {', '.join(serious)}")
    if reading.gpu.temperature_c is not None and reading.gpu.temperature_c >= _HOT_C:
        found.append(f"the GPU is at {reading.gpu.temperature_c:.0f} °C")
    if reading.other_gpu_processes:
        found.append(f"{reading.other_gpu_processes} other process(es) hold GPU memory")
    swap = reading.memory.swap_used_bytes
    if swap is not None and swap > _MUCH_SWAP_BYTES:
        found.append(f"{swap / 2**30:.1f} GiB of swap is in use")
    if reading.disk_free_bytes is not None and reading.disk_free_bytes < _LEAST_DISK_BYTES:
        found.append(f"only {reading.disk_free_bytes / 2**30:.1f} GiB of disk is free")
    return found


def record(run_id: str, moment: str, read_at: str, reading: Reading, judgement: Judgement) -> HealthRecord:
    """The row of one reading."""
    return HealthRecord(
        run_id=run_id,
        read_at=read_at,
        moment=moment,
        verdict=judgement.verdict,
        reasons=judgement.reasons,
        probe=reading.probe.probe if reading.probe else None,
        bandwidth_gb_s=reading.probe.bandwidth_gb_s if reading.probe else None,
        percent_of_nominal=judgement.percent_of_nominal,
        percent_of_history=judgement.percent_of_history,
        gpu_temperature_c=reading.gpu.temperature_c,
        gpu_power_w=reading.gpu.power_w,
        gpu_sm_clock_mhz=reading.gpu.sm_clock_mhz,
        gpu_utilization_percent=reading.gpu.utilization_percent,
        throttle_reasons=reading.throttle_reasons or (),
        other_gpu_processes=reading.other_gpu_processes,
        memory_available_bytes=reading.memory.available_bytes,
        page_cache_bytes=reading.memory.cached_bytes,
        swap_used_bytes=reading.memory.swap_used_bytes,
        disk_free_bytes=reading.disk_free_bytes,
        caches_dropped=reading.caches_dropped,
    )


def throttled_while_timed(samples: Iterable[ResourceRecord], node: NodeRecord) -> str | None:
    """A sentence if most busy samples of the throughput phase show a GB10 at too little power or clock (M19), else None."""
    if node.compute_capability != GB10_CAPABILITY:
        return None
    timed = [_gpu_of(s) for s in samples if s.phase is Phase.THROUGHPUT]
    busy = [gpu for gpu in timed if (gpu.utilization_percent or 0.0) > BUSY_PERCENT]
    low = [gpu for gpu in busy if _is_low(gpu)]
    if len(busy) < _LEAST_BUSY_SAMPLES or 2 * len(low) <= len(busy):
        return None
    worst = min(low, key=lambda gpu: (gpu.sm_clock_mhz or 0, gpu.power_w or 0.0))
    return f"platform-suspect while timed: {len(low)} of {len(busy)} busy samples are low, such as {_told(worst)}"


def _gpu_of(sample: ResourceRecord) -> GpuSample:
    return GpuSample(
        power_w=sample.gpu_power_w,
        sm_clock_mhz=sample.gpu_sm_clock_mhz,
        temperature_c=sample.gpu_temperature_c,
        utilization_percent=sample.gpu_utilization_percent,
    )


def drop_caches(path: Path = Path("/proc/sys/vm/drop_caches"), sync: Callable[[], None] = os.sync) -> bool:
    """Write the page cache back and let the kernel drop it, as NVIDIA's playbooks for the DGX Spark do. False where not permitted."""
    try:
        with path.open("w") as control:  # opened first: nobody waits for a sync that helps nothing
            sync()
            control.write("3\n")
    except OSError:
        return False
    return True


def read_memory_and_disk(folder: Path) -> tuple[MemInfo, int | None]:
    """Memory now, and the free bytes of the disk that holds `folder` (None if it cannot be asked)."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        free = None
    return read_memory(), free
