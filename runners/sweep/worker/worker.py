"""A small server inside an engine's own Python that loads one checkpoint after the other: `python worker.py serve|jobs ...`.

The trap: a release has dozens of checkpoints to judge, and three quarters of each start is importing the same modules again. The rule: one
process imports the engine once and then loads, answers and unloads as told, in the engine's own HTTP dialect, so that the side which judges
cannot tell it from a server. It judges nothing, times nothing, and what goes wrong in the engine ends it like any other server.

The files of this folder stand alone: the standard library, and the engine they run in (`vllm` in one process, or `transformers` as the
reference without any engine). `serve` answers on loopback; `jobs FILE` runs a prepared list without any network and writes one JSON line
per event to stdout.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import platform
import queue
import signal
import sys
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

from dialect import CHAT, COMPLETIONS, TOKENIZE, LoadFailed, Refusal

FORMAT = 1
MOST_BODY = 16 << 20


ENGINES = {"vllm": ("vllm_engine", "VllmEngine"), "transformers": ("transformers_engine", "TransformersEngine")}
"""Module beside this file and class of each engine; importing the module imports the engine."""


def make_engine(name: str) -> Any:
    """Import an engine and make it, without a checkpoint."""
    module, cls = ENGINES[name]
    return getattr(importlib.import_module(module), cls)()


class Pending:
    """One request from another thread; `wait` returns its status and answer."""

    def __init__(self, path: str, body: dict[str, Any]) -> None:
        self.path, self.body = path, body
        self.status = 500
        self.answer: Any = {"error": {"message": "not answered"}}
        self._done = threading.Event()

    def finish(self, status: int, answer: Any) -> None:
        self.status, self.answer = status, answer
        self._done.set()

    def wait(self) -> tuple[int, Any]:
        self._done.wait()
        return self.status, self.answer


class Worker:
    """The engine and what it is doing. `run` is the main thread's loop; everything else only puts requests into the queue."""

    def __init__(self, engine: str, model: str | None, served_name: str, arguments: list[str]) -> None:
        self._name = engine
        self.served_name = served_name
        self.state, self.error = "starting", ""
        self.engine: Any = None
        self._first = (model, arguments) if model else None
        self.requests: queue.Queue[Pending] = queue.Queue()
        self._asked: dict[str, Pending] = {}
        self._count = 0

    def run(self) -> None:
        """Import, load what was given, then answer until ended."""
        self.engine = make_engine(self._name)
        self.state = "idle"
        if self._first is not None:
            model, arguments = self._first
            self._load({"model": model, "served_name": self.served_name, "arguments": arguments})
            if self.state == "failed":
                raise SystemExit(f"the checkpoint could not be loaded: {self.error}")
        while True:
            self._take(block=not self.engine.busy)
            if self.engine.busy:
                for key, answer in self.engine.step():
                    self._asked.pop(key).finish(200, answer)

    def _take(self, *, block: bool) -> None:
        while True:
            try:
                pending = self.requests.get(block=block)
            except queue.Empty:
                return
            self._handle(pending)
            block = False

    def _handle(self, pending: Pending) -> None:
        if pending.path == "/load":
            self._unload()
            self.state = "loading"
            pending.finish(202, {})
            self._load(pending.body)
        elif pending.path == "/unload":
            self._unload()
            pending.finish(200, {})
        elif self.state != "serving":
            pending.finish(503, {"error": {"message": f"no checkpoint is served: {self.state}"}})
        else:
            self._ask(pending)

    def _ask(self, pending: Pending) -> None:
        self._count += 1
        key = f"request-{self._count}"
        try:
            answer = self.engine.add(key, pending.path, pending.body)
        except (Refusal, ValueError, TypeError) as error:
            pending.finish(400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}})
            return
        if answer is not None:
            pending.finish(200, answer)
        else:
            self._asked[key] = pending

    def _load(self, body: dict[str, Any]) -> None:
        self.state, self.error = "loading", ""
        try:
            self.engine.load(str(body["model"]), [str(a) for a in body.get("arguments") or ()])
        except LoadFailed as error:
            traceback.print_exc()
            self.state, self.error = "failed", str(error)
            return
        self.served_name, self.state = str(body.get("served_name") or self.served_name), "serving"

    def _unload(self) -> None:
        if self.state in ("serving", "failed"):
            self.engine.unload()
            self.state = "idle"
        sys.stdout.flush()
        sys.stderr.flush()


