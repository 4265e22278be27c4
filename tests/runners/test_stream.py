"""The streaming client against servers that misbehave: always a recording, never an exception, never a wait without end."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from runners.rates import rates_of
from runners.sse import RawStream, read_trace
from runners.stream import CHAT_COMPLETIONS, COMPLETIONS, LoopLag, StreamPolicy, Target, open_client, record_stream
from runners.stream_trace import FailureKind, StreamFailure, StreamTrace
from tests.scripted_engine import ScriptedEngine
from tests.scripted_script import Script
from tests.scripted_server import ScriptedServer
from tests.virtual_time import ScriptedTransport, virtual_time

SHORT = StreamPolicy(connect_s=5, first_byte_s=30, idle_s=30, total_s=60)
TOKENS = 24
USAGE = {"include_usage": True, "continuous_usage_stats": True}


def ask(target: Target, path: str = COMPLETIONS, policy: StreamPolicy = SHORT, clock: Callable[[], float] = time.perf_counter) -> RawStream:
    body = {"model": "m", "prompt": list(range(40)), "max_tokens": TOKENS, "stream": True, "stream_options": USAGE}

    async def once() -> RawStream:
        async with open_client(target) as client:
            return await record_stream(client, path, body, policy, clock)

    return asyncio.run(once())


def trace_from(script: Script, path: str = COMPLETIONS, policy: StreamPolicy = SHORT) -> StreamTrace:
    """Over sockets: nothing that depends on time may be asserted."""
    with ScriptedServer(script) as server:
        return read_trace(ask(Target(server.base_url, "m"), path, policy), TOKENS, 40, client_lag_s=0.0)


def simulated(script: Script, path: str = COMPLETIONS) -> StreamTrace:
    """In virtual time: everything arrives exactly when it was scripted."""
    target = Target("http://engine", "m", transport=ScriptedTransport(ScriptedEngine(script)))
    with virtual_time() as virtual:
        return read_trace(ask(target, path, clock=virtual.clock), TOKENS, 40, client_lag_s=0.0)


@pytest.mark.parametrize("script", [Script(), Script(newline="\r\n", comments=True), Script(piece_bytes=7), Script(finish_apart=True)])
def test_complete_stream_is_read_whatever_its_framing(script: Script) -> None:
    trace = trace_from(script)
    assert (trace.failure, trace.done, trace.prompt_tokens, trace.completion_tokens) == (None, True, 40, TOKENS)
    assert [c.tokens for c in trace.chunks if c.has_text] == list(range(1, TOKENS + 1))
    assert rates_of(trace).valid


def test_times_are_those_of_the_engine() -> None:
    rates = rates_of(simulated(Script(first_delay_s=0.5, step_s=0.02)))
    assert rates.null_reason is None
    assert rates.ttft_s == pytest.approx(0.5)
    assert rates.decode_tok_s == pytest.approx(50)


@pytest.mark.parametrize("fields", [("content",), ("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content")])
def test_chat_text_is_found_in_every_spelling(fields: tuple[str, ...]) -> None:
    """The role chunk comes first, at once, and is not the first token."""
    rates = rates_of(simulated(Script(fields=fields, first_delay_s=0.5), CHAT_COMPLETIONS))
    assert (rates.carried_by, rates.valid) == ("+".join(fields), True)
    assert rates.ttft_s == pytest.approx(0.5)


def test_burst_gives_no_decode_rate() -> None:
    rates = rates_of(simulated(Script(burst=True)))
    assert (rates.valid, rates.decode_tok_s, rates.prefill_tok_s) == (True, None, None)
    assert "one_burst" in (rates.null_reason or "")


def test_late_finish_chunk_is_outside_the_window() -> None:
    rates = rates_of(simulated(Script(step_s=0.02, finish_apart=True, finish_delay_s=5.0)))
    assert rates.decode_tok_s == pytest.approx(50)


def test_final_usage_alone_gives_no_decode_rate() -> None:
    rates = rates_of(simulated(Script(usage="final", first_delay_s=0.5)))
    assert (rates.valid, rates.decode_tok_s) == (True, None)
    assert rates.ttft_s == pytest.approx(0.5)


def test_warm_cache_gives_no_ttft() -> None:
    rates = rates_of(simulated(Script(cached_tokens=32, step_s=0.02)))
    assert (rates.valid, rates.ttft_s, rates.prefill_tok_s) == (True, None, None)
    assert rates.decode_tok_s == pytest.approx(50)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (Script(null_text=True), "null_text"),
        (Script(usage="absent"), "usage_missing"),
        (Script(stop_after_tokens=13), "token_count: asked for 24 completion tokens, got 13"),
        (Script(error_after=5, error_form="event"), "error_event: EngineCore encountered an issue"),
        (Script(error_after=5, error_form="data"), "error_event: EngineCore encountered an issue"),
        (Script(error_after=5, error_form="object"), "error_event: EngineCore encountered an issue"),
        (Script(error_after=5, error_form="finish"), "error_event: finish_reason abort"),
        (Script(refuses=frozenset({"stream_options"})), "http_status: HTTP 400: "),
        (Script(status=503), "http_status: HTTP 503: "),
        (Script(drop_after=5), "dropped: after "),
        (Script(die_after=5), "dropped: after "),
        (Script(drop_after=0), "dropped: after 0 blocks"),
    ],
)
def test_misbehaviour_is_named(script: Script, reason: str) -> None:
    rates = rates_of(trace_from(script))
    assert not rates.valid
    assert (rates.invalid_reason or "").startswith(reason)


@pytest.mark.parametrize(
    ("script", "policy", "kind", "chunks"),
    [
        (Script(hang_after=0), StreamPolicy(first_byte_s=0.2), FailureKind.FIRST_BYTE_TIMEOUT, 0),
        (Script(hang_after=5), StreamPolicy(idle_s=0.5), FailureKind.IDLE_TIMEOUT, 5),
        (Script(hang_after=5), StreamPolicy(total_s=0.7), FailureKind.TOTAL_TIMEOUT, 5),
    ],
)
def test_hang_ends_at_the_limit_and_keeps_what_came(script: Script, policy: StreamPolicy, kind: FailureKind, chunks: int) -> None:
    trace = trace_from(script, policy=policy)
    assert trace.failure is not None
    assert (trace.failure.kind, len(trace.chunks)) == (kind, chunks)


def test_connection_that_stays_open_after_done_is_a_complete_stream() -> None:
    """`[DONE]`, even in two pieces, and no end of the answer: the client waits `drain_s`, not `idle_s`, and the stream is complete."""
    pieces = [b'data: {"choices": [{"text": "a", "finish_reason": "length"}], "usage": {"completion_tokens": 1}}\n\ndata: [DO', b"NE]\n\n"]
    with virtual_time() as virtual:
        raw = ask_mock(pieces, hang=True, policy=StreamPolicy(drain_s=1, idle_s=60, total_s=600), clock=virtual.clock)
    trace = read_trace(raw, 1)
    assert (trace.done, trace.failure) == (True, None)
    assert raw.t_end == pytest.approx(1.0)


def test_nothing_listening_is_connect_failed() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        raw = ask(Target(f"http://127.0.0.1:{unused.getsockname()[1]}", "m"))
    assert raw.failure is not None
    assert (raw.failure.kind, raw.status) == (FailureKind.CONNECT_FAILED, None)


def test_answer_that_is_not_http_is_dropped() -> None:
    assert answered_with(b"SSH-2.0-OpenSSH_9.6\r\n\r\n").kind is FailureKind.DROPPED


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 300_000 + b"\r\n\r\n",
        b"HTTP/1.1 307 Away\r\nLocation: http://[::bad\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 307 Away\r\nLocation: \xff\xfe\r\nSet-Cookie: \xff=;;;\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
        b"",
    ],
)
def test_broken_http_is_a_failure_not_an_exception(head: bytes) -> None:
    assert answered_with(head).detail


def test_hostile_cookie_does_not_spoil_the_next_request() -> None:
    """A kept cookie with such a name can never be sent again: every later request of the client would fail."""
    again = answered_with(b"HTTP/1.1 503 No\r\nSet-Cookie: \xff=1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", requests=2)
    assert again.kind is FailureKind.HTTP_STATUS


def answered_with(data: bytes, requests: int = 1) -> StreamFailure:
    """The failure of the last of some streams that a server answers with these raw bytes before it closes."""

    async def serve() -> StreamTrace:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
            writer.close()

        listener = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener, open_client(Target(f"http://127.0.0.1:{port}", "m")) as client:
            raws = [await record_stream(client, COMPLETIONS, {}, SHORT) for _ in range(requests)]
            return read_trace(raws[-1], 1)

    trace = asyncio.run(serve())
    assert trace.failure is not None
    return trace.failure


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, pieces: list[bytes], hang: bool, wait: bool) -> None:
        self.pieces, self.hang, self.wait = pieces, hang, wait

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if self.wait:
                await asyncio.sleep(0)
            yield piece
        if self.hang:
            await asyncio.Event().wait()


def ask_mock(
    pieces: list[bytes],
    *,
    hang: bool = False,
    wait: bool = True,
    policy: StreamPolicy = SHORT,
    status: int = 200,
    clock: Callable[[], float] | None = None,
) -> RawStream:
    """Record these pieces from a transport without a network; unless told otherwise the clock counts its calls."""

    async def once() -> RawStream:
        transport = httpx.MockTransport(lambda request: httpx.Response(status, stream=_Pieces(pieces, hang, wait)))
        async with httpx.AsyncClient(transport=transport, base_url="http://mock") as client:
            ticks = itertools.count()
            return await record_stream(client, COMPLETIONS, {}, policy, clock or (lambda: float(next(ticks))))

    return asyncio.run(once())


def test_each_wait_for_bytes_has_its_own_time() -> None:
    raw = ask_mock([b"a", b"b", b"c"])
    assert (raw.t_sent, [b.t for b in raw.blocks], raw.t_end) == (0.0, [1.0, 2.0, 3.0], 4.0)


def test_blocks_of_one_read_have_one_time() -> None:
    """They left the HTTP parser one after the other, without a wait: microseconds between them would be ours, not the engine's."""
    raw = ask_mock([b"a", b"b", b"c"], wait=False)
    assert [(b.t, b.data) for b in raw.blocks] == [(1.0, b"a"), (1.0, b"b"), (1.0, b"c")]


