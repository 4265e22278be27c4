from __future__ import annotations

from pathlib import Path

from results.boot_folder import BootFolder, BootSummary
from results.records import NodeRecord, ResourceRecord, RunRecord
from results.store import Store
from results.vocabulary import Outcome, Phase

RUN = "20261130T130501Z-1f00ab42"
AT = "2026-11-30T13:05:01+00:00"


def test_peaks_and_minima_of_each_phase_are_a_query_and_unknown_stays_unknown(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = BootFolder(store.boots, RUN)
    folder.create()
    run = RunRecord(RUN, "s", "c", "x", "vllm", "0.32.0", "venv", "m", "eager", "n", 1, AT, AT, outcome=Outcome.PASS)
    folder.write_summary(BootSummary(run, NodeRecord("n", "spark")))
    folder.append(
        [
            ResourceRecord(RUN, 1.0, Phase.READY, memory_used_bytes=5),
            ResourceRecord(RUN, 2.0, Phase.THROUGHPUT, memory_used_bytes=9, gpu_power_w=19.5, gpu_sm_clock_mhz=799),
            ResourceRecord(RUN, 3.0, Phase.THROUGHPUT, memory_used_bytes=7, gpu_power_w=62.0, gpu_sm_clock_mhz=2405),
        ]
    )
    store.ingest(folder)
    ready, timed = store.query("SELECT * FROM resource_extremes ORDER BY phase")
    assert (ready["phase"], ready["memory_used_bytes_max"], ready["gpu_power_w_min"]) == ("ready", 5, None)
    assert (timed["samples"], timed["memory_used_bytes_max"]) == (2, 9)
    assert (timed["gpu_power_w_min"], timed["gpu_power_w_max"]) == (19.5, 62.0)
    assert (timed["gpu_sm_clock_mhz_min"], timed["gpu_sm_clock_mhz_max"]) == (799, 2405)
