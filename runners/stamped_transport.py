"""Plain HTTP/1.1 whose bytes are stamped as the event loop reads them, before anything else is done with them.

Trap: a general HTTP client parses, queues and wakes a task before its caller can look at the clock. With 64 streams that answer together
the last one is stamped milliseconds late, and the parsing itself delays the next read. Rule: a read is a stamp and an append; bytes are
digested later, a few times a second; and a request is stamped when its bytes go out, after the connection stands.

h11 reads heads and every body but a chunked one (`runners.chunked`). A request has a connection of its own, closed with its
answer. For loopback: no TLS, no proxies.
"""

from __future__ import annotations

import asyncio
import math
import select
import selectors
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

import h11
import httpx

from runners.chunked import Chunks

STAMP_CLOCK = "stamp_clock"
"""Request extension: the clock of the stamps; `time.perf_counter` without it."""
READS = "reads"
"""Response extension: the body as it came, an async iterator of lists of (time of the read, data); read it in place of the response."""
TRACE = "trace"
"""Request extension that httpcore knows too: an async function told the name of each step."""
SENDING = "http11.send_request_headers.started"
"""The step at which the connection stands and the request is about to be written."""

PATIENCE = "patience_s"
"""Request extension: how long bytes of a stream may lie before they are digested; `_DIGEST_S` without it."""

_DIGEST_S = 0.1
_SPREAD = 16
"""Streams that begin together are not digested together: that would keep the loop from reading for milliseconds."""
_MOST_READS = 128
"""So many are digested at once: more would keep the loop from reading for half a millisecond."""
_READ_BYTES = 1 << 16
_LAST_CHUNK = b"0\r\n\r\n"
_MAX_HEAD = 100 * 1024
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
        poll, watched = self._selector.poll, self._watched
        until = math.inf if timeout is None else time.monotonic() + timeout
        wait = -1.0 if timeout is None else math.ceil(max(timeout, 0.0) * 1e3) * 1e-3
        ready = list[tuple[selectors.SelectorKey, int]]()
        while True:
            events = poll(wait)
            awake = not events
            for descriptor, event in events:
                if (read := watched.get(descriptor)) is not None:
                    awake = read() or awake
                elif (key := self.get_map().get(descriptor)) is not None:
                    reads = selectors.EVENT_READ if event & ~select.EPOLLOUT else 0
                    writes = selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0
                    ready.append((key, (reads | writes) & key.events))
            if ready or awake or (left := until - time.monotonic()) <= 0:
                return ready
            wait = -1.0 if left == math.inf else math.ceil(left * 1e3) * 1e-3


def run_stamped(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` with a loop that stamps at the least cost."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(StampingSelector())) as runner:
        return runner.run(main)


class _Socket:
    """One connection: `reads` are (time, bytes) not yet taken; empty bytes are its end."""

    def __init__(self, plain: socket.socket, clock: Clock, patience_s: float) -> None:
        self._plain, self._clock, self._loop, self._patience_s = plain, clock, asyncio.get_running_loop(), patience_s
        self._waiter: asyncio.Future[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self.reads: list[tuple[float, bytes]] = []
        self.patient = False
        """What is read may lie for `patience_s`: it is a stream, and nobody waits for a piece of it."""
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
        if len(self.reads) >= _MOST_READS:
            self._wake()
        elif not data or data.endswith(_LAST_CHUNK):
            self._wake_in(_DIGEST_S)  # not now: streams that began together end together, and the others' last tokens come just now
        elif self._due is None:
            spread = 0.5 + (self._plain.fileno() % _SPREAD) / _SPREAD
            self._wake_in(self._patience_s * spread if self.patient else _DIGEST_S)
        else:
            return False
        return True

    def _wake_in(self, seconds: float) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = self._loop.call_later(seconds, self._wake)

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
        reads, self.reads = self.reads, []
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
        """What was read since the last time, until the body is over (the last read may hold none of it); what came before a failure is
        handed out before it is raised."""
        while not self._ended:
            batch, failure = list[tuple[float, bytes]](), None
            try:
                reads: Sequence[tuple[float, bytes | None]] = self._unread or await self._socket.take()
                for t, data in reads:
                    piece = self._decoded(data)
                    if piece or self._ended:
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
        if data is not None and not data:
            self._check_alive(data)
        if data is None or self._chunks is None:
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
            return _Socket(await _connected(host, port), clock, request.extensions.get(PATIENCE, _DIGEST_S))
    except TimeoutError as error:
        raise httpx.ConnectTimeout(f"no connection to {host}:{port}") from error
    except OSError as error:
        raise httpx.ConnectError(str(error)) from error


@lru_cache
def _addresses(host: str, port: int) -> Sequence[Any]:
    """Asked once, and not in a thread: a name of this machine needs no network, and the thread would cost more than the connection."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _connected(host: str, port: int) -> socket.socket:
    """A socket to the first address of `host` that takes it. Raises OSError."""
    loop, refused = asyncio.get_running_loop(), OSError(f"{host} has no address")
    for family, kind, protocol, _, address in _addresses(host, port):
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
