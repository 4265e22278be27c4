"""Send one streaming request and record when its bytes arrive.

Trap: a client that parses JSON while it receives stamps tokens late and becomes the bottleneck it measures (M21); one that waits without a
limit turns a hung engine into a hung night. Rule: the receiving loop only stamps and keeps bytes; every wait has a limit; whatever the
server or the network does becomes a `RawStream` with a named failure, never an exception (cancellation of our own task excepted).

The client is httpx without redirects, cookies or compression: a timed request goes where it was sent. On loopback, where every engine that
we start is, its transport is `runners.stamped_transport`; elsewhere httpx's own (TLS, proxies), whose stamps are later by its parsing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from itertools import starmap
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from runners.rates import weighted_percentile
from runners.server_client import is_loopback
from runners.sse import Block, RawStream, excerpt
from runners.stamped_transport import PATIENCE, READS, SENDING, STAMP_CLOCK, TRACE, StampedTransport, run_stamped
from runners.stream_trace import FailureKind, StreamFailure

COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"

Clock = Callable[[], float]
T = TypeVar("T")

TRANSPORT_ERRORS = (httpx.HTTPError, httpx.InvalidURL, UnicodeError)
"""What httpx raises for what a server does; the last two for a Location header that is no address, which it reads even unfollowed."""

_DONE_LINE = b"\ndata: [DONE]"
_MAX_ERROR_BODY = 64 * 1024
_SWITCH_S = 0.0005
_PATIENCE_S = 1.0
"""How long read bytes of a stream may lie before anybody looks at them (spread by half: a silence is noticed so much later)."""
_NOTED_EVERY_S = 0.01
"""A limit is put off at most so often: setting a timer for every token costs as much as receiving it."""


@dataclass(frozen=True)
class Target:
    """A running OpenAI-compatible server: `base_url` without `/v1`, the served model name, and headers that every request carries.

    `transport` replaces httpx's own network transport.
    """

    base_url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class StreamPolicy:
    """How long a stream may take, in seconds, and how much it may send.

    `first_byte_s` covers queueing and prefill, `idle_s` any later pause, `total_s` everything; after `[DONE]` the connection has `drain_s`
    to end its answer so that it can be used again.
    """

    connect_s: float = 10.0
    first_byte_s: float = 300.0
    idle_s: float = 60.0
    total_s: float = 900.0
    drain_s: float = 1.0
    max_bytes: int = 64 * 1024 * 1024


def open_client(target: Target) -> httpx.AsyncClient:
    """A client for `target`; as many connections as streams. httpx reuses one only while a server surely keeps it (uvicorn: 5 s)."""
    headers = {**target.headers, "Accept-Encoding": "identity"}
    if target.transport is None and is_loopback(target.base_url) and httpx.URL(target.base_url).scheme == "http":
        return _PlainClient(base_url=target.base_url, headers=headers)
    return httpx.AsyncClient(
        base_url=target.base_url,
        transport=target.transport,
        headers=headers,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        trust_env=not is_loopback(target.base_url),
        follow_redirects=False,
        timeout=None,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0),
    )


class _PlainClient(httpx.AsyncClient):
    """Requests go to our transport as they are: redirects, cookies, authentication and hooks would be a third of a stream's cost."""

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        self._stamped = StampedTransport()
        super().__init__(base_url=base_url, headers=headers, transport=self._stamped, trust_env=False, timeout=None)

    async def send(self, request: httpx.Request, *, stream: bool = False, **unused: Any) -> httpx.Response:
        """As httpx, without what it does around a request."""
        response = await self._stamped.handle_async_request(request)
        response.request = request
        if not stream:
            await response.aread()
        return response


