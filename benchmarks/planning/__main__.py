"""`python -m benchmarks.planning [--json]`: plan 10,000 cells (releases x recipes x backends), each expressed in its release's flags."""

from __future__ import annotations

import argparse
import json
import time
from itertools import cycle, islice

from runners.plan import plan_boots
from runners.spec import EngineSpec
from suites.backends import Unsupported, load_all
from suites.recipes import all_recipes
from suites.workloads import STANDARD_WORKLOADS

CELLS = 10_000
VERSIONS = tuple(f"0.{minor}.0" for minor in range(11, 34))


def measure() -> dict[str, float | int]:
    """Plan and count: seconds, and how many cells a release cannot express."""
    backends, recipes = list(load_all().values()), list(all_recipes().values())
    specs = [EngineSpec("vllm", version) for version in VERSIONS]
    recipes = list(islice(cycle(recipes), -(-CELLS // (len(specs) * len(backends)))))
    started = time.perf_counter()
    boots = plan_boots(specs, recipes, backends, STANDARD_WORKLOADS, 1)
    ids = {boot.cell.cell_id("node", None) for boot in boots}
    seconds = time.perf_counter() - started
    return {
        "cells": len(boots),
        "distinct_ids": len(ids),
        "unsupported": sum(isinstance(boot.cell.expressed, Unsupported) for boot in boots),
        "seconds": round(seconds, 3),
        "seconds_per_10000": round(seconds * CELLS / len(boots), 3),
    }


def main() -> None:
    """Print the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found, indent=1))
    else:
        print(f"{found['cells']:,} cells planned and identified in {found['seconds']:.2f} s ({found['unsupported']:,} unsupported)")


if __name__ == "__main__":
    main()
