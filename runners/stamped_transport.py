"""Plain HTTP/1.1 whose bytes are stamped as the event loop reads them, before anything else is done with them.

Trap: a general HTTP client parses, queues and wakes a task before its caller can look at the clock. With 64 streams that answer together
the last one is stamped milliseconds late, and the parsing itself delays the next read. Rule: a read is a stamp and an append; bytes are
digested later, a few times a second; and a request is stamped when its bytes go out, after the connection stands.

h11 reads heads and every body but a chunked one, whose framing is undone here: it is on the path of every token, and h11 would be a fifth
of a token's cost. A request has a connection of its own, closed with its answer. For loopback: no TLS, no proxies.
"""

from __future__ import annotations

import asyncio
import math
import re
import select
import selectors
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import h11
import httpx

STAMP_CLOCK = "stamp_clock"
"""Request extension: the clock of the stamps; `time.perf_counter` without it."""
READS = "reads"
"""Response extension: the body as it came, an async iterator of lists of (time of the read, data); read it in place of the response."""
TRACE = "trace"
"""Request extension that httpcore knows too: an async function told the name of each step."""
SENDING = "http11.send_request_headers.started"
"""The step at which the connection stands and the request is about to be written."""

_DIGEST_S, _PATIENT_DIGEST_S = 0.1, 0.2
_SPREAD = 16
"""Streams that begin together are not digested together: that would keep the loop from reading for milliseconds."""
_MOST_UNREAD = 1 << 20
_READ_BYTES = 1 << 16
_LAST_CHUNK = b"0\r\n\r\n"
_MAX_HEAD = 100 * 1024
_CHUNK_HEAD = re.compile(rb"([0-9a-fA-F]{1,16})[ \t]*(?:;[^\r\n]*)?")
_WHOLE_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
_MAX_CHUNK_HEAD = 4096
Clock = Callable[[], float]
T = TypeVar("T")


class StampedTransport(httpx.AsyncBaseTransport):
    """Failures are those of httpx; the limit of a connection attempt is httpx's `timeout` extension, all others are the caller's."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        content = await request.aread()
        data = _encoded(parser, request, content)
        connection = await _connect(request)
        try:
            if (told := request.extensions.get(TRACE)) is not None:
                await told(SENDING, {"request": request})
            await connection.write(data)
            body = _Body(parser, connection)
            head = await body.head()
        except BaseException:
            connection.close()
            raise
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=body, extensions={READS: body.reads()})


class StampingSelector(selectors.EpollSelector):
    """The selector of an event loop that reads watched sockets by itself: on the way through the loop a read costs three times as much."""

    _selector: select.epoll

    def __init__(self) -> None:
        super().__init__()
        self._watched: dict[int, Callable[[], bool]] = {}

    def watch(self, descriptor: int, read: Callable[[], bool]) -> None:
        """Call `read` whenever there is something to read; it says whether the loop has something to do now."""
        self._selector.register(descriptor, select.EPOLLIN)
        self._watched[descriptor] = read

    def unwatch(self, descriptor: int) -> None:
        """No longer."""
        del self._watched[descriptor]
        self._selector.unregister(descriptor)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As any selector; returns, perhaps with nothing, when a watched socket gave the loop something to do."""
        if not self._watched:
            return super().select(timeout)
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            wait = -1.0 if left == math.inf else math.ceil(max(left, 0.0) * 1e3) * 1e-3
            ready, awake = list[tuple[selectors.SelectorKey, int]](), left <= 0
            for descriptor, event in self._selector.poll(wait):
                if (read := self._watched.get(descriptor)) is not None:
                    awake = read() or awake
                elif (key := self.get_map().get(descriptor)) is not None:
                    reads = selectors.EVENT_READ if event & ~select.EPOLLOUT else 0
                    writes = selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0
                    ready.append((key, (reads | writes) & key.events))
            if ready or awake:
                return ready


