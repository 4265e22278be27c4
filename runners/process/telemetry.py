"""Memory, CPU and GPU of the node and the boot, once a second.

Traps: a GB10 throttles to a third of its clock while `nvidia-smi` says P0 (M19); its memory collapses from 29 to 2.5 GiB within nine
seconds; and a sampler that scans every process each second slows what it measures. Rules: one sample a second during every phase; the
process table is scanned every few seconds and only our own processes in between; the sampler reports its own CPU time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from results.records import ResourceRecord
from results.vocabulary import Phase
from runners.node.gpu import NO_GPU_SAMPLE, GpuSample
from runners.node.memory import used_memory_bytes
from runners.process.guard import LogGuard
from runners.process.members import Members, Target, members
from runners.process.server import ServerProcess
from runners.process.table import ProcessStat, read_stat

_MOST_FAILURES = 20


def _no_gpu() -> GpuSample:
    return NO_GPU_SAMPLE


@dataclass(frozen=True)
class Sources:
    """Where a sample's numbers come from; None or a sample of None: not known here."""

    used_memory: Callable[[], int | None] = used_memory_bytes
    members: Callable[[Target], Members] = members
    read_stat: Callable[[int], ProcessStat | None] = read_stat
    gpu: Callable[[], GpuSample] = _no_gpu


SOURCES = Sources()


class Telemetry:
    """A thread that hands one ResourceRecord per interval to `emit` (called in that thread), with the phase that `phase` then names.

    `guard` is checked before each sample; its `trouble` says whether it ended the boot. `failures` says what could not be sampled, and
    `cpu_share` is the thread's own cost in CPU seconds per second (None before the first sample).
    """

    def __init__(
        self,
        server: ServerProcess,
        emit: Callable[[ResourceRecord], None],
        phase: Callable[[], Phase],
        *,
        guard: LogGuard | None = None,
        sources: Sources = SOURCES,
        began: float | None = None,
        interval_s: float = 1.0,
        refresh_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.guard = guard or LogGuard(server)
        self.failures: list[str] = []
        self.cpu_share: float | None = None
        self._record = server.record
        self._emit = emit
        self._phase = phase
        self._sources = sources
        self._interval_s = interval_s
        self._refresh_s = refresh_s
        self._clock = clock
        self._began = clock() if began is None else began
        self._refreshed: float | None = None
        self._sampled: float | None = None
        self._known: dict[tuple[int, int], ProcessStat] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Begin sampling. `began` (clock time of the boot's begin) is when `elapsed_s` is 0."""
        self._thread.start()

    def stop(self, patience_s: float = 10.0) -> None:
        """Stop and wait for the thread; a driver that never answers is recorded as a failure, not waited for."""
        self._stop.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            self._failed(f"telemetry did not stop within {patience_s:.0f} s: the GPU driver does not answer")

    def sample(self) -> ResourceRecord:
        """One sample now. CPU is percent of one core since the last sample; RSS counts shared pages once per process."""
        now = self._clock()
        before = self._known
        self._known = self._look(now)
        cpu_percent = None
        if self._sampled is not None and now > self._sampled and self._known:
            used = sum(max(0.0, p.cpu_s - before[key].cpu_s) for key, p in self._known.items() if key in before)
            cpu_percent = 100.0 * used / (now - self._sampled)
        self._sampled = now
        gpu = self._sources.gpu()
        return ResourceRecord(
            run_id=self._record.run_id,
            elapsed_s=now - self._began,
            phase=self._phase(),
            memory_used_bytes=self._sources.used_memory(),
            group_rss_bytes=sum(p.rss_bytes for p in self._known.values()) if self._known else None,
            group_cpu_percent=cpu_percent,
            gpu_memory_used_bytes=gpu.memory_used_bytes,
            gpu_power_w=gpu.power_w,
            gpu_sm_clock_mhz=gpu.sm_clock_mhz,
            gpu_temperature_c=gpu.temperature_c,
            gpu_utilization_percent=gpu.utilization_percent,
        )

    def _look(self, now: float) -> dict[tuple[int, int], ProcessStat]:
        if self._refreshed is None or now - self._refreshed >= self._refresh_s:
            self._refreshed = now
            found: list[ProcessStat | None] = list(self._sources.members(self._record.target).alive)
        else:
            found = [self._sources.read_stat(pid) for pid, _ in self._known]
        living = {(p.pid, p.start_ticks): p for p in found if p is not None and p.alive}
        return living if self._refreshed == now else {key: p for key, p in living.items() if key in self._known}

    def _run(self) -> None:
        started, cpu_started = time.monotonic(), time.thread_time()
        due = started
        while not self._stop.is_set():
            try:
                self.guard.check()
                self._emit(self.sample())
            except Exception as error:  # noqa: BLE001 (a failed sample is recorded and must not end the boot or the next samples)
                self._failed(f"telemetry: {type(error).__name__}: {error}"[:300])
            self.cpu_share = (time.thread_time() - cpu_started) / max(time.monotonic() - started, self._interval_s)
            due = max(due + self._interval_s, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def _failed(self, reason: str) -> None:
        if reason not in self.failures and len(self.failures) < _MOST_FAILURES:
            self.failures.append(reason)
