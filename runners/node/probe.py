"""How fast this node's memory is now, by one matrix-vector product that reads far more than any cache holds.

Trap: GB10 owners report a hidden slow state, 63 or 94 ms a step with the same `nvidia-smi`: no sensor shows it, only work does. Rule: the
same small work before and after every boot. Bandwidth = bytes of the matrix / the seconds that a quarter of the products undercut:
other processes only ever make a product slower.
"""

from __future__ import annotations

import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from results.redact import plain
from runners.envs.command import Finished, run_command
from runners.node.gpu import NO_GPU_SAMPLE, GpuSample

TORCH_CUDA, NUMPY = "torch-cuda", "numpy"
_SCRIPT = Path(__file__).with_name("gemv_torch.py")
_TORCH_TIMEOUT_S = 120.0
"""Importing torch from a cold disk took 40 s on a busy node."""
_CPU_ROWS, _CPU_COLUMNS, _CPU_PRODUCTS = 8192, 8192, 8
"""256 MiB in float32; the largest L3 caches of server CPUs are of that order, but of all cores together."""
_SAMPLE_S = 0.2
_LOADED_PERCENT = 50.0


@dataclass(frozen=True)
class ProbeResult:
    """`bandwidth_gb_s` (10^9 bytes per second), or `problem`: why there is none. `under_load` is the GPU while it worked."""

    probe: str
    bandwidth_gb_s: float | None = None
    problem: str | None = None
    under_load: GpuSample = NO_GPU_SAMPLE


def bandwidth_gb_s(matrix_bytes: int, seconds: Sequence[float]) -> float | None:
    """`matrix_bytes` / lower quartile of `seconds` / 1e9; None without at least two positive times."""
    usable = [s for s in seconds if s > 0]
    if len(usable) < 2:
        return None
    return matrix_bytes / statistics.quantiles(usable, n=4, method="inclusive")[0] / 1e9


def numpy_probe(clock: Callable[[], float] = time.perf_counter) -> ProbeResult:
    """The product on the CPU, in this process. Takes under a second and 256 MiB."""
    matrix = np.ones((_CPU_ROWS, _CPU_COLUMNS), dtype=np.float32)
    vector = np.ones(_CPU_COLUMNS, dtype=np.float32)
    seconds = []
    for number in range(_CPU_PRODUCTS + 1):
        started = clock()
        matrix @ vector
        if number > 0:  # the first one wakes the threads of the linear algebra library
            seconds.append(clock() - started)
    return ProbeResult(NUMPY, bandwidth_gb_s(matrix.nbytes, seconds))


def _run_torch(python: Path) -> Finished:
    command = [str(python), "-I", str(_SCRIPT)]
    return run_command(command, environment=os.environ, folder=_SCRIPT.parent, timeout_s=_TORCH_TIMEOUT_S)


def torch_probe(
    python: Path, sample: Callable[[], GpuSample] = lambda: NO_GPU_SAMPLE, run: Callable[[Path], Finished] = _run_torch
) -> ProbeResult:
    """The product on the GPU, by the torch of the environment of `python`; `sample` is asked while it works."""
    with _Watching(sample) as watching:
        try:
            done = run(python)
        except OSError as error:
            return ProbeResult(TORCH_CUDA, problem=f"the environment's Python cannot be started: {error.strerror}")
    if done.returncode is None:
        return ProbeResult(TORCH_CUDA, problem=f"no answer within {_TORCH_TIMEOUT_S:.0f} s")
    return read_torch(done, watching.busiest)


def read_torch(done: Finished, under_load: GpuSample) -> ProbeResult:
    """What the script printed. Anything but its one JSON line is a problem, never an error."""
    try:
        found = json.loads(done.output.strip().splitlines()[-1])
        problem = found.get("problem")
        bandwidth = None if problem else bandwidth_gb_s(int(found["bytes"]), [float(s) for s in found["seconds"]])
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        last = done.messages[-1] if done.messages else "no message"
        return ProbeResult(TORCH_CUDA, problem=plain(f"torch failed (exit code {done.returncode}): {last}", 300))
    if bandwidth is None:
        return ProbeResult(TORCH_CUDA, problem=plain(str(problem or "too few products"), 300))
    return ProbeResult(TORCH_CUDA, bandwidth, under_load=under_load)


class _Watching:
    """Samples the GPU while a block runs and keeps the sample with the highest utilisation, then the highest power."""

    def __init__(self, sample: Callable[[], GpuSample]) -> None:
        self._sample = sample
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="probe-watch", daemon=True)
        self.busiest = NO_GPU_SAMPLE

    def __enter__(self) -> _Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10.0)

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            found = self._sample()
            if (found.utilization_percent or 0.0) >= _LOADED_PERCENT and _load(found) > _load(self.busiest):
                self.busiest = found


def _load(sample: GpuSample) -> tuple[float, float]:
    return (sample.utilization_percent or 0.0, sample.power_w or 0.0)
