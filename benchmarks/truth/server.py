"""The truth server: an OpenAI-compatible streaming server that keeps the time of every chunk it sends.

Trap: a server on an event loop sends when the loop gets round to it, and believes its own plan. Rule: one process, one thread, no event
loop: it sleeps in `select` to shortly before the next chunk is due, waits out the rest on the monotonic clock, stamps, sends. What a
client is compared with is the stamp. Standard library only, so that it may run under any Python; loopback only.

`python -m benchmarks.truth.server --port 0` prints `{"port": N}` and serves until its standard input is closed or it gets SIGTERM.
`POST /scenario {"name": ..., "piece": " one"}` chooses what is sent and forgets what was sent; `GET /sent` returns every stream since.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import select
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.truth.scenarios import SCENARIOS, Api, Scenario, scenario_named
from benchmarks.truth.schedule import Due, Sent, SentStream, plan_of, usage_of

_SPIN_S = 0.00025
"""`select` wakes up to a tenth of a millisecond late: the last quarter is waited out."""
_HEAD_LIMIT = 1 << 20
_MODEL = "truth"


@dataclass
class _Stream:
    connection: _Connection
    key: str
    t_request: float
    prompt_tokens: int
    plan: tuple[Due, ...]
    position: int = 0
    sent: list[Sent] = field(default_factory=list)
    lateness_s: float = 0.0


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    stream: _Stream | None = None


class TruthServer:
    """One listening socket on loopback and what it is told to send."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[float, int, _Stream]] = []
        self._count = 0
        self._scenario: Scenario = SCENARIOS[0]
        self._piece = " one"
        self._sent: list[_Stream] = []
        self._pieces_before: dict[int, bytes] = {}

    def serve(self, until: int) -> None:
        """Serve until the file descriptor `until` becomes readable (its other end was closed)."""
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic() - _SPIN_S) if self._due else None
            readable, _, _ = select.select([until, self._listener.fileno(), *self._connections], [], [], wait)
            if until in readable:
                return
            for descriptor in readable:
                self._read(descriptor)
            self._send_due()

    def close(self) -> None:
        """Close every socket."""
        for connection in self._connections.values():
            connection.socket.close()
        self._listener.close()

    def _read(self, descriptor: int) -> None:
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
        arrived = time.monotonic()
        while (request := _whole_request(connection.buffer)) is not None:
            method, path, body, size = request
            del connection.buffer[:size]
            self._answer(connection, method, path, body, arrived)

    def _drop(self, connection: _Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
        connection.socket.close()
        connection.stream = None

    def _answer(self, connection: _Connection, method: str, path: str, body: bytes, arrived: float) -> None:
        if method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            self._completion(connection, path, json.loads(body), arrived)
        elif method == "POST" and path == "/scenario":
            wanted = json.loads(body)
            self._scenario, self._piece = scenario_named(wanted["name"]), wanted.get("piece", " one")
            self._sent.clear()
            _respond(connection, 200, {"scenario": self._scenario.name})
        elif path == "/sent":
            _respond(connection, 200, {"streams": [_record(stream) for stream in self._sent]})
        elif path == "/v1/models":
            _respond(connection, 200, {"object": "list", "data": [{"id": _MODEL, "object": "model", "max_model_len": 131072}]})
        elif path in ("/health", "/version"):
            _respond(connection, 200, {"version": "truth"})
        else:
            _respond(connection, 404, {"error": {"message": f"no {path}", "code": 404}})

    def _completion(self, connection: _Connection, path: str, body: dict[str, Any], arrived: float) -> None:
        refused = [name for name in self._scenario.refuses if name in body]
        if refused:
            _respond(connection, 400, {"error": {"message": f"unknown field {refused[0]}", "code": 400}})
            return
        prompt: Any = body.get("prompt", body.get("messages"))
        asked = int(body.get("max_tokens") or body.get("max_completion_tokens") or self._scenario.tokens)
        key = prompt_key(prompt)
        self._count += 1
        seed = int.from_bytes(hashlib.sha256(f"{self._scenario.name} {self._count}".encode()).digest()[:4], "big")
        stream = _Stream(connection, key, arrived, _prompt_tokens(prompt), plan_of(self._scenario, seed, asked))
        if not body.get("stream"):
            self._whole_answer(stream, path, asked)
            return
        connection.stream = stream
        self._sent.append(stream)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self._pieces_before[id(stream)] = head
        self._schedule(stream)

    def _whole_answer(self, stream: _Stream, path: str, asked: int) -> None:
        """A client that does not stream (a probe or warm-up of a peer) gets its text at once; no truth is kept of it."""
        text = self._piece * asked
        choice = {"index": 0, "finish_reason": "length"}
        content = {"message": {"role": "assistant", "content": text}} if path.endswith("chat/completions") else {"text": text}
        usage = {"prompt_tokens": stream.prompt_tokens, "completion_tokens": asked, "total_tokens": asked + stream.prompt_tokens}
        _respond(stream.connection, 200, {"id": "t", "model": _MODEL, "choices": [choice | content], "usage": usage})

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
            data = self._pieces_before.pop(id(stream), b"") + self._event(stream, event)
            while (now := time.monotonic()) < due:
                pass
            try:
                stream.connection.socket.sendall(data)
            except OSError:
                self._drop(stream.connection)
                continue
            stream.sent.append(Sent(now, event.kind, event.new_tokens, event.tokens))
            stream.lateness_s = max(stream.lateness_s, now - due)
            stream.position += 1
            if stream.position < len(stream.plan):
                self._schedule(stream)
            else:
                stream.connection.stream = None

    def _event(self, stream: _Stream, event: Due) -> bytes:
        """One SSE event as an HTTP chunk; the last one of a stream is followed by `[DONE]` and the end of the body."""
        scenario = self._scenario
        reason = "length" if event.kind == "finish" else None
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason}
        text = self._piece * event.new_tokens
        if scenario.api is Api.CHAT:
            choice["delta"] = {"role": "assistant", "content": ""} if event.kind == "role" else {scenario.text_field: text} if text else {}
        else:
            choice["text"] = text
        payload: dict[str, Any] = {"id": "t", "object": "chunk", "model": _MODEL, "choices": [choice]}
        usage = usage_of(event, stream.prompt_tokens, scenario.usage)
        data = _chunk(payload | ({"usage": usage} if usage and event.kind != "finish" else {}))
        if event.kind == "finish":
            if usage:
                data += _chunk({"id": "t", "object": "chunk", "model": _MODEL, "choices": [], "usage": usage})
            data += _http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        return data


