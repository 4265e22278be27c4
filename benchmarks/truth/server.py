"""The truth server: an OpenAI-compatible streaming server that keeps the time of every chunk it sends.

Trap: a server on an event loop sends when the loop gets round to it, and believes its own plan. Rule: one process, one thread, no event
loop: it sleeps in `select` to shortly before the next chunk is due, waits out the rest on the monotonic clock, stamps, sends. What a
client is compared with is the stamp; what the server cannot know of itself (how long a request lay unread, when within a send the bytes
left) is kept beside it. It asks for real-time scheduling and says whether it got it. Standard library only; loopback only.

`python -m benchmarks.truth.server --port 0` prints `{"port": N, "realtime": true}` and serves until its standard input is closed.
`POST /scenario` with the fields of a `Scenario`, the `piece` of text that is one token and the `prompt_tokens` that a prompt of text is
said to have chooses what is sent and forgets what was sent; `GET /sent` returns every stream since.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import heapq
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.truth.scenarios import SCENARIOS, Scenario, Usage, scenario_of
from benchmarks.truth.schedule import Due, Sent, SentStream, plan_of, seed_matters, usage_asked, usage_of

_SPIN_S = 0.00025
"""`select` wakes up to a tenth of a millisecond late: the last quarter is waited out."""
_SLEPT_S = 0.00002
"""A `select` that took longer did sleep, so what it reports came just then."""
_HEAD_LIMIT = 1 << 20
_MODEL = "truth"
_BOOK = " ".join(["one the a of and to in that"] * 4000)
"""For a tool that makes its prompts out of a book."""
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class _Stream:
    connection: _Connection
    key: str
    t_request: float
    unread_s: float
    prompt_tokens: int
    asked_tokens: int
    plan: tuple[Due, ...]
    usage: Usage
    text_field: str
    token_ids: bool
    head: bytes = _STREAM_HEAD
    position: int = 0
    sent: list[Sent] = field(default_factory=list)
    lateness_s: float = 0.0


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    stream: _Stream | None = None
    arrived: float = 0.0
    unread_s: float = 0.0


class TruthServer:
    """One listening socket on loopback and what it is told to send."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[float, int, _Stream]] = []
        self._count = 0
        self._scenario: Scenario = SCENARIOS[0]
        self._piece, self._prompt_tokens = " one", 1
        self._sent: list[_Stream] = []
        self._unanswered: deque[_Connection] = deque()

    def serve(self, until: int) -> None:
        """Serve until the file descriptor `until` becomes readable (its other end was closed). One request is answered a turn."""
        looked = time.monotonic()
        while True:
            now = time.monotonic()
            wait = 0.0 if self._unanswered else max(0.0, self._due[0][0] - now - _SPIN_S) if self._due else None
            readable, _, _ = select.select([until, self._listener.fileno(), *self._connections], [], [], wait)
            if until in readable:
                return
            back = time.monotonic()
            unseen_since, looked = back if back - now > _SLEPT_S else looked, back
            for descriptor in readable:
                self._read(descriptor, unseen_since)
            if self._unanswered:
                self._answer_all(self._unanswered.popleft())
            self._send_due()

    def close(self) -> None:
        """Close every socket."""
        for connection in self._connections.values():
            connection.socket.close()
        self._listener.close()

    def _read(self, descriptor: int, unseen_since: float) -> None:
        """Take what came and stamp it; what it means is looked at later."""
        if descriptor == self._listener.fileno():
            accepted, _ = self._listener.accept()
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[accepted.fileno()] = _Connection(accepted)
            return
        connection = self._connections[descriptor]
        try:
            data = connection.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.buffer += data
        connection.arrived = time.monotonic()
        connection.unread_s = connection.arrived - unseen_since
        self._unanswered.append(connection)

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()
        connection.stream = None

    def _answer_all(self, connection: _Connection) -> None:
        try:
            while (request := _whole_request(connection.buffer)) is not None:
                method, path, body, size = request
                del connection.buffer[:size]
                self._answer(connection, method, path, body)
        except (ValueError, TypeError, AttributeError) as error:
            _respond(connection, 400, {"error": {"message": str(error), "code": 400}})
        except OSError:
            self._drop(connection)

    def _answer(self, connection: _Connection, method: str, path: str, body: bytes) -> None:
        if method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            self._completion(connection, path, json.loads(body))
        elif method == "POST" and path == "/scenario":
            _respond(connection, 200, {"scenario": self._choose(json.loads(body)).name})
        elif path == "/sent":
            _respond(connection, 200, {"streams": [_record(stream) for stream in self._sent]})
        elif path == "/v1/models":
            _respond(connection, 200, {"object": "list", "data": [{"id": _MODEL, "object": "model", "max_model_len": 131072}]})
        elif path == "/begun":
            _respond(connection, 200, {"streams": len(self._sent)})
        elif path == "/book":
            _respond_text(connection, _BOOK)
        elif path in ("/health", "/version"):
            _respond(connection, 200, {"version": "truth"})
        else:
            _respond(connection, 404, {"error": {"message": f"no {path}", "code": 404}})

    def _choose(self, wanted: dict[str, Any]) -> Scenario:
        self._piece, self._prompt_tokens = wanted.pop("piece"), wanted.pop("prompt_tokens")
        self._scenario = scenario_of(wanted)
        self._sent.clear()
        gc.collect()
        return self._scenario

    def _completion(self, connection: _Connection, path: str, body: dict[str, Any]) -> None:
        scenario, chat = self._scenario, path.endswith("chat/completions")
        refused = [name for name in scenario.refuses if name in body]
        if refused:
            _respond(connection, 400, {"error": {"message": f"unknown field {refused[0]}", "code": 400}})
            return
        prompt: Any = body.get("prompt", body.get("messages"))
        asked = int(body.get("max_tokens") or body.get("max_completion_tokens") or scenario.tokens)
        self._count += 1
        seed = self._count if seed_matters(scenario) else 0
        stream = _Stream(
            connection,
            prompt_key(prompt),
            connection.arrived,
            connection.unread_s,
            len(prompt) if isinstance(prompt, list) and prompt and isinstance(prompt[0], int) else self._prompt_tokens,
            asked,
            plan_of(scenario, seed, asked),
            usage_asked(scenario, body),
            scenario.field_of(chat=chat),
            bool(body.get("return_token_ids")),
        )
        if not body.get("stream"):
            self._whole_answer(stream, chat)
            return
        connection.stream = stream
        self._sent.append(stream)
        self._schedule(stream)

    def _whole_answer(self, stream: _Stream, chat: bool) -> None:
        """A client that does not stream (a probe or warm-up of a peer) gets its text at once; no truth is kept of it."""
        asked, text = stream.asked_tokens, self._piece * stream.asked_tokens
        choice = {"index": 0, "finish_reason": "length"}
        content = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        usage = {"prompt_tokens": stream.prompt_tokens, "completion_tokens": asked, "total_tokens": asked + stream.prompt_tokens}
        kind = "chat.completion" if chat else "text_completion"
        answer = {"id": "t", "object": kind, "created": 0, "model": _MODEL, "choices": [choice | content], "usage": usage}
        _respond(stream.connection, 200, answer)

    def _schedule(self, stream: _Stream) -> None:
        self._count += 1
        heapq.heappush(self._due, (stream.t_request + stream.plan[stream.position].after_s, self._count, stream))

    def _send_due(self) -> None:
        """Send everything that is due, waiting out the rest of `_SPIN_S` for a chunk that is nearly due."""
        while self._due and self._due[0][0] - time.monotonic() <= _SPIN_S:
            due, _, stream = heapq.heappop(self._due)
            if stream.connection.stream is not stream:
                continue
            event = stream.plan[stream.position]
            data = stream.head + self._event(stream, event)
            stream.head = b""
            while (now := time.monotonic()) < due:
                pass
            try:
                stream.connection.socket.sendall(data)
            except OSError:
                self._drop(stream.connection)
                continue
            stream.sent.append(Sent(now, event.kind, event.new_tokens, event.tokens, time.monotonic() - now))
            stream.lateness_s = max(stream.lateness_s, now - due)
            stream.position += 1
            if stream.position < len(stream.plan):
                self._schedule(stream)
            else:
                stream.connection.stream = None

    def _event(self, stream: _Stream, event: Due) -> bytes:
        """One SSE event as an HTTP chunk; the last one of a stream is followed by `[DONE]` and the end of the body."""
        reason = "length" if event.kind == "finish" else None
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        text = self._piece * event.new_tokens
        if stream.text_field != "text":
            choice["delta"] = {"role": "assistant", "content": ""} if event.kind == "role" else {stream.text_field: text} if text else {}
        else:
            choice["text"] = text
        if stream.token_ids and event.new_tokens:
            choice["token_ids"] = [1] * event.new_tokens
        kind = "text_completion" if stream.text_field == "text" else "chat.completion.chunk"
        payload: dict[str, Any] = {"id": "t", "object": kind, "created": 0, "model": _MODEL, "choices": [choice]}
        usage = usage_of(event, stream.prompt_tokens, stream.usage)
        data = _chunk(payload | ({"usage": usage} if usage and event.kind != "finish" else {}))
        if event.kind == "finish":
            if usage:
                data += _chunk(payload | {"choices": [], "usage": usage})
            data += _http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        return data


