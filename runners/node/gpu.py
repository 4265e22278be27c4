"""What the NVIDIA driver says about the GPU.

Trap: on a GB10 every memory query answers NVML_ERROR_NOT_SUPPORTED ("[N/A]" in nvidia-smi), and tools that take that for a broken
driver refuse to run or crash (rossumai/nvgpu#37). Rule: each question is asked on its own; whatever the driver does not answer is None.
GPU memory is the device's where it answers, else the sum over the processes the driver lists (GB10 does list them).
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

SMI_FIELDS = ("name", "compute_cap", "driver_version", "vbios_version", "clocks.max.sm")
_SMI_TIMEOUT_S = 20.0
_NOT_ANSWERED = ("n/a", "not supported", "unknown error", "insufficient permissions", "gpu is lost", "requested functionality", "unknown")


@dataclass(frozen=True)
class GpuIdentity:
    """What does not change during a boot. `compute_capability` such as "12.1"; `cuda_version` is the driver's newest, such as "13.0"."""

    name: str | None = None
    compute_capability: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    vbios_version: str | None = None
    sm_clock_max_mhz: int | None = None
    power_limit_w: float | None = None
    power_source: str | None = None
    uuid: str | None = None
    """Of this very GPU: only ever hashed, never stored."""


@dataclass(frozen=True)
class GpuSample:
    """One moment of the GPU; None: the driver does not say."""

    memory_used_bytes: int | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    temperature_c: float | None = None
    utilization_percent: float | None = None


NO_GPU_SAMPLE = GpuSample()

_POWER_SOURCES = {0: "mains", 1: "battery", 2: "undersized supply"}
"""NVML_POWER_SOURCE_AC, _BATTERY and _UNDERSIZED (nvml.h)."""

ORDINARY_CLOCK_REASONS = 0x1 | 0x2 | 0x10 | 0x100
"""Idle, clocks set by an application, by a sync group or by the display: nothing holds the GPU back that somebody did not ask for."""
THROTTLE_REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReason*)."""


class Nvml:
    """The first GPU, through NVML. Every method answers None where the driver does not; none raises for it."""

    def __init__(self, library: Any, device: Any) -> None:
        self._library = library
        self._device = device

    @classmethod
    def open(cls, library: Any = pynvml) -> Nvml | None:
        """Connect to the driver; None without a driver or a GPU."""
        try:
            library.nvmlInit()
            return cls(library, library.nvmlDeviceGetHandleByIndex(0))
        except library.NVMLError:
            return None

    def close(self) -> None:
        """Disconnect from the driver."""
        self._ask("nvmlShutdown")

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._library, function)(*arguments)
        except self._library.NVMLError:
            return None

    def identity(self) -> GpuIdentity:
        """Name, capability, versions and the highest SM clock of the device (a lock set with `nvidia-smi -lgc` does not show in it)."""
        capability = self._ask("nvmlDeviceGetCudaComputeCapability", self._device)
        cuda = self._ask("nvmlSystemGetCudaDriverVersion_v2")
        return GpuIdentity(
            name=_text(self._ask("nvmlDeviceGetName", self._device)),
            compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
            driver_version=_text(self._ask("nvmlSystemGetDriverVersion")),
            cuda_version=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            vbios_version=_text(self._ask("nvmlDeviceGetVbiosVersion", self._device)),
            sm_clock_max_mhz=self._ask("nvmlDeviceGetMaxClockInfo", self._device, self._library.NVML_CLOCK_SM),
            power_limit_w=_watts(self._ask("nvmlDeviceGetEnforcedPowerLimit", self._device)),
            power_source=_POWER_SOURCES.get(self._ask("nvmlDeviceGetPowerSource", self._device)),
            uuid=_text(self._ask("nvmlDeviceGetUUID", self._device)),
        )

    def sample(self) -> GpuSample:
        """Memory, power, SM clock, temperature and utilisation now."""
        power_mw = self._ask("nvmlDeviceGetPowerUsage", self._device)
        temperature = self._ask("nvmlDeviceGetTemperature", self._device, self._library.NVML_TEMPERATURE_GPU)
        rates = self._ask("nvmlDeviceGetUtilizationRates", self._device)
        return GpuSample(
            memory_used_bytes=self._memory_used(),
            power_w=_watts(power_mw),
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self._device, self._library.NVML_CLOCK_SM),
            temperature_c=None if temperature is None else float(temperature),
            utilization_percent=None if rates is None else float(rates.gpu),
        )

    def process_memory(self) -> dict[int, int | None] | None:
        """Bytes of GPU memory per process number (None: listed without an amount); None where the driver does not list processes."""
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", self._device)
        return None if processes is None else {p.pid: p.usedGpuMemory for p in processes}

    def throttle_reasons(self) -> tuple[str, ...] | None:
        """Why the clocks are lower than asked for, in NVML's words; None where the driver does not say."""
        bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._device)
        if bits is None:
            return None
        unknown = bits & ~(sum(THROTTLE_REASONS) | ORDINARY_CLOCK_REASONS)
        named = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
        return tuple(named + ([f"unknown_{unknown:#x}"] if unknown else []))

    def pids(self) -> frozenset[int] | None:
        """Numbers of the processes that hold GPU memory; None where the driver does not list them."""
        listed = self.process_memory()
        return None if listed is None else frozenset(listed)

    def _memory_used(self) -> int | None:
        device = self._ask("nvmlDeviceGetMemoryInfo", self._device)
        if device is not None:
            return int(device.used)
        listed = self.process_memory()
        amounts = [] if listed is None else list(listed.values())
        known = [amount for amount in amounts if amount is not None]
        return sum(known) if listed is not None and len(known) == len(amounts) else None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000.0


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def parse_smi(answer: str) -> GpuIdentity | None:
    """Read the first line of `nvidia-smi --query-gpu=<SMI_FIELDS> --format=csv,noheader,nounits`; None if it is not such a line."""
    rows = list(csv.reader(answer.splitlines()[:1], skipinitialspace=True))
    if not rows or len(rows[0]) != len(SMI_FIELDS):
        return None
    name, capability, driver, vbios, clock = (_smi_value(value) for value in rows[0])
    return GpuIdentity(
        name=name,
        compute_capability=capability,
        driver_version=driver,
        vbios_version=vbios,
        sm_clock_max_mhz=int(clock) if clock is not None and clock.isascii() and clock.isdecimal() else None,
    )


def _smi_value(value: str) -> str | None:
    bare = value.strip().strip("[]").strip()
    return None if not bare or bare.lower().startswith(_NOT_ANSWERED) else bare


def ask_smi() -> str | None:
    """Run nvidia-smi; None if there is none, it fails, or the driver does not answer in time."""
    command = ("nvidia-smi", f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout[:10_000]


def read_gpu(nvml: Callable[[], Nvml | None] = Nvml.open, smi: Callable[[], str | None] = ask_smi) -> GpuIdentity | None:
    """The GPU's identity from NVML, else from nvidia-smi; None on a node without one."""
    connection = nvml()
    if connection is not None:
        try:
            return connection.identity()
        finally:
            connection.close()
    answer = smi()
    return None if answer is None else parse_smi(answer)