def test_stream_without_end_stops_at_the_size_limit() -> None:
    raw = ask_mock([b"x" * 1000] * 100, policy=StreamPolicy(max_bytes=5000))
    assert raw.failure is not None
    assert raw.failure.kind is FailureKind.TOO_LARGE
    assert sum(len(b.data) for b in raw.blocks) == 6000


def test_long_error_page_is_cut_and_still_an_http_error() -> None:
    raw = ask_mock([b"x" * 60_000] * 100, status=500)
    failure = read_trace(raw, 1).failure
    assert failure is not None
    assert (failure.kind, failure.status) == (FailureKind.HTTP_STATUS, 500)
    assert sum(len(b.data) for b in raw.blocks) == 120_000


def test_cancelling_our_own_task_is_not_swallowed() -> None:
    async def cancelled() -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=_Pieces([b"a"], hang=True, wait=True)))
        async with httpx.AsyncClient(transport=transport, base_url="http://mock") as client:
            task = asyncio.create_task(record_stream(client, COMPLETIONS, {}, SHORT))
            await asyncio.sleep(0)
            task.cancel()
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


def test_loop_lag_sees_a_blocked_loop() -> None:
    """The clock is ours: while the loop is held it jumps by 5 s, and a callback posted before the jump lands after it."""
    now = 100.0

    async def blocked() -> float | None:
        nonlocal now
        lag = LoopLag(interval_s=3600, clock=lambda: now)
        with lag:
            lag.post(asyncio.get_running_loop())
            now += 5.0
            await asyncio.sleep(0)
            return lag.during(99.0, 101.0)

    assert asyncio.run(blocked()) == 5.0


def test_loop_lag_outside_its_window_is_unknown() -> None:
    async def idle() -> float | None:
        with LoopLag(interval_s=3600) as lag:
            lag.post(asyncio.get_running_loop())
            await asyncio.sleep(0)
            return lag.during(-2.0, -1.0)

    assert asyncio.run(idle()) is None


def test_loop_lag_thread_posts_by_itself_and_ends() -> None:
    async def watched() -> float | None:
        with LoopLag(interval_s=0.001) as lag:
            while lag.during(0.0, float("inf")) is None:
                await asyncio.sleep(0.001)
            return lag.during(0.0, float("inf"))

    lag_s = asyncio.run(watched())
    assert lag_s is not None
    assert lag_s >= 0.0
