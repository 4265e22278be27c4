"""Start the truth server in a process of its own, tell it what to send, and fetch what it sent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.truth.scenarios import Scenario
from benchmarks.truth.schedule import Sent, SentStream

_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class RunningTruth:
    """A truth server on loopback."""

    base_url: str

    def choose(self, scenario: Scenario, piece: str = " one") -> None:
        """Send `scenario` from now on, and forget what was sent. `piece` is the text of one token."""
        httpx.post(f"{self.base_url}/scenario", json={"name": scenario.name, "piece": piece}, trust_env=False).raise_for_status()

    def sent(self) -> tuple[tuple[SentStream, int], ...]:
        """Every stream since `choose`, in the order asked, with its prompt tokens."""
        answer = httpx.get(f"{self.base_url}/sent", trust_env=False, timeout=60).raise_for_status().json()
        return tuple(
            (SentStream(s["key"], s["t_request"], tuple(Sent(**e) for e in s["events"]), s["lateness_s"]), s["prompt_tokens"])
            for s in answer["streams"]
        )


@contextmanager
def truth_server() -> Iterator[RunningTruth]:
    """A server that ends with the block, or with this process: it serves until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.truth.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_REPOSITORY, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the truth server did not start")
        yield RunningTruth(f"http://127.0.0.1:{json.loads(line)['port']}")
    finally:
        process.stdin.close()
        process.wait(timeout=10)
