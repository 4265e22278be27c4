"""Looks at the node before and after a boot and judges what it sees against this node's own history.

Trap: the look itself changes what is measured: a probe that holds memory while the baseline is taken, or runs beside the server. Rule: it
runs before the baseline and after the teardown, in seconds, and what it used is gone when it returns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from results.errors import StoreError
from results.records import HealthRecord, NodeRecord, ResourceRecord
from results.store import Store
from runners.node import health
from runners.node.gpu import NO_GPU_SAMPLE, GpuSample, Nvml
from runners.node.memory import MemInfo
from runners.node.probe import NUMPY, TORCH_CUDA, ProbeResult, numpy_probe, torch_probe

DROP_CACHES_VARIABLE = "SPARKPROOF_DROP_CACHES"
"""Set it to 1 to drop the page cache before each boot, where that is permitted."""

PROBE_VARIABLE = "SPARKPROOF_PROBE"
"""Set it to 0 on a node whose memory speed means nothing (shared by others): no probe runs, and no visit is void."""

BEFORE, AFTER = "before", "after"
_TRIES = 3
_PAUSE_S = 2.0

_HISTORY = """
SELECT h.bandwidth_gb_s FROM health h JOIN runs r USING (run_id) LEFT JOIN node_states s USING (node_state_id)
WHERE r.node_id = ? AND h.probe = ? AND h.bandwidth_gb_s IS NOT NULL
  AND s.driver_version IS NOT DISTINCT FROM ? AND s.firmware IS NOT DISTINCT FROM ?
ORDER BY h.read_at DESC LIMIT ?
"""


def probe_history(store: Store, node: NodeRecord, probe: str) -> tuple[float, ...]:
    """The newest bandwidths (GB/s) of one probe on this node under its present driver and firmware; empty while nothing is stored."""
    values = [node.node_id, probe, node.driver_version, node.firmware, health.HISTORY_LENGTH]
    try:
        return tuple(row["bandwidth_gb_s"] for row in store.query(_HISTORY, values))
    except StoreError:
        return ()


def _open_gpu() -> Nvml | None:
    return Nvml.open()


@dataclass(frozen=True)
class Instruments:
    """What the look is made with."""

    memory_and_disk: Callable[[Path], tuple[MemInfo, int | None]] = health.read_memory_and_disk
    nvml: Callable[[], Nvml | None] = _open_gpu
    torch: Callable[[Path, Callable[[], GpuSample]], ProbeResult] = torch_probe
    numpy: Callable[[], ProbeResult] = numpy_probe
    drop_caches: Callable[[], bool] = health.drop_caches
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Checkup:
    """Judges one node. `history` gives earlier bandwidths of a probe; `drops_caches`: the user wants the page cache dropped first."""

    node: NodeRecord
    has_cuda: bool
    folder: Path
    now: Callable[[], str]
    history: Callable[[str], tuple[float, ...]] = lambda probe: ()
    drops_caches: bool = False
    instruments: Instruments = field(default_factory=Instruments)
    probes: bool = True

    @classmethod
    def of(cls, store: Store, node: NodeRecord, *, has_cuda: bool, now: Callable[[], str]) -> Checkup:
        """The checkup of a session on this node, with what the environment says about dropping caches."""
        return cls(
            node,
            has_cuda,
            store.root,
            now,
            lambda probe: probe_history(store, node, probe),
            os.environ.get(DROP_CACHES_VARIABLE) == "1",
            probes=os.environ.get(PROBE_VARIABLE) != "0",
        )

    def look(
        self, run_id: str, moment: str, python: Path | None, *, probe: bool = True, timed: Iterable[ResourceRecord] = ()
    ) -> HealthRecord:
        """One row. `python` has the engine's torch (None: no probe on a GPU node); `timed` is the telemetry of the boot that has ended."""
        dropped = self.drops_caches and moment == BEFORE and self.instruments.drop_caches()
        reading, judgement = self._judged(python, probe=probe and self.probes)
        for _ in range(_TRIES - 1):  # a neighbour's burst of work passes, a slow node stays slow
            if judgement.verdict != health.VOID:
                break
            self.instruments.sleep(_PAUSE_S)
            reading, judgement = self._judged(python, probe=True)
        reading = replace(reading, caches_dropped=dropped)
        low = health.throttled_while_timed(timed, self.node)
        if low is not None:
            verdict = health.SUSPECT if judgement.verdict in (health.OK, health.UNKNOWN) else judgement.verdict
            judgement = replace(judgement, verdict=verdict, reasons=(low, *judgement.reasons))
        return health.record(run_id, moment, self.now(), reading, judgement)

    def _judged(self, python: Path | None, *, probe: bool) -> tuple[health.Reading, health.Judgement]:
        reading = self._read(python, probe=probe)
        known = self.history(reading.probe.probe) if reading.probe is not None else ()
        return reading, health.judge(reading, known, self.node)

    def _read(self, python: Path | None, *, probe: bool) -> health.Reading:
        memory, disk = self.instruments.memory_and_disk(self.folder)
        gpu = self.instruments.nvml()
        if gpu is None:
            return health.Reading(memory, disk, NO_GPU_SAMPLE, probe=self._probe(python, _nothing) if probe else None)
        try:
            others = gpu.pids()
            result = self._probe(python, gpu.sample) if probe else None
            loaded = result.under_load if result is not None and result.under_load != NO_GPU_SAMPLE else gpu.sample()
            return health.Reading(memory, disk, loaded, gpu.throttle_reasons(), None if others is None else len(others), result)
        finally:
            gpu.close()

    def _probe(self, python: Path | None, sample: Callable[[], GpuSample]) -> ProbeResult:
        if not self.has_cuda:
            try:
                return self.instruments.numpy()
            except MemoryError:
                return ProbeResult(NUMPY, problem="no memory for a matrix of 256 MiB")
        if python is None:
            return ProbeResult(TORCH_CUDA, problem="no environment with torch (a container or an endpoint)")
        return self.instruments.torch(python, sample)


def _nothing() -> GpuSample:
    return NO_GPU_SAMPLE
