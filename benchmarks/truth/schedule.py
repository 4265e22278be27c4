"""When each chunk of one stream is due, and what the true rates of a sent stream are. Pure.

Trap: a truth that is the plan is wrong by whatever the server was late. Rule: the plan only says when to send; the truth is computed from
the times at which the chunks really were handed to the socket, by formulas written here anew, not by those that are being checked.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from benchmarks.truth.scenarios import Scenario, Usage


@dataclass(frozen=True)
class Due:
    """One event to send `after_s` after the request was read. `tokens`: all tokens generated up to here; `kind`: role, text or finish."""

    after_s: float
    kind: str
    new_tokens: int
    tokens: int


@dataclass(frozen=True)
class Sent:
    """One event as it was really sent: `t` on the monotonic clock that all processes of this machine share, `took_s` inside the send."""

    t: float
    kind: str
    new_tokens: int
    tokens: int
    took_s: float = 0.0


@dataclass(frozen=True)
class SentStream:
    """One answered request: when its last byte was read, and every event that was sent.

    `lateness_s`: the worst delay against the plan, which is no error, because the truth is what was sent. `unread_s`: how long the server
    had not looked at its sockets before it read the request, so how much earlier the request may have come.
    """

    key: str
    t_request: float
    events: tuple[Sent, ...]
    lateness_s: float
    unread_s: float = 0.0
    asked_tokens: int = 0


@dataclass(frozen=True)
class Truth:
    """True numbers of one sent stream; None where there is none (one chunk has no decode rate)."""

    ttft_s: float | None
    decode_tok_s: float | None
    tokens: int
    prefill_tok_s: float | None = None
    ttft_doubt_s: float = 0.0
    decode_doubt: float = 0.0


@lru_cache(maxsize=512)
def plan_of(scenario: Scenario, seed: int, asked_tokens: int) -> tuple[Due, ...]:
    """The events of one stream. The chunk that brings the count to n is due when token n is generated, plus its jitter.

    A scenario without chance has one plan for every seed.
    """
    rng = random.Random(seed)
    total = asked_tokens if scenario.stop_after is None else min(asked_tokens, scenario.stop_after)
    events: list[Due] = [Due(0.0, "role", 0, 0)] if scenario.role_chunk else []
    done = 0
    while done < total:
        new = min(rng.choice(scenario.chunk_tokens), total - done)
        done += new
        generated = scenario.slow_first_s + (done - 1) / scenario.tok_s
        after_s = generated + rng.random() * scenario.jitter * new / scenario.tok_s
        events.append(Due(max([after_s, *(event.after_s for event in events[-1:])]), "text", new, done))
    if scenario.burst:
        last = events[-1].after_s
        events = [e if e.kind == "role" else Due(last, e.kind, e.new_tokens, e.tokens) for e in events]
    return (*events, Due(events[-1].after_s + scenario.finish_delay_s, "finish", 0, done))


def truth_of(stream: SentStream, prompt_tokens: int, *, burst: bool) -> Truth:
    """From the sent text chunks: first one minus request, and tokens after the first chunk over the time from the first to the last one.

    A burst has neither a decode nor a prefill rate: nothing of when its tokens were generated can be seen. What the server does not know of
    itself: when a request came while it did not look, and when within a send the bytes left.
    """
    text = [event for event in stream.events if event.kind == "text"]
    if not text:
        return Truth(None, None, 0)
    first, last = text[0], text[-1]
    ttft = first.t - stream.t_request
    doubt = stream.unread_s + first.took_s
    if burst:
        return Truth(ttft, None, last.tokens, None, doubt)
    window = last.t - first.t
    decode = (last.tokens - first.tokens) / window if window > 0 else None
    prefill = prompt_tokens / ttft if ttft > 0 else None
    return Truth(ttft, decode, last.tokens, prefill, doubt, (first.took_s + last.took_s) / window if window > 0 else 0.0)


def seed_matters(scenario: Scenario) -> bool:
    """Whether chance has a part in the scenario's plan."""
    return scenario.jitter > 0 or len(scenario.chunk_tokens) > 1


def usage_asked(scenario: Scenario, body: Mapping[str, Any]) -> Usage:
    """What a request gets to see: what it asked for with `stream_options`, and never more than the scenario reports."""
    options = body.get("stream_options") or {}
    wanted = (
        Usage.ABSENT if not options.get("include_usage") else Usage.CONTINUOUS if options.get("continuous_usage_stats") else Usage.AT_END
    )
    order = (Usage.ABSENT, Usage.AT_END, Usage.CONTINUOUS)
    return min(wanted, scenario.usage, key=order.index)


def usage_of(event: Due, prompt_tokens: int, usage: Usage) -> dict[str, int] | None:
    """The `usage` object of an event; None if this event has none."""
    if usage is Usage.ABSENT or (usage is Usage.AT_END and event.kind != "finish"):
        return None
    return {"prompt_tokens": prompt_tokens, "completion_tokens": event.tokens, "total_tokens": prompt_tokens + event.tokens}
