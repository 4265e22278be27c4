"""What a client costs, and how much it can take: every tool in a process of its own on the same streams.

Trap: the CPU seconds of a run are mostly imports, tokenizers and prompts. Rule: two runs that differ only in how many streams they time;
the difference of their CPU seconds over the difference of their tokens is what a token costs, measured of all tools in turns, because the
seconds that a start takes move by as much. Capacity is found by raising the rate of 16
streams until a decode rate is off by more than 1 %, or the truth server itself cannot keep its rate. A client that is not run for a while
reads several chunks at once, which is cheaper: on a busy machine the costs of two tools are comparable only with `--realtime`.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.truth.accuracy import PeerSaid, compare_peer
from benchmarks.truth.ours import measure_scenario
from benchmarks.truth.peers import Job, Peer, run_peer
from benchmarks.truth.process import RunningTruth
from benchmarks.truth.scenarios import Scenario

STREAMS = 16
COST = Scenario("cost", 100.0, "CPU seconds per token", streams=STREAMS, tokens=256)
STEPS_TOK_S = (250, 500, 1000)
KEEPS_UP_WITHIN = 0.01
_REPOSITORY = Path(__file__).resolve().parents[2]
_FEW, _MANY = 1, 12


@dataclass(frozen=True)
class Cost:
    """`cpu_s_per_1000`: client CPU seconds per 1,000 tokens, one number a turn that had one. `keeps_up_tok_s`: the highest total rate whose
    worst decode rate was right within 1 %, `stopped_by` why it went no higher (None: not tried). `lag_share`: Sparkproof's own measure at
    that rate, 90th percentile of the lag over the median ITL.
    """

    tool: str
    cpu_s_per_1000: Sequence[float]
    keeps_up_tok_s: float | None = None
    stopped_by: str | None = None
    lag_share: float | None = None


def sparkproof_as_peer(version: str) -> Peer:
    """Our client as a command, like the others."""

    def command(program: Path, job: Job) -> list[str]:
        arguments = (
            job.base_url,
            json.dumps(asdict(job.scenario)),
            str(job.requests // job.scenario.streams),
            str(job.folder / "said.json"),
        )
        return ["env", f"PYTHONPATH={_REPOSITORY}", str(program), "-m", "benchmarks.truth.ours", *arguments]

    return Peer("sparkproof", version, Path(sys.executable), command, _read_ours)


def _read_ours(job: Job) -> PeerSaid:
    path = job.folder / "said.json"
    said = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    decode, ttft, prefill = (tuple(s[name] for s in said if s[name] is not None) for name in ("decode_tok_s", "ttft_s", "prefill_tok_s"))
    shares = sorted(s["lag_s"] / s["itl_p50_s"] for s in said if s["lag_s"] is not None and s["itl_p50_s"])
    lag = shares[len(shares) // 2] if shares else None
    return PeerSaid(job.requests, decode, ttft, prefill, failed=job.requests - len(said), lag_share=lag)


def another_turn(cost: Cost, peer: Peer, server: RunningTruth, tokenizer: Path, *, realtime: bool) -> Cost:
    """With what a token costs this time; unchanged if no tokens came."""
    few, many = (_cpu_and_tokens(peer, server, tokenizer, batches, realtime=realtime) for batches in (_FEW, _MANY))
    tokens = many[1] - few[1]
    return replace(cost, cpu_s_per_1000=(*cost.cpu_s_per_1000, (many[0] - few[0]) / tokens * 1000)) if tokens > 0 else cost


def with_capacity(cost: Cost, peer: Peer, server: RunningTruth, tokenizer: Path, say: Callable[[str], None], *, realtime: bool) -> Cost:
    """With the rate up to which the tool keeps up."""
    reached, lag, stopped = None, None, "the steps end here"
    for rate in STEPS_TOK_S:
        say(f"capacity: {peer.name} at {STREAMS} x {rate} tok/s")
        scenario = Scenario("capacity", float(rate), "how much a client can take", streams=STREAMS, tokens=rate)
        server.choose(scenario, prompt_tokens=64)
        said = run_peer(peer, server, scenario, STREAMS, tokenizer, realtime=realtime).said
        row = compare_peer(peer.name, scenario, said, server.sent())
        why = _stopped_by(rate, row.decode_true_tok_s, row.decode_error, len(said.decode_tok_s), said.trouble)
        if why is not None:
            stopped = why
            break
        reached, lag = float(rate * STREAMS), said.lag_share
    return replace(cost, keeps_up_tok_s=reached, stopped_by=stopped, lag_share=lag)


def _cpu_and_tokens(peer: Peer, server: RunningTruth, tokenizer: Path, batches: int, *, realtime: bool) -> tuple[float, int]:
    server.choose(COST, prompt_tokens=64)
    run = run_peer(peer, server, COST, STREAMS * batches, tokenizer, realtime=realtime)
    return run.cpu_s, sum(stream.events[-1].tokens for stream, _ in server.sent() if stream.events)


def _stopped_by(rate: int, true: float | None, error: float | None, said: int, trouble: str | None) -> str | None:
    """Why a step was not kept up with; None if it was."""
    if trouble is not None:
        return trouble
    if true is None or true < (1 - KEEPS_UP_WITHIN) * rate:
        return f"the truth server reached {true or 0:.0f} of {rate} tok/s a stream"
    if error is None or said == 0:
        return "no decode rate"
    return None if error <= KEEPS_UP_WITHIN else f"decode off by {error:.1%} at {STREAMS} x {rate} tok/s"


def profile(server: RunningTruth) -> list[tuple[str, float]]:
    """Where our client's CPU time goes: (part, share), the largest first, waiting left out. Profiling itself inflates many small calls."""
    server.choose(COST, prompt_tokens=64)
    profiler = cProfile.Profile()
    profiler.enable()
    measure_scenario(server.base_url, COST, _FEW)
    profiler.disable()
    parts: dict[str, float] = {}
    for (file, _, name), (_, _, own_s, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        part = _part(file, name)
        if part is not None:
            parts[part] = parts.get(part, 0.0) + own_s
    total = sum(parts.values())
    return sorted(((part, seconds / total) for part, seconds in parts.items()), key=lambda item: -item[1])


_PARTS: Sequence[tuple[str, str]] = (
    ("runners/stamped_transport", "receive and stamp"),
    ("runners/stream", "receive and stamp"),
    ("h11/", "HTTP framing (h11)"),
    ("httpx/", "httpx"),
    ("httpcore/", "httpx"),
    ("asyncio/", "event loop"),
    ("selectors", "event loop"),
    ("runners/sse", "read events"),
    ("json/", "read events"),
    ("runners/rates", "rates"),
    ("runners/stream_trace", "rates"),
)


def _part(file: str, name: str) -> str | None:
    if "epoll" in name or "acquire" in name:
        return None
    if "socket" in name:
        return "system calls on sockets"
    return next((part for path, part in _PARTS if path in file), "everything else")
