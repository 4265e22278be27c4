"""How the gate talks to a server.

Trap: a dead server, a hanging one, and one that answers "400" are all "an exception", and a dead one ends up recorded as a wrong answer.
Rule: what is no answer is raised as one of two things: `Refused` (an HTTP status and what the server said) or `NoAnswer` (gone or silent).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from results.redact import plain
from runners.engines.base import HttpRequest
from runners.sse import DONE, Block, error_of, iter_events, json_or_none

Send = Callable[[HttpRequest], Awaitable[Any]]
"""Sends one request and returns the parsed JSON (NaN and Infinity allowed), of a streaming request the list of its events' JSON; raises
Refused or NoAnswer."""

_MOST_BYTES = 64 << 20
_OK = 200


class Refused(Exception):
    """The server answered with an HTTP status other than 200."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"HTTP {status}: {said}")
        self.status = status
        self.said = said


class NoAnswer(Exception):
    """The connection died (`is_hang` False) or nothing came in time (`is_hang` True)."""

    def __init__(self, reason: str, *, is_hang: bool) -> None:
        super().__init__(reason)
        self.is_hang = is_hang


def http_send(client: httpx.AsyncClient, timeout_s: float) -> Send:
    """`Send` over an httpx client with a base URL. GET without a body, else POST."""

    async def send(request: HttpRequest) -> Any:
        method = "GET" if request.body is None else "POST"
        try:
            async with client.stream(method, request.path, json=request.body, timeout=timeout_s) as response:
                raw = await _bounded(response)
        except httpx.TimeoutException as error:
            raise NoAnswer(f"no answer to {request.path} within {timeout_s:.0f} s", is_hang=True) from error
        except httpx.HTTPError as error:
            raise NoAnswer(
                f"the connection for {request.path} failed: {type(error).__name__} {plain(str(error), 200)}", is_hang=False
            ) from error
        text = raw.decode("utf-8", errors="replace")
        if response.status_code != _OK:
            raise Refused(response.status_code, plain(text, 300))
        if request.body is not None and request.body.get("stream"):
            return events_of(raw, response.status_code)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Refused(response.status_code, f"no JSON but {plain(text, 200)!r}") from error

    return send


def events_of(raw: bytes, status: int = _OK) -> list[Any]:
    """The JSON of every event of a stream, up to `[DONE]`; raises Refused for an error event (M14), another body or a stream cut short."""
    events: list[Any] = []
    for event in iter_events((Block(0.0, raw),)):
        if event.data.strip() == DONE:
            return events
        payload = json_or_none(event.data)
        failure = error_of(event.data if payload is None and event.event == "error" else payload, event.event)
        if failure is not None or payload is None:
            raise Refused(status, failure.detail if failure is not None else f"no JSON event but {plain(event.data, 200)!r}")
        events.append(payload)
    raise Refused(status, "the stream ended without [DONE]" if events else f"no stream but {plain(raw.decode('utf-8', 'replace'), 200)!r}")


async def _bounded(response: httpx.Response) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        chunks.append(chunk)
        size += len(chunk)
        if size > _MOST_BYTES:
            raise NoAnswer(f"the answer is larger than {_MOST_BYTES >> 20} MiB", is_hang=False)
    return b"".join(chunks)
