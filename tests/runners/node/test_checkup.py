from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from results.boot_folder import BootFolder, BootSummary
from results.records import HealthRecord, NodeRecord, ResourceRecord, RunRecord
from results.store import Store
from results.vocabulary import Outcome, Phase
from runners.node.checkup import Checkup, Instruments, probe_history
from runners.node.gpu import GpuSample, Nvml
from runners.node.memory import MemInfo
from runners.node.probe import ProbeResult
from tests.runners.node.test_gpu import GB10 as GB10_ANSWERS
from tests.runners.node.test_gpu import FakeNvml

RUN = "20261130T130501Z-1f00ab42"
GB10 = NodeRecord("0" * 16, "spark", gpu_name="NVIDIA GB10", compute_capability="12.1", driver_version="580.159.03")
CPU = NodeRecord("2" * 16, "cpu")
LOADED = GpuSample(power_w=61.0, sm_clock_mhz=2405, temperature_c=66.0, utilization_percent=96.0)
STEADY = (238.0, 239.0, 238.5, 237.8, 238.2, 238.4)


@dataclass
class World:
    """A node that answers as told; `bandwidths` are handed out one a probe, the last one for ever."""

    bandwidths: list[float]
    dropped: int = 0
    slept: list[float] = field(default_factory=list)
    probed_with: list[Path] = field(default_factory=list)

    def instruments(self, nvml: Callable[[], Nvml | None] = lambda: None) -> Instruments:
        def bandwidth() -> float:
            return self.bandwidths.pop(0) if len(self.bandwidths) > 1 else self.bandwidths[0]

        def torch(python: Path, sample: Callable[[], GpuSample]) -> ProbeResult:
            self.probed_with.append(python)
            return ProbeResult("torch-cuda", bandwidth(), under_load=LOADED)

        def drop() -> bool:
            self.dropped += 1
            return True

        return Instruments(
            lambda folder: (MemInfo(total_bytes=128 << 30, available_bytes=100 << 30, cached_bytes=5 << 30), 500 << 30),
            nvml,
            torch,
            lambda: ProbeResult("numpy", bandwidth()),
            drop,
            self.slept.append,
        )


def checkup(world: World, node: NodeRecord = GB10, *, history: tuple[float, ...] = STEADY, **more: object) -> Checkup:
    has_cuda = node.gpu_name is not None
    nvml = (lambda: Nvml.open(FakeNvml(GB10_ANSWERS))) if has_cuda else (lambda: None)
    return Checkup(
        node, has_cuda, Path("/"), lambda: "2026-11-30T13:05:01+00:00", lambda probe: history, instruments=world.instruments(nvml), **more
    )  # type: ignore[arg-type]


PYTHON = Path("/env/bin/python")


def test_gpu_is_probed_with_the_engines_torch_and_recorded_under_load() -> None:
    world = World([238.3])
    row = checkup(world).look(RUN, "before", PYTHON)
    assert world.probed_with == [PYTHON]
    assert (row.verdict, row.moment, row.probe, row.bandwidth_gb_s) == ("suspect", "before", "torch-cuda", 238.3)
    assert (row.gpu_power_w, row.gpu_sm_clock_mhz) == (61.0, 2405), "the sample under the probe's load, not an idle one"
    assert row.other_gpu_processes == 2 and "2 other process(es)" in row.reasons[0]
    assert (row.memory_available_bytes, row.page_cache_bytes, row.disk_free_bytes) == (100 << 30, 5 << 30, 500 << 30)


def test_node_that_stays_slow_is_probed_three_times_and_void() -> None:
    world = World([160.0])
    row = checkup(world).look(RUN, "before", PYTHON)
    assert row.verdict == "void"
    assert (len(world.probed_with), world.slept) == (3, [2.0, 2.0])


def test_a_neighbours_burst_of_work_is_passed_over() -> None:
    world = World([160.0, 238.0])
    assert checkup(world).look(RUN, "before", PYTHON).verdict == "suspect"
    assert len(world.probed_with) == 2


def test_gpu_node_without_an_environment_is_unknown_and_cpu_node_uses_numpy() -> None:
    world = World([12.0])
    row = checkup(world, history=()).look(RUN, "before", None)
    assert row.bandwidth_gb_s is None and "container or an endpoint" in "; ".join(row.reasons)
    assert checkup(world, CPU, history=()).look(RUN, "before", None).probe == "numpy"


@pytest.mark.parametrize(("asked", "probes"), [(False, True), (True, False)])
def test_without_a_probe_nothing_is_void(asked: bool, probes: bool) -> None:
    row = checkup(World([1.0]), CPU, probes=probes).look(RUN, "before", None, probe=asked)
    assert (row.verdict, row.probe) == ("unknown", None)


@pytest.mark.parametrize(("wanted", "moment", "dropped"), [(True, "before", True), (True, "after", False), (False, "before", False)])
def test_caches_are_dropped_before_a_boot_and_only_if_wanted(wanted: bool, moment: str, dropped: bool) -> None:
    world = World([238.0])
    row = checkup(world, drops_caches=wanted).look(RUN, moment, PYTHON)
    assert (row.caches_dropped, world.dropped) == (dropped, int(dropped))


def test_throttling_while_timed_makes_the_row_after_the_boot_suspect() -> None:
    low = ResourceRecord(RUN, 1.0, Phase.THROUGHPUT, gpu_power_w=19.5, gpu_sm_clock_mhz=799, gpu_utilization_percent=96.0)
    row = checkup(World([238.0])).look(RUN, "after", PYTHON, timed=[low] * 5)
    assert row.verdict == "suspect"
    assert row.reasons[0].startswith("platform-suspect while timed: 5 of 5")


def stored(root: Path, number: int, node: NodeRecord, bandwidth: float, probe: str = "torch-cuda") -> None:
    store = Store(root)
    run_id = f"20261130T1305{number:02}Z-{number:08x}"
    at = f"2026-11-30T13:05:{number:02}+00:00"
    run = RunRecord(run_id, "s", "c", "x", "vllm", "0.32.0", "venv", "canary-dense", "eager", node.node_id, 1, at, at, outcome=Outcome.PASS)
    folder = BootFolder(store.boots, run_id)
    folder.create()
    folder.write_summary(BootSummary(run, node))
    folder.append([HealthRecord(run_id, at, "before", "ok", probe=probe, bandwidth_gb_s=bandwidth)])
    store.ingest(folder)


def test_history_is_this_nodes_own_of_the_same_probe_and_driver_newest_first(tmp_path: Path) -> None:
    other_driver = NodeRecord("0" * 16, "spark", gpu_name="NVIDIA GB10", compute_capability="12.1", driver_version="590.10")
    stored(tmp_path, 1, GB10, 238.0)
    stored(tmp_path, 2, CPU, 12.0)
    stored(tmp_path, 3, GB10, 11.0, probe="numpy")
    stored(tmp_path, 4, other_driver, 100.0)
    stored(tmp_path, 5, GB10, 239.0)
    assert probe_history(Store(tmp_path), GB10, "torch-cuda") == (239.0, 238.0)


def test_without_a_store_there_is_no_history(tmp_path: Path) -> None:
    assert probe_history(Store(tmp_path / "none"), GB10, "torch-cuda") == ()
