from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import pytest

from results.records import ResourceRecord
from results.vocabulary import Phase
from runners.node.gpu import GpuSample
from runners.process.members import Members, Target
from runners.process.server import ServerProcess
from runners.process.table import ProcessStat
from runners.process.telemetry import Sources, Telemetry
from tests.runners.process.conftest import Start, eventually

GPU = GpuSample(memory_used_bytes=None, power_w=19.5, sm_clock_mhz=799, temperature_c=61.0, utilization_percent=96.0)


def process(pid: int, cpu_s: float, *, start: int = 1, rss: int = 100, state: str = "S") -> ProcessStat:
    return ProcessStat(pid, 1, 1, 1, start, state, "p", cpu_s, 0.0, 1, rss)


@dataclass
class World:
    """Processes and a clock that the test sets; counts the expensive scans."""

    processes: dict[int, ProcessStat] = field(default_factory=dict)
    now: float = 50.0
    scans: int = 0

    def members(self, target: Target) -> Members:
        self.scans += 1
        return Members(tuple(self.processes.values()))

    def sources(self) -> Sources:
        return Sources(lambda: 7, self.members, self.processes.get, lambda: GPU)


@pytest.fixture
def server(start: Start) -> ServerProcess:
    return start("import time; time.sleep(600)")


def telemetry(server: ServerProcess, world: World) -> Telemetry:
    return Telemetry(server, lambda record: None, lambda: Phase.WARMUP, sources=world.sources(), clock=lambda: world.now)


def test_sample_carries_phase_time_and_what_the_node_says(server: ServerProcess) -> None:
    world = World({1: process(1, 5.0), 2: process(2, 1.0)})
    sampler = telemetry(server, world)
    world.now += 12.5
    assert sampler.sample() == ResourceRecord(
        run_id=server.record.run_id,
        elapsed_s=12.5,
        phase=Phase.WARMUP,
        memory_used_bytes=7,
        group_rss_bytes=200,
        group_cpu_percent=None,
        gpu_memory_used_bytes=None,
        gpu_power_w=19.5,
        gpu_sm_clock_mhz=799,
        gpu_temperature_c=61.0,
        gpu_utilization_percent=96.0,
    )


def test_cpu_is_percent_of_one_core_since_the_last_sample(server: ServerProcess) -> None:
    world = World({1: process(1, 5.0), 2: process(2, 1.0)})
    sampler = telemetry(server, world)
    sampler.sample()
    world.now += 2.0
    world.processes.update({1: process(1, 8.0), 2: process(2, 1.5)})
    assert sampler.sample().group_cpu_percent == pytest.approx(175.0)


def test_process_seen_for_the_first_time_brings_no_cpu_of_its_past(server: ServerProcess) -> None:
    world = World({1: process(1, 5.0)})
    sampler = telemetry(server, world)
    sampler.sample()
    world.now += 6.0
    world.processes[2] = process(2, 1000.0)
    assert sampler.sample().group_cpu_percent == 0.0


def test_number_reused_between_two_scans_is_not_counted_as_ours(server: ServerProcess) -> None:
    world = World({1: process(1, 5.0), 2: process(2, 1.0)})
    sampler = telemetry(server, world)
    sampler.sample()
    world.now += 1.0
    world.processes[2] = process(2, 900.0, start=2, rss=10**12)
    record = sampler.sample()
    assert (record.group_rss_bytes, record.group_cpu_percent) == (100, 0.0)


def test_process_table_is_scanned_only_every_few_seconds(server: ServerProcess) -> None:
    world = World({1: process(1, 5.0)})
    sampler = telemetry(server, world)
    for _ in range(10):
        sampler.sample()
        world.now += 1.0
    assert world.scans == 2


def test_without_a_living_process_group_values_are_unknown_and_not_zero(server: ServerProcess) -> None:
    world = World({1: process(1, 5.0, state="Z")})
    sampler = telemetry(server, world)
    sampler.sample()
    world.now += 1.0
    record = sampler.sample()
    assert (record.group_rss_bytes, record.group_cpu_percent) == (None, None)


def test_thread_samples_a_real_server_and_names_its_own_cost(start: Start) -> None:
    server = start("while True: pass")
    records: list[ResourceRecord] = []
    sampler = Telemetry(server, records.append, lambda: Phase.THROUGHPUT, interval_s=0.05)
    sampler.start()
    try:
        assert eventually(lambda: len(records) >= 5 and records[-1].group_cpu_percent)
    finally:
        sampler.stop()
    assert sampler.failures == []
    assert sampler.cpu_share is not None and sampler.cpu_share > 0
    assert all(r.memory_used_bytes and r.group_rss_bytes for r in records[:5])
    assert [r.elapsed_s for r in records] == sorted(r.elapsed_s for r in records)
    seen = len(records)
    assert not eventually(lambda: len(records) > seen, seconds=0.2)


def test_sample_that_fails_is_recorded_once_and_sampling_goes_on(server: ServerProcess) -> None:
    records: list[ResourceRecord] = []
    failing = threading.Event()
    failing.set()

    def used_memory() -> int:
        if failing.is_set():
            raise OSError("meminfo is gone")
        return 1

    sources = replace(World().sources(), used_memory=used_memory)
    sampler = Telemetry(server, records.append, lambda: Phase.READY, sources=sources, interval_s=0.01)
    sampler.start()
    try:
        assert eventually(lambda: sampler.failures)
        failing.clear()
        assert eventually(lambda: records)
    finally:
        sampler.stop()
    assert sampler.failures == ["telemetry: OSError: meminfo is gone"]


def test_driver_that_never_answers_does_not_hold_up_the_end(server: ServerProcess) -> None:
    answer, asked = threading.Event(), threading.Event()

    def gpu() -> GpuSample:
        asked.set()
        answer.wait()
        return GPU

    sampler = Telemetry(server, lambda record: None, lambda: Phase.READY, sources=replace(World().sources(), gpu=gpu))
    sampler.start()
    assert asked.wait(20)
    sampler.stop(patience_s=0.05)
    answer.set()
    assert ["does not answer" in f for f in sampler.failures] == [True]
