"""Plain HTTP/1.1 whose bytes are stamped as the event loop reads them, before anything else is done with them.

Trap: a general HTTP client parses, queues and wakes a task before its caller can look at the clock. With 64 streams that answer together
the last one is stamped milliseconds late, and the parsing itself delays the next read. Rule: a read is a stamp and an append; bytes are
digested later, a few times a second; and a request is stamped when its bytes go out, after the connection stands.

h11 reads heads and every body but a chunked one, whose framing is undone here: it is on the path of every token, and h11 would be a fifth
of a token's cost. A request has a connection of its own, closed with its answer. For loopback: no TLS, no proxies.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
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

_DIGEST_S = 0.1
_LAST_CHUNK = b"0\r\n\r\n"
_MAX_HEAD = 100 * 1024
_CHUNK_HEAD = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;[^\r\n]*)?")
_MAX_CHUNK_HEAD = 4096
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
        if data.endswith(_LAST_CHUNK):
            self._wake()
        elif self._due is None:
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
        """Read until the answer's head is complete."""
        async for event in self._events:
            if isinstance(event, h11.Response) or (isinstance(event, h11.InformationalResponse) and event.status_code == 101):
                return event
        raise httpx.RemoteProtocolError("the server ended the connection without an answer")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self._events:
            if isinstance(event, bytes):
                yield event
            elif isinstance(event, h11.Data):
                yield bytes(event.data)

    async def aclose(self) -> None:
        self._socket.close()

    async def _parsed(self) -> AsyncIterator[Any]:
        """Events of h11, then bytes of a chunked body; `read_at` is the time of the read that completed the latest one."""
        chunks: Chunks | None = None
        while True:
            for t, data in await self._socket.take():
                if not data and self._socket.lost is not None:
                    raise httpx.ReadError(f"{type(self._socket.lost).__name__} {self._socket.lost}")
                self._read_at, body = t, data
                if chunks is None:
                    for event in _taken(self._parser, data):
                        yield event
                        if event is h11.PAUSED or isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                            return
                        if isinstance(event, h11.Response) and _is_chunked(event):
                            chunks, body = Chunks(), self._parser.trailing_data[0]
                            break
                elif not data:
                    raise httpx.RemoteProtocolError("the connection ended before the last chunk")
                if chunks is not None:
                    for piece in chunks.feed(body):
                        yield piece
                    if chunks.ended:
                        return


def _taken(parser: h11.Connection, data: bytes) -> Iterator[Any]:
    try:
        parser.receive_data(data)
        while (event := parser.next_event()) is not h11.NEED_DATA:
            yield event
            if event is h11.PAUSED or isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return
    except h11.RemoteProtocolError as error:
        raise httpx.RemoteProtocolError(str(error)) from error


def _is_chunked(response: h11.Response) -> bool:
    """h11 has refused any other transfer coding, and answers that have a length beside it."""
    return any(name == b"transfer-encoding" for name, _ in response.headers) and response.status_code not in (204, 304)


class Chunks:
    """The data of a chunked body, piece by piece as it comes; trailers are left out. `ended`: the last chunk was read."""

    def __init__(self) -> None:
        self._rest = b""
        self._missing = 0
        self.ended = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What `data` completes or continues. Raises httpx.RemoteProtocolError for what is no chunk."""
        data, at = (self._rest + data if self._rest else data), 0
        while at < len(data) and not self.ended:
            if self._missing == 0:
                line_end = data.find(b"\r\n", at)
                if line_end < 0:
                    break
                head = _CHUNK_HEAD.fullmatch(data, at, line_end)
                if head is None or line_end - at > _MAX_CHUNK_HEAD:
                    raise httpx.RemoteProtocolError(f"not a chunk: {data[at : at + 40]!r}")
                self._missing, at = int(head[1], 16) + 2, line_end + 2
                self.ended = self._missing == 2
            elif self._missing > 2:
                piece = data[at : at + self._missing - 2]
                at, self._missing = at + len(piece), self._missing - len(piece)
                if piece:
                    yield piece
            else:
                at = self._close(data, at)
        self._rest = data[at:]
        if self._missing == 0 and len(self._rest) > _MAX_CHUNK_HEAD:
            raise httpx.RemoteProtocolError("a chunk without a head")

    def _close(self, data: bytes, at: int) -> int:
        """Step over the CRLF after a chunk, which may come in two reads."""
        taken = data[at : at + self._missing]
        if taken != b"\r\n"[2 - self._missing :][: len(taken)]:
            raise httpx.RemoteProtocolError(f"a chunk longer than it said: {data[at : at + 40]!r}")
        self._missing -= len(taken)
        return at + len(taken)


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
