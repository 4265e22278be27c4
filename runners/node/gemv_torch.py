"""Memory-bound matrix-vector product with the torch of an engine's environment. Run by `runners/node/probe.py`, never imported.

Trap: a probe with its own torch, or with numpy on the host, measures another memory path than the engine uses. Rule: this file needs
nothing but that environment's torch, and writes one JSON line: seconds per product, bytes per product, or why not.
"""

import json
import sys
import time

import torch

ROWS, COLUMNS = 32768, 16384
"""1 GiB in bf16: on an H200 (60 MiB of L2 cache) twenty repeats spread over 2 %, with half of it over 5 %."""
PRODUCTS = 4
SECONDS = 1.2
"""Long enough that the driver's utilisation, an average over up to a second, belongs to this load."""


def main() -> None:
    """Measure and tell."""
    if not torch.cuda.is_available():
        sys.stdout.write(json.dumps({"problem": "torch sees no CUDA device"}) + "\n")
        return
    matrix = torch.ones(ROWS, COLUMNS, device="cuda", dtype=torch.bfloat16)
    vector = torch.ones(COLUMNS, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        torch.mv(matrix, vector)
    torch.cuda.synchronize()
    seconds = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        started.record()
        for _ in range(PRODUCTS):
            torch.mv(matrix, vector)
        ended.record()
        torch.cuda.synchronize()
        seconds.append(started.elapsed_time(ended) / 1e3 / PRODUCTS)
    sys.stdout.write(json.dumps({"seconds": seconds, "bytes": matrix.numel() * matrix.element_size()}) + "\n")


if __name__ == "__main__":
    main()
