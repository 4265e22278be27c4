"""Questions of the gate over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from runners.coherence.gate import GateTarget, over_http
from runners.coherence.transport import Refused, Send
from runners.engines.base import HttpRequest


async def _answer_then_hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Like uvicorn after an exception: promises to keep the connection, and closes it when the next request is there."""
    request = await reader.readuntil(b"\r\n\r\n")
    status = b"500 Internal Server Error" if b"/tokenize" in request else b"200 OK"
    writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n{}")
    await writer.drain()
    await reader.read(1)
    writer.close()


def _against(ask: Callable[[Send], Awaitable[object]]) -> object:
    """What `ask` gives against a server that hangs up after one answer; the server runs in the loop that asks."""

    async def asked(send: Send) -> object:
        return await ask(send)

    async def both() -> object:
        server = await asyncio.start_server(_answer_then_hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await asyncio.to_thread(over_http, GateTarget("run", f"http://127.0.0.1:{port}", "model"), asked)

    return asyncio.run(both())


def test_a_server_that_hangs_up_after_an_answer_has_not_crashed() -> None:
    """SGLang 0.5.14 and Gemma: HTTP 500 for /tokenize, and the chat after it was filed as a crash of the release, twice."""

    async def ask(send: Send) -> object:
        with pytest.raises(Refused, match="500"):
            await send(HttpRequest("/tokenize", {"prompt": "x"}))
        return [await send(HttpRequest("/v1/models")) for _ in range(3)]

    assert _against(ask) == [{}, {}, {}]