def run_for(target: Target, main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for timed requests to `target`: on the loop that reads our own transport's sockets, where that is used."""
    return run_stamped(main) if target.transport is None else asyncio.run(main)


async def record_stream(
    client: httpx.AsyncClient, path: str, body: Mapping[str, Any], policy: StreamPolicy, clock: Clock = time.perf_counter
) -> RawStream:
    """POST `body` to `path` and record the answer until `[DONE]`, its end, a limit of `policy`, or a failure.

    `t_sent` is taken when the connection stands and the request is about to be written (at the beginning, if none comes to stand); the
    time of a block when the read that it was part of came back.
    """
    recording = _Recording(client.build_request("POST", path, content=json.dumps(body).encode(), headers=_JSON), policy, clock)
    failure = await recording.run(client)
    t_end = clock() if failure is not None or recording.t_end is None else recording.t_end
    return RawStream(recording.t_sent, t_end, recording.status, tuple(recording.blocks), failure)


_JSON = {"Content-Type": "application/json", "Accept": "text/event-stream"}


class _Recording:
    def __init__(self, request: httpx.Request, policy: StreamPolicy, clock: Clock) -> None:
        patience_s = min(_PATIENCE_S, policy.idle_s / 4, policy.total_s / 4)
        own = {"timeout": {"connect": policy.connect_s}, STAMP_CLOCK: clock, TRACE: self._trace, PATIENCE: patience_s}
        request.extensions = {**request.extensions, **own}
        self.request, self.policy, self.clock = request, policy, clock
        self.status: int | None = None
        self.blocks: list[Block] = []
        self.t_sent = 0.0
        self.t_end: float | None = None
        self._waited, self._turn = True, 0.0

    async def run(self, client: httpx.AsyncClient) -> StreamFailure | None:
        """Fill `blocks`; the failure that ended the recording early, if one did."""
        self.t_sent = self.clock()
        try:
            async with asyncio.timeout(self.policy.total_s) as total, asyncio.timeout(self.policy.first_byte_s) as pause:
                response = await client.send(self.request, stream=True)
                try:
                    self.status = response.status_code
                    return await self._receive(response, pause)
                finally:
                    await response.aclose()
        except TimeoutError:
            return self._timed_out(total.expired())
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            return StreamFailure(FailureKind.CONNECT_FAILED, _describe(error))
        except TRANSPORT_ERRORS as error:
            return StreamFailure(FailureKind.DROPPED, f"after {len(self.blocks)} blocks: {_describe(error)}")

    async def _trace(self, step: str, info: Mapping[str, Any]) -> None:
        if step == SENDING:
            self.t_sent = self.clock()

    async def _receive(self, response: httpx.Response, pause: asyncio.Timeout) -> StreamFailure | None:
        """The timed loop: stamp, keep, look for the end; nothing else belongs here."""
        loop, limit = asyncio.get_running_loop(), self.policy.max_bytes if self.status == 200 else _MAX_ERROR_BODY
        wait, size, tail, noted = self.policy.idle_s, 0, b"\n", -1.0
        stamped = response.extensions.get(READS)
        async for reads in stamped or self._reads_of(response):
            self.blocks += starmap(Block, reads)
            self.t_end = reads[-1][0]
            recent = b"".join((tail, *(data for _, data in reads)))
            size += len(recent) - len(tail)
            if size > limit:
                return self._too_large(limit)
            if _DONE_LINE in recent:
                wait, noted = self.policy.drain_s, -1.0
            tail = recent[-len(_DONE_LINE) :]
            if (now := loop.time()) - noted > _NOTED_EVERY_S:
                pause.reschedule(now + wait)
                noted = now
        if stamped is None:
            self.t_end = self.clock()
        return None

    async def _reads_of(self, response: httpx.Response) -> AsyncIterator[list[tuple[float, bytes]]]:
        """The blocks of a transport that does not say when it read them."""
        async for data in response.aiter_raw():
            yield [(self._time_of_turn(), data)]

    def _time_of_turn(self) -> float:
        """The time of this block for a transport that does not say.

        One read of the socket can hold many blocks, and they come out of the HTTP parser microseconds apart without the task ever waiting.
        They arrived together, so they get one time: a new one is taken only after the event loop had its turn.
        """
        if self._waited:
            self._turn, self._waited = self.clock(), False
            asyncio.get_running_loop().call_soon(self._mark_waited)
        return self._turn

    def _mark_waited(self) -> None:
        self._waited = True

    def _too_large(self, limit: int) -> StreamFailure | None:
        """Enough of an error page is enough; a stream without end is a failure of its own."""
        return StreamFailure(FailureKind.TOO_LARGE, f"more than {limit} bytes in one answer") if self.status == 200 else None

    def _timed_out(self, total: bool) -> StreamFailure:
        if total:
            return StreamFailure(FailureKind.TOTAL_TIMEOUT, f"no end after {self.policy.total_s:g} s")
        if not self.blocks:
            return StreamFailure(FailureKind.FIRST_BYTE_TIMEOUT, f"nothing came for {self.policy.first_byte_s:g} s")
        return StreamFailure(FailureKind.IDLE_TIMEOUT, f"nothing more came for {self.policy.idle_s:g} s after {len(self.blocks)} blocks")


def _describe(error: Exception) -> str:
    return excerpt(f"{type(error).__name__} {error}")


@contextmanager
def undisturbed() -> Iterator[None]:
    """Keep this process from delaying its own event loop: no garbage collection (it walks every object of every library, which takes tens
    of milliseconds) and no other thread that keeps the interpreter for more than half a millisecond.
    """
    collects, interval = gc.isenabled(), sys.getswitchinterval()
    gc.disable()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if collects:
            gc.enable()


class LoopLag:
    """How late the event loop answers (M21): a thread posts a callback at short intervals, and each records its delay when it runs.

    A thread, because epoll rounds a timer of the loop itself up to whole milliseconds, so an idle loop would look late. The delay takes the
    same way as arriving bytes: wake the loop, wait for its turn. Use as a context manager inside the running loop.
    """

    def __init__(self, interval_s: float = 0.05, clock: Clock = time.perf_counter) -> None:
        self._interval_s, self._clock = interval_s, clock
        self._stop = threading.Event()
        self._delays: list[tuple[float, float]] = []
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._keep_posting, args=(asyncio.get_running_loop(),), name="loop-lag", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def during(self, t_from: float, t_to: float) -> float | None:
        """90th percentile (nearest rank) of the delays posted within the window, seconds; None if none was."""
        return weighted_percentile([(delay, 1) for t, delay in self._delays if t_from <= t <= t_to], 90)

    def post(self, loop: asyncio.AbstractEventLoop) -> None:
        """Post one callback now; the thread does this every `interval_s`."""
        loop.call_soon_threadsafe(self._land, self._clock())

    def _keep_posting(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._stop.wait(self._interval_s):
            self.post(loop)

    def _land(self, posted: float) -> None:
        self._delays.append((posted, self._clock() - posted))