def prompt_key(prompt: Any) -> str:
    """What ties a sent stream to the request that asked for it: a digest of the prompt or the messages."""
    return hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:16]


def _record(stream: _Stream) -> Mapping[str, Any]:
    sent = SentStream(stream.key, stream.t_request, tuple(stream.sent), stream.lateness_s, stream.unread_s, stream.asked_tokens)
    return asdict(sent) | {"prompt_tokens": stream.prompt_tokens}


def _whole_request(buffer: bytearray) -> tuple[str, str, bytes, int] | None:
    """(method, path, body, size) of the first complete request in `buffer`; None while it is incomplete. Raises ValueError for no HTTP."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or end > _HEAD_LIMIT:
        return None
    lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    lengths = [line.partition(":")[2] for line in lines[1:] if line.lower().startswith("content-length:")]
    size = end + 4 + (int(lengths[0]) if lengths else 0)
    return (method, path.partition("?")[0], bytes(buffer[end + 4 : size]), size) if len(buffer) >= size else None


def _respond(connection: _Connection, status: int, body: Mapping[str, Any]) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    connection.socket.sendall(head + data)


def _respond_text(connection: _Connection, text: str) -> None:
    data = text.encode()
    connection.socket.sendall(f"HTTP/1.1 200 X\r\nContent-Type: text/plain\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)


def _chunk(payload: Mapping[str, Any]) -> bytes:
    return _http_chunk(b"data: " + json.dumps(payload).encode() + b"\n\n")


def _http_chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _realtime() -> bool:
    """Ask to run before ordinary processes, so that a busy machine does not delay a chunk; False where that is not allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (OSError, AttributeError):
        return False
    return True


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.server")
    parser.add_argument("--port", type=int, default=0)
    server = TruthServer(parser.parse_args().port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    gc.disable()
    print(json.dumps({"port": server.port, "realtime": _realtime()}), flush=True)
    try:
        server.serve(sys.stdin.fileno())
    finally:
        server.close()


if __name__ == "__main__":
    main()
