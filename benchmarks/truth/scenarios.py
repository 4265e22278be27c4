"""The streams that the truth server can send: each names the trap it sets and whether a rate can be known at all.

Trap: a client checked against one polite stream is right by luck. Rule: every way in which real engines deliver tokens is a scenario of its
own, and a scenario from which no rate can be known says so, because the right answer to it is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Usage(StrEnum):
    """When the server says how many tokens it has generated."""

    CONTINUOUS = "continuous"
    AT_END = "at_end"
    ABSENT = "absent"


class Api(StrEnum):
    """Which endpoint the scenario is asked through."""

    COMPLETIONS = "completions"
    CHAT = "chat"


@dataclass(frozen=True)
class Scenario:
    """One way of streaming. Times in seconds; `tok_s` is the rate of one stream.

    `chunk_tokens`: possible sizes of a chunk, drawn anew for each chunk with the stream's seed. `jitter`: each chunk is sent up to this
    fraction of its interval late. `slow_first_s`: how long the first token takes. `burst`: all tokens are generated at the rate, but sent
    together at the end (a parser that holds the text back). `stop_after`: the stream ends after so many tokens, whatever was asked.
    `decode_known`, `ttft_known`: whether the rate can be known from outside; where not, null is the right answer.
    """

    name: str
    tok_s: float
    trap: str
    streams: int = 1
    tokens: int = 256
    chunk_tokens: tuple[int, ...] = (1,)
    jitter: float = 0.0
    slow_first_s: float = 0.1
    role_chunk: bool = False
    text_field: str = "text"
    finish_delay_s: float = 0.0
    usage: Usage = Usage.CONTINUOUS
    burst: bool = False
    refuses: tuple[str, ...] = ()
    stop_after: int | None = None
    decode_known: bool = True
    ttft_known: bool = True

    @property
    def api(self) -> Api:
        """A `text` field belongs to completions, every other one to chat."""
        return Api.COMPLETIONS if self.text_field == "text" else Api.CHAT

    def field_of(self, *, chat: bool) -> str:
        """Where the text stands: a scenario of one API may be asked through the other (some tools know only chat)."""
        if not chat:
            return "text"
        return "content" if self.text_field == "text" else self.text_field


def _rates() -> tuple[Scenario, ...]:
    return tuple(
        Scenario(f"steady_{rate}", rate, "none: one token a chunk at a steady rate", tokens=min(1024, max(32, int(rate * 2))))
        for rate in (5, 20, 60, 250, 1000, 5000)
    )


def _streams() -> tuple[Scenario, ...]:
    return tuple(
        Scenario(f"streams_{count}x60", 60.0, "the client becomes the bottleneck (M21)", streams=count, tokens=128) for count in (4, 16, 64)
    )


_CHAT = {"text_field": "content", "role_chunk": True}

SCENARIOS: tuple[Scenario, ...] = (
    *_rates(),
    *_streams(),
    Scenario("streams_64_at_once", 60.0, "first tokens come while the client still sends", streams=64, tokens=128, slow_first_s=0.005),
    Scenario("chunks_of_4", 100.0, "chunks counted as tokens; first chunk holds 4 (M1, M2)", chunk_tokens=(4,), tokens=128),
    Scenario("chunks_of_8_short", 60.0, "first chunk holds a quarter of all tokens (M2)", chunk_tokens=(8,), tokens=96),
    Scenario("chunks_1_to_8", 100.0, "random chunk sizes, as speculative decoding sends them (M1, M2)", chunk_tokens=(1, 2, 3, 5, 8)),
    Scenario("jitter", 60.0, "every chunk up to 80 % of its interval late", jitter=0.8),
    Scenario("slow_first", 60.0, "prefill of two seconds", slow_first_s=2.0, tokens=64),
    Scenario("chat_role_early", 60.0, "the role chunk ends TTFT (M3)", slow_first_s=0.5, tokens=96, text_field="content", role_chunk=True),
    Scenario("chat_reasoning", 60.0, "all text in `reasoning` (M5)", tokens=96, text_field="reasoning", role_chunk=True),
    Scenario(
        "chat_reasoning_content", 60.0, "all text in `reasoning_content` (M5)", tokens=96, text_field="reasoning_content", role_chunk=True
    ),
    Scenario("finish_late", 60.0, "finish chunk and [DONE] two seconds after the last token (M4)", finish_delay_s=2.0, tokens=96),
    Scenario("burst", 60.0, "a parser delivers everything at once (M7)", burst=True, tokens=96, decode_known=False),
    Scenario("usage_at_end", 60.0, "tokens of the first chunk unknown (M1, M2)", usage=Usage.AT_END, tokens=96, decode_known=False),
    Scenario("usage_absent", 60.0, "no token count at all (M1)", usage=Usage.ABSENT, tokens=96, decode_known=False, ttft_known=False),
    Scenario(
        "refused_fields",
        60.0,
        "optional request fields are refused with 400 (M8)",
        tokens=96,
        refuses=("return_token_ids", "min_tokens", "skip_special_tokens"),
    ),
    Scenario("early_stop", 60.0, "fewer tokens than asked (M12)", tokens=96, stop_after=40, decode_known=False, ttft_known=False),
)
"""Every scenario, in the order of the table. Names are unique."""

QUICK = ("steady_60", "steady_1000", "streams_16x60", "chunks_of_4", "chat_role_early", "burst", "usage_absent", "early_stop")
"""What `--quick` runs: one scenario of each kind."""


def scenario_of(fields: Mapping[str, Any]) -> Scenario:
    """A scenario out of its fields as JSON carries them."""
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Scenario(**{**fields, **lists, "usage": Usage(fields["usage"])})


def scenario_named(name: str) -> Scenario:
    """The scenario of that name. Raises KeyError."""
    return next(s for s in SCENARIOS if s.name == name) if name in {s.name for s in SCENARIOS} else _unknown(name)


def _unknown(name: str) -> Scenario:
    raise KeyError(f"no scenario {name!r}; known: {', '.join(s.name for s in SCENARIOS)}")
