"""A small HTTP server on loopback that behaves as a `Script` says, in place of a vLLM or SGLang server.

Standard library only, HTTP/1.1 with keep-alive and chunked streams, one event loop in a thread of its own. As a context manager:

    with ScriptedServer(Script(hang_after=10)) as server:
        ...  # server.base_url, server.engine.requests

and as a program, to boot a whole pipeline against it: `python tests/scripted_server.py --port 8123 --script good`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.scripted_engine import Answer, Answerer, Profile, ScriptedEngine, counting_answer
from tests.scripted_script import SCRIPTS, Act, Script, Step

_MOST_BYTES = 8 << 20


class ScriptedServer:
    """A `ScriptedEngine` behind a socket; port 0 takes a free one."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        then: Mapping[int, Script] | None = None,
        profile: Profile | None = None,
        answer: Answerer = counting_answer,
        port: int = 0,
    ) -> None:
        self.engine = ScriptedEngine(script, then=then, profile=profile, answer=answer)
        self.port = port
        self._ready, self._thread = threading.Event(), threading.Thread(target=self._run, name="scripted-server", daemon=True)
        self._error: OSError | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
        self._thread.join()

    def release(self) -> None:
        """End everything: hanging streams, open connections, the listener. Does nothing the second time."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    def serve_forever(self) -> None:
        """In this thread, until the script lets the server die or the program is interrupted."""
        self._run()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop, self._open = asyncio.get_running_loop(), asyncio.Event(), set[asyncio.Task[Any]]()
        try:
            listener = await asyncio.start_server(self._connection, "127.0.0.1", self.port)
        except OSError as error:
            self._error = error
            self._ready.set()
            return
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        listener.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while (request := await _read_request(reader)) is not None and await self._respond(*request, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.transport.abort() if self._stop.is_set() else writer.close()

    async def _respond(self, method: str, path: str, body: Any, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection can be used again."""
        reply = self.engine.reply(method, path, body)
        if reply.steps is None:
            await _send(writer, reply.status, reply.answer)
            return True
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n")
        for step in reply.steps:
            if not await self._step(step, writer):
                return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _step(self, step: Step, writer: asyncio.StreamWriter) -> bool:
        """Send one step; whether the stream goes on."""
        await asyncio.sleep(step.delay_s)
        size = self.engine.script.piece_bytes or max(1, len(step.data))
        for start in range(0, len(step.data), size):
            piece = step.data[start : start + size]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if step.act is Act.HANG:
            await self._stop.wait()
        elif step.act is Act.DROP:
            writer.transport.abort()
        elif step.act is Act.DIE:
            self._stop.set()
        return step.act is Act.GO_ON


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, Any] | None:
    """(method, path, JSON body or None); None when the client is done."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = int(headers.get("content-length", "0"))
    if length > _MOST_BYTES:
        return None
    data = await reader.readexactly(length)
    return method, path.partition("?")[0], json.loads(data) if data else None


async def _send(writer: asyncio.StreamWriter, status: int, answer: Any) -> None:
    text = isinstance(answer, str)
    data = answer.encode() if text else json.dumps(answer).encode()
    kind = "text/plain" if text else "application/json"
    head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()


def answers_from(path: Path) -> Answerer:
    """Answers of a JSON list of `{"prompt_ids", "token_ids", "text", "margins"}`; a prompt that is not in it gets the default answer."""
    known = {
        tuple(entry["prompt_ids"]): Answer(tuple(entry["token_ids"]), entry["text"], tuple(entry["margins"]))
        for entry in json.loads(path.read_text(encoding="utf-8"))
    }
    return lambda prompt, max_tokens: known.get(prompt) or counting_answer(prompt, max_tokens)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="Serve a scripted engine on loopback.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="good")
    parser.add_argument("--engine", choices=("vllm", "sglang"), default="vllm")
    parser.add_argument("--version", default="0.32.0")
    parser.add_argument("--model", default="canary")
    parser.add_argument("--answers", type=Path, help="JSON list of {prompt_ids, token_ids, text, margins}")
    options = parser.parse_args()
    profile = Profile(options.engine, options.version, options.model)
    answer = answers_from(options.answers) if options.answers else counting_answer
    try:
        ScriptedServer(SCRIPTS[options.script], profile=profile, answer=answer, port=options.port).serve_forever()
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
