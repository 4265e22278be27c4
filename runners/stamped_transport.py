"""Plain HTTP/1.1 whose bytes are stamped as the event loop reads them, before anything else is done with them.

Trap: a general HTTP client parses, queues and wakes a task before its caller can look at the clock. With 64 streams that answer together
the last one is stamped milliseconds late, and the parsing itself delays the next read. Rule: a read is a stamp and an append; bytes are
digested later, a few times a second; and a request is stamped when its bytes go out, after the connection stands.

h11 does all of HTTP. A request has a connection of its own, closed with its answer. For loopback: no TLS, no proxies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import h11
import httpx

STAMP_CLOCK = "stamp_clock"
"""Request extension: the clock of the stamps; `time.perf_counter` without it."""
READ_AT = "read_at"
"""Response extension: a function that returns when the piece of the body that was handed out last was read."""
TRACE = "trace"
"""Request extension that httpcore knows too: an async function told the name of each step."""
SENDING = "http11.send_request_headers.started"
"""The step at which the connection stands and the request is about to be written."""

_DIGEST_S = 0.02
_MAX_HEAD = 100 * 1024
Clock = Callable[[], float]


class StampedTransport(httpx.AsyncBaseTransport):
    """Failures are those of httpx; the limit of a connection attempt is httpx's `timeout` extension, all others are the caller's."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        content = await request.aread()
        data = _encoded(parser, request, content)
        socket = await _connect(request)
        try:
            if (told := request.extensions.get(TRACE)) is not None:
                await told(SENDING, {"request": request})
            socket.write(data)
            body = _Body(parser, socket)
            head = await body.head()
        except BaseException:
            socket.close()
            raise
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=body, extensions={READ_AT: body.read_at})


class _Socket(asyncio.Protocol):
    """One connection: `reads` are (time, bytes) not yet taken; empty bytes are its end."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._loop = clock, asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self.reads: list[tuple[float, bytes]] = []
        self.lost: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.reads.append((self._clock(), data))
        if self._due is None:
            self._due = self._loop.call_later(_DIGEST_S, self._wake)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc
        self.reads.append((self._clock(), b""))
        self._wake()

    def _wake(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[tuple[float, bytes]]:
        """Everything read since the last call, after waiting until there is something."""
        if not self.reads:
            self._waiter = self._loop.create_future()
            await self._waiter
        reads, self.reads = self.reads, []
        return reads

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._wake()


class _Body(httpx.AsyncByteStream):
    """The answer: `head` first, then iterate over the body once."""

    def __init__(self, parser: h11.Connection, socket: _Socket) -> None:
        self._parser, self._socket = parser, socket
        self._events = self._parsed()
        self._read_at = 0.0

    def read_at(self) -> float:
        return self._read_at

    async def head(self) -> h11.Response | h11.InformationalResponse:
        async for event in self._events:
            if isinstance(event, h11.Response) or (isinstance(event, h11.InformationalResponse) and event.status_code == 101):
                return event
        raise httpx.RemoteProtocolError("the server ended the connection without an answer")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._events:
            if isinstance(event, h11.Data):
                yield bytes(event.data)

    async def aclose(self) -> None:
        self._socket.close()

    async def _parsed(self) -> AsyncIterator[Any]:
        """Events until the message ends; `read_at` is the time of the read that completed the latest one."""
        while True:
            for t, data in await self._socket.take():
                if not data and self._socket.lost is not None:
                    raise httpx.ReadError(f"{type(self._socket.lost).__name__} {self._socket.lost}")
                try:
                    self._parser.receive_data(data)
                    while (event := self._parser.next_event()) is not h11.NEED_DATA:
                        if event is h11.PAUSED or isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                            return
                        self._read_at = t
                        yield event
                except h11.RemoteProtocolError as error:
                    raise httpx.RemoteProtocolError(str(error)) from error


def _encoded(parser: h11.Connection, request: httpx.Request, content: bytes) -> bytes:
    try:
        head = h11.Request(method=request.method.encode(), target=request.url.raw_path, headers=request.headers.raw)
        events: tuple[Any, ...] = (head, h11.Data(data=content), h11.EndOfMessage()) if content else (head, h11.EndOfMessage())
        return b"".join(parser.send(event) or b"" for event in events)
    except h11.LocalProtocolError as error:
        raise httpx.LocalProtocolError(str(error)) from error


async def _connect(request: httpx.Request) -> _Socket:
    clock: Clock = request.extensions.get(STAMP_CLOCK, time.perf_counter)
    host, port = request.url.host, request.url.port or 80
    try:
        async with asyncio.timeout(request.extensions.get("timeout", {}).get("connect")):
            _, socket = await asyncio.get_running_loop().create_connection(lambda: _Socket(clock), host, port)
    except TimeoutError as error:
        raise httpx.ConnectTimeout(f"no connection to {host}:{port}") from error
    except OSError as error:
        raise httpx.ConnectError(str(error)) from error
    return socket
