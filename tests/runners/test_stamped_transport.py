"""Bytes are stamped as they are read, and whatever HTTP arrives becomes an answer or an error of httpx."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine

import httpx
import pytest

from runners.stamped_transport import PATIENCE, READS, SENDING, STAMP_CLOCK, TRACE, StampedTransport, run_stamped
from runners.stream import undisturbed
from tests.runners.test_chunked import chunk

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Run = Callable[[Coroutine[None, None, None]], None]
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(params=[asyncio.run, run_stamped], ids=["any loop", "own selector"])
def run(request: pytest.FixtureRequest) -> Run:
    """The same answers come from whichever loop reads the socket."""
    chosen: Run = request.param
    return chosen


async def serving(answer: Answer, ask: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """Let `ask` talk to a server whose every connection is `answer`."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(one, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, httpx.AsyncClient(base_url=address, transport=StampedTransport(), timeout=None) as client:
        await ask(client)


def test_request_arrives_whole_and_the_answer_without_its_coding(run: Run) -> None:
    received = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(4))
        writer.write(HEAD + chunk(b"ab") + chunk(b"c") + b"0\r\n\r\n")

    async def ask(client: httpx.AsyncClient) -> None:
        reply = await client.post("/v1/completions?x=1", content=b"body")
        assert (reply.status_code, reply.content) == (200, b"abc")

    run(serving(answer, ask))
    assert received[0].startswith(b"POST /v1/completions?x=1 HTTP/1.1\r\n")
    assert received[0].endswith(b"\r\n\r\nbody")


def test_a_request_larger_than_any_buffer_arrives_whole(run: Run) -> None:
    body, received = bytes(range(256)) * 65_536, []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0)
        received.append(await reader.readexactly(len(body)))
        writer.write(HEAD + chunk(b"ok") + b"0\r\n\r\n")

    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.post("/", content=body)).content == b"ok"

    run(serving(answer, ask))
    assert received == [body]


def test_an_answer_that_comes_before_the_request_was_read_is_read(run: Run) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
        await writer.drain()
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 20):
                pass

    async def ask(client: httpx.AsyncClient) -> None:
        reply = await client.post("/", content=bytes(1 << 24))
        assert (reply.status_code, reply.content) == (413, b"big")

    run(serving(answer, ask))


def test_stamp_is_that_of_the_read_and_not_of_its_digestion(run: Run) -> None:
    """The server writes the next piece only after the client looked at its stamps: the clock counts reads, nothing else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(b"a") + chunk(b"b"))
        await go_on.acquire()
        writer.write(chunk(b"c") + b"0\r\n\r\n")
        await writer.drain()

    async def ask(client: httpx.AsyncClient) -> None:
        ticks = itertools.count(1)
        request = client.build_request("GET", "/", extensions={STAMP_CLOCK: lambda: float(next(ticks))})
        reply = await client.send(request, stream=True)
        stamped = []
        async for reads in reply.extensions[READS]:
            stamped += reads
            go_on.release()
        assert stamped == [(1.0, b"ab"), (2.0, b"c")]
        await reply.aclose()

    go_on = asyncio.Semaphore(0)
    run(serving(answer, ask))


@pytest.mark.parametrize("pieces", [3, 300])
def test_a_long_or_complete_answer_is_handed_out_before_patience_ends(run: Run, pieces: int) -> None:
    """Each piece is written after the one before was stamped, so it is a read of its own; the long answer has no end."""
    stamped, headed = threading.Semaphore(1), threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(ConnectionError):
            assert connection.recv(1 << 16).endswith(b"\r\n\r\n")
            connection.sendall(HEAD)
            headed.wait(60)
            for _ in range(pieces):
                stamped.acquire(timeout=60)
                connection.sendall(chunk(b"a"))
            connection.sendall(b"0\r\n\r\n" if pieces == 3 else b"")
            connection.recv(1 << 16)

    def clock() -> float:
        stamped.release()
        return 0.0

    async def ask() -> None:
        async with httpx.AsyncClient(transport=StampedTransport(), timeout=None) as client, asyncio.timeout(20):
            request = client.build_request("GET", address, extensions={STAMP_CLOCK: clock, PATIENCE: 3600.0})
            reply = await client.send(request, stream=True)
            headed.set()
            reads, body = reply.extensions[READS], b""
            while len(body) < min(pieces, 100):
                body += b"".join(data for _, data in await anext(reads))
            await reply.aclose()
            stamped.release(pieces)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        run(ask())
        server.join(60)
    assert not server.is_alive()


def test_sending_is_told_after_the_connection_stands_and_before_a_byte_is_written(run: Run) -> None:
    steps = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        steps.append("connected")
        told.release()
        await reader.readuntil(b"\r\n\r\n")
        steps.append("request")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def trace(step: str, info: object) -> None:
        await told.acquire()
        steps.append(step)

    async def ask(client: httpx.AsyncClient) -> None:
        await client.send(client.build_request("GET", "/", extensions={TRACE: trace}))

    told = asyncio.Semaphore(0)
    run(serving(answer, ask))
    assert steps == ["connected", SENDING, "request"]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", httpx.RemoteProtocolError),
        (b"SSH-2.0\r\n\r\n", httpx.RemoteProtocolError),
        (HEAD + chunk(b"a"), httpx.RemoteProtocolError),
        (HEAD + b"zz\r\n", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000 + b"\r\n\r\n", httpx.RemoteProtocolError),
    ],
)
def test_broken_answer_is_an_error_of_httpx(run: Run, data: bytes, error: type[Exception]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)

    async def ask(client: httpx.AsyncClient) -> None:
        with pytest.raises(error):
            await client.get("/")

    run(serving(answer, ask))


def test_body_that_ends_with_the_connection_is_complete(run: Run) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\nall of it")

    async def ask(client: httpx.AsyncClient) -> None:
        assert (await client.get("/")).content == b"all of it"

    run(serving(answer, ask))


def test_closing_an_answer_early_closes_its_connection(run: Run) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(b"a"))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        closed.release()

    async def ask(client: httpx.AsyncClient) -> None:
        reply = await client.send(client.build_request("GET", "/"), stream=True)
        await reply.aclose()
        await closed.acquire()

    closed = asyncio.Semaphore(0)
    run(serving(answer, ask))


def test_undisturbed_puts_everything_back_also_after_an_error() -> None:
    before = (gc.isenabled(), sys.getswitchinterval())
    with pytest.raises(KeyError), undisturbed():
        assert not gc.isenabled()
        assert sys.getswitchinterval() < before[1]
        raise KeyError
    assert (gc.isenabled(), sys.getswitchinterval()) == before


def test_a_loop_that_stamps_still_runs_timers_threads_and_other_sockets() -> None:
    """Bytes that come all the time must not keep the loop from anything else."""
    done: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        while len(done) < 2:
            writer.write(chunk(b"x"))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    async def others() -> None:
        await asyncio.sleep(0.01)
        done.append("timer")
        await asyncio.get_running_loop().run_in_executor(None, done.append, "thread")

    async def ask(client: httpx.AsyncClient) -> None:
        reply, _ = await asyncio.gather(client.get("/"), others())
        assert set(reply.content) == {ord("x")}

    run_stamped(serving(answer, ask))
    assert sorted(done) == ["thread", "timer"]
