"""Turn the recorded bytes of one streaming answer into a `StreamTrace`. Pure: runs after the stream has ended, outside the timed path.

Trap: clients split events at network borders, die on `content: null`, take an `error` event for text (M14), or let the trailing usage event
extend the window (M4). Rule: all bytes are joined before they are split, an event's time is the arrival of the block that completed its
data, and whatever a server sends becomes a trace or a named failure, never an exception.

Framing follows the WHATWG "server-sent events" text: lines end with LF, CRLF or CR; a line that starts with a colon is a comment; several
`data` lines of one event are joined by LF. Errors are read in every form that vLLM and SGLang send: an `error` event, `{"error": ...}`,
`{"object": "error", ...}`, and a finish reason of `abort` or `error`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import from_json

from results.redact import plain, redact
from runners.stream_trace import CONNECTION_LOST, TEXT_FIELDS, TIMEOUTS, Chunk, FailureKind, StreamFailure, StreamTrace

DONE = "[DONE]"
MAX_EVENT_BYTES = 4 * 1024 * 1024
MAX_DETAIL = 500
MAX_COUNT = 10**9
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FAILED_FINISH = frozenset({"abort", "error"})


class Block(NamedTuple):
    """Bytes of the response body that arrived together at `t` (monotonic seconds), without any content or transfer coding."""

    t: float
    data: bytes


@dataclass(frozen=True)
class RawStream:
    """One streaming request as the transport saw it. `status` is None if no response head arrived."""

    t_sent: float
    t_end: float
    status: int | None
    blocks: tuple[Block, ...]
    failure: StreamFailure | None = None


class SseEvent(NamedTuple):
    """One event: its type ("message" unless the server named it) and its data, invalid UTF-8 replaced; `t` as in the module text.

    `oversized`: data beyond `MAX_EVENT_BYTES`, dropped. `terminated`: False for a rest without the end of its line.
    """

    t: float
    event: str
    data: str
    oversized: bool = False
    terminated: bool = True


def read_trace(raw: RawStream, asked_tokens: int, asked_prompt_tokens: int | None = None, client_lag_s: float | None = None) -> StreamTrace:
    """The trace of a recorded stream; never raises for anything in `raw.blocks`."""
    reading = _Reading()
    if raw.status == 200:
        for event in iter_events(raw.blocks):
            reading.take(event)
            if reading.done_at is not None or reading.failure is not None:
                break
    t_end = raw.t_end if reading.done_at is None else reading.done_at
    return StreamTrace(
        t_sent=raw.t_sent,
        t_end=t_end,
        asked_tokens=asked_tokens,
        chunks=tuple(reading.chunks),
        prompt_tokens=reading.prompt_tokens,
        completion_tokens=reading.completion_tokens,
        cached_tokens=reading.cached_tokens,
        failure=_failure(raw, reading),
        done=reading.done_at is not None,
        asked_prompt_tokens=asked_prompt_tokens,
        client_lag_s=client_lag_s,
    )


def iter_events(blocks: Sequence[Block]) -> Iterator[SseEvent]:
    """Server-sent events of a body, whatever the borders of its blocks."""
    event_type, lines, size, t = "message", list[bytes](), 0, 0.0
    oversized = terminated = False
    for t_line, line, terminated in _lines(blocks):
        if not line:
            if lines or oversized:
                yield _event(t, event_type, lines, oversized, terminated)
                lines = []
            event_type, size, oversized = "message", 0, False
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            size, t = size + len(value) + 1, t_line
            oversized = oversized or size > MAX_EVENT_BYTES
            if not oversized:
                lines.append(value)
        elif name == b"event":
            event_type = value[:100].decode("utf-8", "replace") or "message"
    if lines or oversized:
        yield _event(t, event_type, lines, oversized, terminated)


def json_or_none(text: str | bytes) -> Any:
    """`text` as JSON, or None if it is not (nesting and digit bombs included).

    The quick reader takes a third of the time and refuses halves of surrogate pairs, which an engine may send: those get a second reading.
    """
    try:
        return from_json(text)
    except (ValueError, TypeError):
        return _json_or_none(text)


def _json_or_none(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def error_of(payload: Any, event_type: str = "message") -> StreamFailure | None:
    """The error that an answer or event reports, in any form an engine uses; None if it reports none."""
    if not isinstance(payload, dict):
        return StreamFailure(FailureKind.ERROR_EVENT, _brief(payload)) if event_type == "error" else None
    error = payload.get("error")
    if error is None and (payload.get("object") == "error" or event_type == "error"):
        error = payload
    if error is None or error is False:
        return None
    if not isinstance(error, Mapping):
        return StreamFailure(FailureKind.ERROR_EVENT, _brief(error))
    code = error.get("code")
    status = code if isinstance(code, int) and not isinstance(code, bool) else None
    return StreamFailure(FailureKind.ERROR_EVENT, _brief(error.get("message") or error), status)


def excerpt(text: str) -> str:
    """`text` from a server as one short line: secrets hidden, escapes stripped, length bounded."""
    return " ".join(plain(redact(text[: 8 * MAX_DETAIL]), MAX_DETAIL).split()) or "(empty)"


def _brief(value: Any) -> str:
    """One line about any JSON value; nested values are only named, because printing a deep one can exhaust the stack."""
    if isinstance(value, Mapping):
        scalars = [f"{k}={v}" for k, v in value.items() if v is None or isinstance(v, str | int | float)]
        return excerpt(", ".join(scalars) or "an error without a message")
    return excerpt(str(value) if value is None or isinstance(value, str | int | float) else f"a {type(value).__name__}")


class _Reading:
    """What the events read so far amount to."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.failure: StreamFailure | None = None
        self.done_at: float | None = None
        self.finished = False
        self.events = 0

    def take(self, event: SseEvent) -> None:
        self.events += 1
        if event.data.strip() == DONE and not event.oversized:
            self.done_at = event.t
            return
        payload = json_or_none(event.data)
        self.failure = error_of(event.data if payload is None and event.event == "error" else payload, event.event)
        if self.failure is not None or not (event.terminated or isinstance(payload, dict)):
            return
        if not isinstance(payload, dict):
            what = f"more than {MAX_EVENT_BYTES} bytes" if event.oversized else excerpt(event.data)
            self.failure = StreamFailure(FailureKind.MALFORMED_EVENT, f"not a JSON object: {what}")
            return
        running = self._take_usage(payload.get("usage"))
        choice = _first_choice(payload)
        if choice is not None:
            self._take_choice(event.t, choice, running)

    def _take_usage(self, usage: Any) -> int | None:
        if not isinstance(usage, dict):
            return None
        completion, prompt = _count(usage.get("completion_tokens")), _count(usage.get("prompt_tokens"))
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        self.completion_tokens = self.completion_tokens if completion is None else completion
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        self.cached_tokens = self.cached_tokens if cached is None else cached
        return completion

    def _take_choice(self, t: float, choice: Mapping[str, Any], running: int | None) -> None:
        delta = choice.get("delta")
        source: Mapping[str, Any] = delta if isinstance(delta, dict) else choice
        text_len, fields, empty = dict[str, int](), 0, 0
        for name in TEXT_FIELDS:
            if name not in source:
                continue
            value, fields = source[name], fields + 1
            if isinstance(value, str) and value:
                text_len[name] = len(value)
            empty += value is None
        reason = choice.get("finish_reason")
        reason = reason[:100] if isinstance(reason, str) else None
        if reason in _FAILED_FINISH:
            self.failure = StreamFailure(FailureKind.ERROR_EVENT, f"finish_reason {reason}")
        self.finished = self.finished or reason is not None
        self.chunks.append(Chunk(t, text_len, running, reason, reason is None and 0 < fields == empty))