class Handler(BaseHTTPRequestHandler):
    """HTTP in front of the worker; one thread a connection."""

    worker: Worker
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Information, without asking the engine."""
        worker, path = self.worker, self.path.partition("?")[0]
        version = worker.engine.version if worker.engine is not None else None
        if path == "/state":
            return self._send(200, {"state": worker.state, "error": worker.error[:20_000], "version": version})
        if path == "/health":
            return self._send(200 if worker.state == "serving" else 503, {})
        if path == "/version" and version is not None:
            return self._send(200, {"version": version})
        if path == "/v1/models" and worker.state == "serving":
            data = [{"id": worker.served_name, "object": "model", "max_model_len": worker.engine.max_model_len}]
            return self._send(200, {"object": "list", "data": data})
        return self._send(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """A request to the engine, or an order to this server."""
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 < length <= MOST_BODY:
            return self._send(413, {"error": {"message": "the body is empty or too large"}})
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return self._send(400, {"error": {"message": "the body is no JSON object"}})
        if self.path not in ("/load", "/unload", COMPLETIONS, CHAT, TOKENIZE):
            return self._send(404, {"detail": "Not Found"})
        pending = Pending(self.path, body)
        self.worker.requests.put(pending)
        return self._send(*pending.wait())

    def _send(self, status: int, answer: Any) -> None:
        """JSON, or the events of a stream (a list), which all go out at once: when they were made is nobody's measurement here."""
        stream = isinstance(answer, list)
        data = (_sse(answer) if stream else json.dumps(answer)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """The log belongs to the engine."""


def _sse(events: list[Any]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def serve(arguments: argparse.Namespace, engine_arguments: list[str]) -> int:
    """Answer on loopback until ended."""
    if arguments.die_with_parent:
        _die_with_parent()
    worker = Worker(arguments.engine, arguments.model, arguments.served_model_name, engine_arguments)
    server = ThreadingHTTPServer((arguments.host, arguments.port), type("BoundHandler", (Handler,), {"worker": worker}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        worker.run()
    except KeyboardInterrupt:
        return 130
    finally:
        sys.stdout.flush()
    return 0


def _die_with_parent() -> None:
    """The kernel ends us when the runner dies, however it dies (Linux: PR_SET_PDEATHSIG)."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def run_jobs(path: Path) -> int:
    """Every job of a prepared list, in one process; one JSON line per event on the original stdout, everything else on stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs = json.loads(path.read_text(encoding="utf-8"))
    if jobs.get("format") != FORMAT:
        raise SystemExit(f"{path}: format {jobs.get('format')!r}, this worker reads {FORMAT}")
    os.environ.update({str(k): str(v) for k, v in jobs["environment"].items()})

    def tell(event: str, **fields: Any) -> None:
        out.write(json.dumps({"event": event, **fields}) + "\n")
        out.flush()

    started = time.monotonic()
    engine = make_engine(jobs["engine"])
    tell("hello", format=FORMAT, engine=jobs["engine"], version=engine.version, import_s=time.monotonic() - started, **_machine())
    usual = os.dup(2)
    for job in jobs["jobs"]:
        log = os.open(path.parent / job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        _write_to(log)
        try:
            _run_job(engine, job, path.parent, tell)
        except Exception as error:  # the engine's own, whatever class it has: without this line the output looks like one that was cut off
            tell("crashed", job=job["name"], error=f"{type(error).__name__}: {error}"[:20_000])
            raise
        _write_to(usual)
        os.close(log)
    tell("end")
    return 0


def _write_to(descriptor: int) -> None:
    """What the engine prints goes there from now on, whoever in this process writes it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


def _run_job(engine: Any, job: dict[str, Any], root: Path, tell: Any) -> None:
    name = job["name"]
    tell("began", job=name)
    started = time.monotonic()
    try:
        engine.load(str((root / job["model"]).resolve()), job["arguments"])
    except LoadFailed as error:
        traceback.print_exc()
        tell("failed", job=name, error=str(error)[:20_000], seconds=time.monotonic() - started)
        engine.unload()
        return
    tell("loaded", job=name, max_model_len=engine.max_model_len, seconds=time.monotonic() - started)
    started = time.monotonic()
    for number, wave in enumerate(job["waves"]):
        answers: dict[str, tuple[int, Any]] = {}
        for i, request in enumerate(wave):
            key = f"{name}-{number}-{i}"
            try:
                answer = engine.add(key, request["path"], request["body"])
            except (Refusal, ValueError, TypeError) as error:
                answers[key] = (400, {"error": {"message": str(error)}})
                continue
            if answer is not None:
                answers[key] = (200, answer)
        while engine.busy:
            answers.update({key: (200, answer) for key, answer in engine.step()})
        for i in range(len(wave)):
            status, answer = answers[f"{name}-{number}-{i}"]
            tell("answer", job=name, wave=number, request=i, status=status, answer=answer)
    tell("done", job=name, seconds=time.monotonic() - started)
    engine.unload()


def _machine() -> dict[str, Any]:
    """The GPU that torch sees, None without one."""
    facts: dict[str, Any] = {"python": platform.python_version(), "kernel": platform.release()}
    facts |= {"host": platform.node(), "wheels": sorted({f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions()})}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability(0)
        facts |= {"gpu_name": torch.cuda.get_device_name(0), "compute_capability": f"{major}.{minor}", "cuda": torch.version.cuda}
    return facts


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description="Load and answer one checkpoint after the other in one engine process.")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="answer on loopback; unknown options go to the engine with the first checkpoint")
    serving.add_argument("--engine", choices=sorted(ENGINES), required=True)
    serving.add_argument("--host", default="127.0.0.1")
    serving.add_argument("--port", type=int, required=True)
    serving.add_argument("--model", help="a checkpoint to load at once; without one, POST /load does")
    serving.add_argument("--served-model-name", default="model")
    serving.add_argument("--die-with-parent", action="store_true", help="end when the process that started this one ends")
    listed = commands.add_parser("jobs", help="run a prepared list of jobs and write the answers to stdout")
    listed.add_argument("file", type=Path)
    arguments, rest = parser.parse_known_args()
    return serve(arguments, rest) if arguments.command == "serve" else run_jobs(arguments.file)


if __name__ == "__main__":
    raise SystemExit(main())
