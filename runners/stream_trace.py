"""What one streaming request did, as plain data: the only input of `runners.rates`.

Trap: a client that mixes receiving, parsing and arithmetic cannot be checked against a recorded stream. Rule: the transport records bytes
and times (`runners.stream`), the reader turns them into a `StreamTrace` (`runners.sse`), and every rate is computed from that trace alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

TEXT_FIELDS = ("content", "reasoning", "reasoning_content", "text")
"""Where engines put generated text: chat deltas use the first three (vLLM renamed one, vllm-project/vllm#27755), completions `text`."""


class FailureKind(StrEnum):
    """Why a request did not end in a complete answer (the names that `StreamFailure.kind`, and so `invalid_reason`, starts with)."""

    CONNECT_FAILED = "connect_failed"
    HTTP_STATUS = "http_status"
    NOT_A_STREAM = "not_a_stream"
    ERROR_EVENT = "error_event"
    MALFORMED_EVENT = "malformed_event"
    TOO_LARGE = "too_large"
    DROPPED = "dropped"
    TRUNCATED = "truncated"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"


TIMEOUTS = frozenset({FailureKind.FIRST_BYTE_TIMEOUT, FailureKind.IDLE_TIMEOUT, FailureKind.TOTAL_TIMEOUT})
"""The server is there but does not answer in time: a hang."""

CONNECTION_LOST = frozenset({FailureKind.CONNECT_FAILED, FailureKind.DROPPED})
"""The server is not there, or went away: a crash, or an address that is wrong."""


class Chunk(NamedTuple):
    """One stream event that had a choice in it.

    `t`: arrival, seconds, monotonic. `text_len`: characters of non-empty text per field of `TEXT_FIELDS`. `tokens`: the server's running
    `usage.completion_tokens` in this event, None if it had none. `null_text`: text fields were there, all JSON null, and the
    chunk was not the last one (whose text may be null).
    """

    t: float
    text_len: Mapping[str, int] = MappingProxyType({})
    tokens: int | None = None
    finish_reason: str | None = None
    null_text: bool = False

    @property
    def has_text(self) -> bool:
        return any(self.text_len.values())


class Mark(NamedTuple):
    """All chunks that arrived at one instant, taken together (`runners.rates` explains)."""

    t: float
    has_text: bool
    tokens: int | None


@dataclass(frozen=True)
class StreamFailure:
    """Why a stream is not a complete answer. `status` is the HTTP status or the code inside an error event, where there is one."""

    kind: FailureKind
    detail: str
    status: int | None = None


@dataclass(frozen=True)
class StreamTrace:
    """What one streaming request did. Token counts are the server's last word in `usage`; None means that it never said."""

    t_sent: float
    t_end: float
    asked_tokens: int
    chunks: tuple[Chunk, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    failure: StreamFailure | None = None
    done: bool = True
    """The stream ended with `[DONE]`."""
    asked_prompt_tokens: int | None = None
    client_lag_s: float | None = None

    def __post_init__(self) -> None:
        times = [self.t_sent, *(c.t for c in self.chunks), self.t_end]
        if any(later < earlier for earlier, later in pairwise(times)):
            raise ValueError("stream trace: times run backwards; the clock must be monotonic")

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """The chunks by instant, without finish chunks that bear no text (M4); every rate starts from them."""
        marks: list[Mark] = []
        for chunk in self.chunks:
            has_text = chunk.has_text
            if chunk.finish_reason is not None and not has_text:
                continue
            mark = Mark(chunk.t, has_text, chunk.tokens)
            if marks and marks[-1].t == mark.t:
                before = marks.pop()
                mark = Mark(mark.t, before.has_text or has_text, before.tokens if mark.tokens is None else mark.tokens)
            marks.append(mark)
        return tuple(marks)

    @cached_property
    def bearing(self) -> tuple[Mark, ...]:
        """The token-bearing marks: with text, or where the running count rose."""
        bearing, high = list[Mark](), 0
        for mark in self.marks:
            if mark.has_text or (mark.tokens is not None and mark.tokens > high):
                bearing.append(mark)
            high = max(high, mark.tokens or 0)
        return tuple(bearing)