def _failure(raw: RawStream, reading: _Reading) -> StreamFailure | None:
    """The first of: what the server said, what the transport saw, what is missing at the end."""
    if reading.failure is not None:
        return reading.failure
    if raw.failure is not None and (reading.done_at is None or raw.failure.kind not in TIMEOUTS | CONNECTION_LOST):
        return raw.failure
    if raw.status != 200:
        body = b"".join(b.data for b in raw.blocks)
        return StreamFailure(FailureKind.HTTP_STATUS, f"HTTP {raw.status}: {excerpt(body.decode('utf-8', 'replace'))}", raw.status)
    if reading.events == 0:
        body = b"".join(b.data for b in raw.blocks)
        reported = error_of(json_or_none(body))
        return reported or StreamFailure(FailureKind.NOT_A_STREAM, f"no events in: {excerpt(body.decode('utf-8', 'replace'))}")
    if reading.done_at is None and not reading.finished:
        return StreamFailure(FailureKind.TRUNCATED, "the stream ended without a finish reason or [DONE]")
    return None


def _lines(blocks: Sequence[Block]) -> Iterator[tuple[float, bytes, bool]]:
    """(arrival of the line's last byte, line, whether it had an end); an end of two bytes split over two blocks counts as the first."""
    body = b"".join(b.data for b in blocks)
    ends, end = list[int](), 0
    for block in blocks:
        end += len(block.data)
        ends.append(end)
    start, number = 3 if body.startswith(b"\xef\xbb\xbf") else 0, 0
    for stop, following in _line_ends(body, start):
        while ends[number] <= stop:
            number += 1
        yield blocks[number].t, body[start:stop], True
        start = following
    if start < len(body):
        yield blocks[bisect_left(ends, len(body))].t, body[start:], False


def _line_ends(body: bytes, start: int) -> Iterator[tuple[int, int]]:
    """(where a line ends, where the next one begins)."""
    if b"\r" in body:
        for match in _LINE_END.finditer(body, start):
            yield match.span()
        return
    while (stop := body.find(b"\n", start)) >= 0:
        start = stop + 1
        yield stop, start


def _event(t: float, event_type: str, lines: Sequence[bytes], oversized: bool, terminated: bool) -> SseEvent:
    return SseEvent(t, event_type, b"\n".join(lines).decode("utf-8", "replace"), oversized, terminated)


def _first_choice(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choices = payload.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    return None


def _count(value: Any) -> int | None:
    """A token count a server may truthfully report; None for anything else it may send."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return None
