"""Sample a process tree as large as an engine's once a second, into a real boot folder, and tell what the sampling thread used.

python -m benchmarks.telemetry --seconds 60 --children 12
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import psutil

from results.boot_folder import BootFolder, new_run_id
from results.records import ResourceRecord
from results.vocabulary import Phase
from runners.engines.base import ServeCommand
from runners.node.gpu import Nvml
from runners.node.kernel_log import KernelTail
from runners.process.interrupt import interruptible
from runners.process.server import launch
from runners.process.teardown import stop
from runners.process.telemetry import Sources, Telemetry

_TREE = """
import subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) for _ in range(int(sys.argv[1]))]
time.sleep(3600)
"""


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--children", type=int, default=12, help="processes of the tree besides its leader")
    options = parser.parse_args()
    with interruptible(), tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(measure(Path(scratch), options.seconds, options.children), indent=1))


def measure(scratch: Path, seconds: float, children: int) -> dict[str, object]:
    """CPU share of the sampling thread over `seconds`, and what it sampled."""
    folder = BootFolder(scratch, new_run_id())
    folder.create()
    nvml, tail = Nvml.open(), KernelTail()
    taken = 0

    def emit(record: ResourceRecord) -> None:
        nonlocal taken
        taken += 1
        folder.append([record])
        tail.new_lines()

    server = launch(ServeCommand((sys.executable, "-c", _TREE, str(children)), {}), folder.path, folder.run_id, 0)
    try:
        while len(server.members().alive) <= children:
            time.sleep(0.2)
        sources = Sources(gpu=nvml.sample) if nvml is not None else Sources()
        telemetry = Telemetry(server, emit, lambda: Phase.THROUGHPUT, sources=sources)
        telemetry.start()
        time.sleep(seconds)
        telemetry.stop()
    finally:
        proof = stop(server)
        tail.close()
    return {
        "telemetry_cpu_percent_of_one_core": None if telemetry.cpu_share is None else round(100 * telemetry.cpu_share, 3),
        "samples": taken,
        "seconds": seconds,
        "processes_of_the_boot": children + 1,
        "processes_on_the_node": len(psutil.pids()),
        "gpu": nvml is not None,
        "kernel_log_readable": os.access("/dev/kmsg", os.R_OK),
        "failures": telemetry.failures,
        "python": platform.python_version(),
        "clean_end": proof.clean,
    }


if __name__ == "__main__":
    main()
