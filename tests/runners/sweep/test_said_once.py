"""What an engine says once a process must be said for every checkpoint (on an H200 the second INT4 checkpoint named no kernel)."""

from __future__ import annotations

import os
import subprocess
import sys

from runners.sweep import pool
from tests.runners.sweep.planted_worker import PACKAGES, REPOSITORY

_ASK = """
import sys, types
import vllm_engine
scheme = types.ModuleType("vllm.model_executor.layers.quantization.schemes.wna16")
class Scheme:
    _kernel_backends_being_used = {"MacheteLinearKernel"}
scheme.Scheme = Scheme
logger = types.ModuleType("vllm.logger")
class Said:
    cleared = False
    def cache_clear(self):
        self.cleared = True
logger.once = Said()
sys.modules[scheme.__name__], sys.modules["vllm.logger"] = scheme, logger
vllm_engine._forget_what_was_said_once()
print(Scheme._kernel_backends_being_used, logger.once.cleared)
"""


def test_kernels_named_once_a_process_are_named_again_for_the_next_checkpoint() -> None:
    path = os.pathsep.join((str(PACKAGES), str(pool.WORKER.parent)))
    environment = {**os.environ, "PYTHONPATH": path, "FAKE_REPOSITORY": str(REPOSITORY), "FAKE_VERSION": "0.26.0"}
    asked = subprocess.run([sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert asked.stdout.strip() == "set() True", asked.stderr
