"""Start the truth server in a process of its own, tell it what to send, and fetch what it sent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.truth.scenarios import Scenario
from benchmarks.truth.schedule import Sent, SentStream

_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class RunningTruth:
    """A truth server on loopback; `realtime`: the system runs it before ordinary processes."""

    base_url: str
    realtime: bool

    def choose(self, scenario: Scenario, piece: str = " one", prompt_tokens: int = 64) -> None:
        """Send `scenario` from now on, and forget what was sent. `piece` is the text of one token; a text prompt is said to have
        `prompt_tokens` (ids are counted)."""
        body = {**asdict(scenario), "piece": piece, "prompt_tokens": prompt_tokens}
        httpx.post(f"{self.base_url}/scenario", json=body, trust_env=False).raise_for_status()

    def begun(self) -> bool:
        """Whether a stream was asked for since `choose`."""
        return bool(httpx.get(f"{self.base_url}/begun", trust_env=False).raise_for_status().json()["streams"])

    def sent(self) -> tuple[tuple[SentStream, int], ...]:
        """Every stream since `choose`, in the order asked, with its prompt tokens."""
        answer = httpx.get(f"{self.base_url}/sent", trust_env=False, timeout=60).raise_for_status().json()
        return tuple((_stream(s), s["prompt_tokens"]) for s in answer["streams"])


def _stream(sent: dict[str, Any]) -> SentStream:
    fields = {name: value for name, value in sent.items() if name not in ("events", "prompt_tokens")}
    return SentStream(**fields, events=tuple(Sent(**event) for event in sent["events"]))


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
        started = json.loads(line)
        yield RunningTruth(f"http://127.0.0.1:{started['port']}", started["realtime"])
    finally:
        process.stdin.close()
        process.wait(timeout=10)
        process.stdout.close()