def prompt_key(prompt: Any) -> str:
    """What ties a sent stream to the request that asked for it: a digest of the prompt or the messages."""
    return hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:16]


def _prompt_tokens(prompt: Any) -> int:
    """Ids are counted; of text, the words (every prompt of these benchmarks is made of single-token words)."""
    if isinstance(prompt, str):
        return max(1, len(prompt.split()))
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return len(prompt)
    return max(1, len(json.dumps(prompt).split()))


def _record(stream: _Stream) -> dict[str, Any]:
    sent = SentStream(stream.key, stream.t_request, tuple(stream.sent), stream.lateness_s)
    return asdict(sent) | {"prompt_tokens": stream.prompt_tokens}


def _whole_request(buffer: bytearray) -> tuple[str, str, bytes, int] | None:
    """(method, path, body, size) of the first complete request in `buffer`; None while it is incomplete."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or end > _HEAD_LIMIT:
        return None
    lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    lengths = [line.partition(":")[2] for line in lines[1:] if line.lower().startswith("content-length:")]
    size = end + 4 + (int(lengths[0]) if lengths else 0)
    return (method, path.partition("?")[0], bytes(buffer[end + 4 : size]), size) if len(buffer) >= size else None


def _respond(connection: _Connection, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    connection.socket.sendall(head + data)


def _chunk(payload: dict[str, Any]) -> bytes:
    return _http_chunk(b"data: " + json.dumps(payload).encode() + b"\n\n")


def _http_chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    server = TruthServer(parser.parse_args().port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(json.dumps({"port": server.port}), flush=True)
    try:
        server.serve(sys.stdin.fileno())
    finally:
        server.close()


if __name__ == "__main__":
    main()