def run_stamped(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` with a loop that stamps at the least cost."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(StampingSelector())) as runner:
        return runner.run(main)


class _Socket:
    """One connection: `reads` are (time, bytes) not yet taken; empty bytes are its end."""

    def __init__(self, plain: socket.socket, clock: Clock) -> None:
        self._plain, self._clock, self._loop = plain, clock, asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self.reads: list[tuple[float, bytes]] = []
        self._unread_bytes = 0
        self.patient = False
        """What is read may lie for `_PATIENT_DIGEST_S`: it is a stream, and nobody waits for a piece of it."""
        self.lost: Exception | None = None
        self._selector = getattr(self._loop, "_selector", None)
        self._listening = False

    def _read(self) -> bool:
        """Read, stamp, keep; True if the loop has something to do because of it."""
        try:
            data = self._plain.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            data, self.lost = b"", error
        self.reads.append((self._clock(), data))
        if not data:
            self._ignore()
        self._unread_bytes += len(data)
        if not data or self._unread_bytes > _MOST_UNREAD or data.endswith(_LAST_CHUNK):
            self._wake()
        elif self._due is None:
            spread = 0.5 + (self._plain.fileno() % _SPREAD) / _SPREAD
            self._due = self._loop.call_later(_PATIENT_DIGEST_S * spread if self.patient else _DIGEST_S, self._wake)
        else:
            return False
        return True

    def _wake(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _ignore(self) -> None:
        if not self._listening:
            return
        self._listening = False
        if isinstance(self._selector, StampingSelector):
            self._selector.unwatch(self._plain.fileno())
        else:
            self._loop.remove_reader(self._plain.fileno())

    async def take(self) -> list[tuple[float, bytes]]:
        """Everything read since the last call, after waiting until there is something."""
        if not self.reads:
            self._waiter = self._loop.create_future()
            await self._waiter
        reads, self.reads, self._unread_bytes = self.reads, [], 0
        return reads

    async def write(self, data: bytes) -> None:
        """Send it all, then listen. A server that hangs up meanwhile may have said why, which is read like any answer."""
        with suppress(ConnectionError):
            await self._loop.sock_sendall(self._plain, data)
        if isinstance(self._selector, StampingSelector):
            self._selector.watch(self._plain.fileno(), self._read)
        else:
            self._loop.add_reader(self._plain.fileno(), self._read)
        self._listening = True

    def close(self) -> None:
        self._ignore()
        self._plain.close()
        self._wake()


class _Body(httpx.AsyncByteStream):
    """The answer: `head` first, then its body once, by `reads` or by iteration."""

    def __init__(self, parser: h11.Connection, connection: _Socket) -> None:
        self._parser, self._socket = parser, connection
        self._unread: list[tuple[float, bytes | None]] = []
        """Reads not yet looked at; None: what the parser already has of the one that held the head."""
        self._chunks: Chunks | None = None
        self._ended = False

    async def head(self) -> h11.Response | h11.InformationalResponse:
        """Read until the answer's head is complete; what came with it is the beginning of the body."""
        while True:
            reads = await self._socket.take()
            for number, (t, data) in enumerate(reads):
                self._check_alive(data)
                for event in _taken(self._parser, data):
                    if isinstance(event, h11.Response) or (isinstance(event, h11.InformationalResponse) and event.status_code == 101):
                        self._begin_body(event, t, reads[number + 1 :])
                        return event
                if not data:
                    raise httpx.RemoteProtocolError("the server ended the connection without an answer")

    def _begin_body(self, head: h11.Response | h11.InformationalResponse, t: float, later: Sequence[tuple[float, bytes]]) -> None:
        if isinstance(head, h11.Response) and _is_chunked(head):
            self._chunks, first = Chunks(), self._parser.trailing_data[0]
            self._socket.patient = True
            self._unread = [(t, first), *later] if first else [*later]
        else:
            self._unread = [(t, None), *later]

    def _check_alive(self, data: bytes) -> None:
        if not data and self._socket.lost is not None:
            raise httpx.ReadError(f"{type(self._socket.lost).__name__} {self._socket.lost}")

    async def reads(self) -> AsyncIterator[list[tuple[float, bytes]]]:
        """What was read since the last time, until the body is over; what came before a failure is handed out before it is raised."""
        while not self._ended:
            batch, failure = list[tuple[float, bytes]](), None
            try:
                reads: Sequence[tuple[float, bytes | None]] = self._unread or await self._socket.take()
                for t, data in reads:
                    if piece := self._decoded(data):
                        batch.append((t, piece))
                    if self._ended:
                        break
            except httpx.TransportError as error:
                failure = error
            self._unread = []
            if batch:
                yield batch
            if failure is not None:
                raise failure

    def _decoded(self, data: bytes | None) -> bytes:
        """The body's own bytes in those of one read."""
        if data is None:
            return self._plain(None)
        self._check_alive(data)
        if self._chunks is None:
            return self._plain(data)
        if not data:
            raise httpx.RemoteProtocolError("the connection ended before the last chunk")
        piece = self._chunks.feed(data)
        self._ended = self._chunks.ended
        return piece

    def _plain(self, data: bytes | None) -> bytes:
        pieces = []
        for event in _taken(self._parser, data):
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif event is h11.PAUSED or isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                self._ended = True
        return b"".join(pieces)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for batch in self.reads():
            for _, data in batch:
                yield data

    async def aclose(self) -> None:
        self._socket.close()


def _taken(parser: h11.Connection, data: bytes | None) -> Iterator[Any]:
    """Events that `data` completes; None: those of what it has already."""
    try:
        if data is not None:
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
    """The data of a chunked body as it comes; trailers are left out. `ended`: the last chunk was read."""

    def __init__(self) -> None:
        self._rest = b""
        self._missing = 0
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """What `data` completes or continues. Raises httpx.RemoteProtocolError for what is no chunk."""
        if not self._rest and self._missing == 0 and (whole := _WHOLE_CHUNK.match(data)) is not None:  # one read, one chunk: the usual case
            end = whole.end() + int(whole[1], 16)
            if end + 2 == len(data) and end > whole.end() and data.endswith(b"\r\n"):
                return data[whole.end() : end]
        data, at, pieces = (self._rest + data if self._rest else data), 0, list[bytes]()
        while at < len(data) and not self.ended:
            if self._missing == 0:
                line_end = data.find(b"\r\n", at)
                if line_end < 0:
                    break
                at = self._open(data, at, line_end)
            elif self._missing > 2:
                piece = data[at : at + self._missing - 2]
                at, self._missing = at + len(piece), self._missing - len(piece)
                pieces.append(piece)
            elif self._missing == 2 and data.startswith(b"\r\n", at):
                at, self._missing = at + 2, 0
            else:
                at = self._close(data, at)
        self._rest = data[at:] if at < len(data) else b""
        if self._missing == 0 and len(self._rest) > _MAX_CHUNK_HEAD:
            raise httpx.RemoteProtocolError("a chunk without a head")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _open(self, data: bytes, at: int, line_end: int) -> int:
        head = _CHUNK_HEAD.fullmatch(data, at, line_end)
        if head is None or line_end - at > _MAX_CHUNK_HEAD:
            raise httpx.RemoteProtocolError(f"not a chunk: {data[at : at + 40]!r}")
        self._missing = int(head[1], 16) + 2
        self.ended = self._missing == 2
        return line_end + 2

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
            return _Socket(await _connected(host, port), clock)
    except TimeoutError as error:
        raise httpx.ConnectTimeout(f"no connection to {host}:{port}") from error
    except OSError as error:
        raise httpx.ConnectError(str(error)) from error


async def _connected(host: str, port: int) -> socket.socket:
    """A socket to the first address of `host` that takes it. Raises OSError."""
    loop, refused = asyncio.get_running_loop(), OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.setblocking(False)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(plain, address)
            return plain
        except OSError as error:
            plain.close()
            refused = error
        except BaseException:
            plain.close()
            raise
    raise refused
