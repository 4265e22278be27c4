from __future__ import annotations

import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from results.vocabulary import Outcome
from runners.process.log import LogLimits
from runners.process.ports import Listeners, free_port
from runners.process.ready import Evidence, NotReady, Probes, Readiness, Ready, ReadyLimits, explain, wait_for_server
from runners.process.server import Exit
from runners.process.vitals import Vitals, Watch
from tests.runners.process.conftest import Start

OURS = frozenset({10})
IDLE = Vitals(None, wrote=False, cpu_s=0.0, io_bytes=0, pids=OURS)
BUSY = replace(IDLE, cpu_s=9.0)


@dataclass
class World:
    """A server whose answers and vitals follow a script over fake time."""

    vitals: Callable[[float], Vitals] = lambda now: BUSY
    health: Callable[[float], bool] = lambda now: False
    owners: Callable[[float], Listeners] = lambda now: Listeners(OURS)
    models: Callable[[float], Sequence[str] | None] = lambda now: ["canary"]
    token: Callable[[float], str | None] = lambda now: None
    now: float = 1000.0

    def run(self, limits: ReadyLimits = ReadyLimits()) -> Ready | NotReady:  # noqa: B008 (frozen)
        since = self.now
        probes = Probes(lambda: self.health(self.now - since), lambda: self.models(self.now - since), lambda: self.token(self.now - since))
        readiness = Readiness(probes, lambda: self.owners(self.now - since), "canary", limits=limits, clock=lambda: self.now)
        while (verdict := readiness.step(self.vitals(self.now - since))) is None:
            self.now += limits.poll_s
        return verdict


def timeout(now: float) -> str | None:
    raise TimeoutError


def fail(world: World) -> NotReady:
    verdict = world.run()
    assert isinstance(verdict, NotReady), verdict
    return verdict


def test_ready_needs_health_our_port_our_model_and_a_token() -> None:
    world = World(
        health=lambda now: now >= 10,
        models=lambda now: ["canary"] if now >= 20 else None,
        token=lambda now: None if now >= 30 else "HTTP 503",
    )
    assert world.run() == Ready(30.0)


def test_silence_without_any_work_is_a_hang_after_the_limit() -> None:
    verdict = fail(World(vitals=lambda now: BUSY if now <= 100 else IDLE))
    assert (verdict.kind, verdict.seconds) == (Outcome.HANG, 100 + 180)
    assert "no log line, CPU time or disk traffic" in verdict.reason


@pytest.mark.parametrize("sign", [{"cpu_s": 0.5}, {"io_bytes": 10_000_000}, {"wrote": True}], ids=str)
def test_work_every_now_and_then_is_not_a_hang_until_the_total_limit(sign: dict[str, object]) -> None:
    verdict = fail(World(vitals=lambda now: replace(IDLE, **sign) if now % 170 == 0 else IDLE))  # type: ignore[arg-type]
    assert (verdict.kind, verdict.seconds) == (Outcome.HANG, 1800)
    assert "still working" in verdict.reason


def test_early_death_is_a_crash_with_its_exit_code() -> None:
    verdict = fail(World(vitals=lambda now: BUSY if now < 5 else replace(IDLE, exit=Exit(code=7))))
    assert verdict == NotReady(Outcome.CRASH, "the server exited with code 7 before it was ready, after 5 s", 5.0, Exit(code=7))


def test_dead_server_is_not_ready_even_if_something_answers() -> None:
    verdict = fail(World(vitals=lambda now: replace(IDLE, exit=Exit(signal=9)), health=lambda now: True))
    assert (verdict.kind, verdict.exit) == (Outcome.CRASH, Exit(signal=9))


@pytest.mark.parametrize(
    ("owners", "who"),
    [
        (Listeners(frozenset({99})), "pid 99"),
        (Listeners(OURS | {99}), "pid 99"),
        (Listeners(hidden=True), "a process of another user"),
        (Listeners(OURS, hidden=True), "a process of another user"),
    ],
)
def test_port_that_is_not_ours_alone_is_infrastructure(owners: Listeners, who: str) -> None:
    verdict = fail(World(health=lambda now: True, owners=lambda now: owners))
    assert (verdict.kind, verdict.exit) == (Outcome.INFRASTRUCTURE, None)
    assert who in verdict.reason


def test_worker_born_after_the_look_is_not_taken_for_a_stranger() -> None:
    world = World(health=lambda now: True, owners=lambda now: Listeners(OURS if now else OURS | {11}))
    assert world.run() == Ready(1.0)


def test_port_without_a_visible_owner_never_becomes_ready() -> None:
    verdict = fail(World(health=lambda now: True, owners=lambda now: Listeners(), vitals=lambda now: IDLE))
    assert verdict.kind is Outcome.HANG
    assert "no listener on the port is visible" in verdict.reason


def test_wrong_model_is_infrastructure_and_its_name_is_shown_harmlessly() -> None:
    verdict = fail(World(health=lambda now: True, models=lambda now: ["\x1b[31mother"]))
    assert verdict.kind is Outcome.INFRASTRUCTURE
    assert "names other, not canary" in verdict.reason


def test_healthy_server_that_refuses_every_token_request_is_a_crash() -> None:
    verdict = fail(World(health=lambda now: now >= 50, token=lambda now: "HTTP 500: token=abcdefgh12345 \x1b[2J"))
    assert (verdict.kind, verdict.seconds) == (Outcome.CRASH, 110)
    assert "HTTP 500" in verdict.reason and "abcdefgh" not in verdict.reason and "\x1b" not in verdict.reason


def test_healthy_busy_server_that_never_gives_a_token_is_a_hang() -> None:
    verdict = fail(World(health=lambda now: now >= 50, token=timeout))
    assert (verdict.kind, verdict.seconds) == (Outcome.HANG, 650)
    assert "no token within 600 s" in verdict.reason


def test_first_refusals_do_not_count_once_tokens_are_only_slow() -> None:
    world = World(health=lambda now: True, token=lambda now: "HTTP 503" if now < 50 else (timeout(now) if now < 500 else None))
    assert world.run() == Ready(500.0)


def test_log_flood_is_infrastructure() -> None:
    verdict = fail(World(vitals=lambda now: replace(BUSY, trouble="the disk is full")))
    assert (verdict.kind, verdict.reason) == (Outcome.INFRASTRUCTURE, "the disk is full")


def test_a_server_that_was_killed_for_its_log_is_no_crash() -> None:
    """The sampler kills it between two looks."""
    verdict = fail(World(vitals=lambda now: replace(IDLE, trouble="the log is too large", exit=Exit(signal=9))))
    assert (verdict.kind, verdict.reason) == (Outcome.INFRASTRUCTURE, "the log is too large")


CRASH = NotReady(Outcome.CRASH, "it ended", 1.0, Exit(code=1))
KILLED = NotReady(Outcome.CRASH, "it ended", 1.0, Exit(signal=9))
HANG = NotReady(Outcome.HANG, "it hangs", 1.0)
TORCH = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 121.69 GiB\n"
SIGQUIT = "[2026-11-30 23:47:55] Received sigquit from a child process. It usually means the child failed.\n"
BIND = "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use\n"


@pytest.mark.parametrize(
    ("failed", "log", "kernel", "kind", "said"),
    [
        (CRASH, TORCH, None, Outcome.OOM, "Tried to allocate"),
        (HANG, TORCH, None, Outcome.OOM, "Tried to allocate"),
        (CRASH, "RuntimeError: CUDA error: out of range\n", None, Outcome.CRASH, "it ended"),
        (CRASH, "NVRM: ... [NV_ERR_NO_MEMORY]\n", None, Outcome.OOM, "NV_ERR_NO_MEMORY"),
        (CRASH, "OSError: [Errno 12] Cannot allocate memory\n", None, Outcome.OOM, "Errno 12"),
        (KILLED, "", "the kernel's OOM killer ended 1 process(es)", Outcome.OOM, "OOM killer"),
        (CRASH, "", "the kernel's OOM killer ended 1 process(es)", Outcome.OOM, "OOM killer"),
        (HANG, "", "the kernel log says: NV_ERR_NO_MEMORY", Outcome.OOM, "kernel log"),
        (KILLED, "", None, Outcome.CRASH, "somebody sent it"),
        (KILLED, SIGQUIT, None, Outcome.CRASH, "by itself, after one of its processes had failed"),
        (KILLED, SIGQUIT, "the kernel's OOM killer ended 1 process(es)", Outcome.OOM, "OOM killer"),
        (KILLED, SIGQUIT + "x\n" * 100, None, Outcome.CRASH, "somebody sent it"),
        (CRASH, BIND, None, Outcome.INFRASTRUCTURE, "already in use"),
        (HANG, BIND, None, Outcome.HANG, "it hangs"),
        (CRASH, TORCH + "x\n" * 1000, None, Outcome.CRASH, "it ended"),
        (replace(CRASH, kind=Outcome.INFRASTRUCTURE), TORCH, None, Outcome.INFRASTRUCTURE, "it ended"),
    ],
)
def test_what_ended_it_is_told_from_log_and_kernel(failed: NotReady, log: str, kernel: str | None, kind: Outcome, said: str) -> None:
    explained = explain(failed, Evidence(log, kernel))
    assert explained.kind is kind
    assert said in explained.reason and failed.reason in explained.reason
    assert (explained.exit, explained.seconds) == (failed.exit, failed.seconds)


def test_engines_bring_their_own_memory_patterns() -> None:
    log = "ValueError: No available memory for the cache blocks.\n"
    assert explain(CRASH, Evidence(log, None)).kind is Outcome.CRASH
    assert explain(CRASH, Evidence(log, None), [re.compile("No available memory for the cache blocks")]).kind is Outcome.OOM


# Real processes from here on. Waiting is short: limits are fractions of a second, and no outcome depends on which one is met first.

NEVER = Probes(lambda: False, lambda: None, lambda: "never asked")
SHORT = ReadyLimits(silence_s=0.7, total_s=1.5, poll_s=0.05)

SERVER = """
import json, os, socket, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": "canary"}]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
HTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else PORT), Handler).serve_forever()
"""


def http_probes(port: int) -> Probes:
    def get(path: str) -> bytes | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except (urllib.error.URLError, OSError):
            return None

    def models() -> list[str] | None:
        body = get("/v1/models")
        return None if body is None else [m["id"] for m in json.loads(body)["data"]]

    return Probes(lambda: get("/health") is not None, models, lambda: None if get("/v1/completions") else "no answer")


@contextmanager
def neighbour() -> Iterator[int]:
    """A healthy server of somebody else (of this test process); gives its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "canary"}]}')

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_real_server_of_ours_becomes_ready(start: Start) -> None:
    port = free_port()
    server = start(f"PORT = {port}\n{SERVER}", port=port)
    limits = ReadyLimits(silence_s=30, total_s=60, poll_s=0.05)
    assert isinstance(wait_for_server(server, "canary", http_probes(port), limits=limits), Ready)


def test_worker_of_ours_that_listens_in_another_session_is_ours(start: Start) -> None:
    port = free_port()
    code = f"import os\nif os.fork():\n    os.wait()\nos.setsid()\nPORT = {port}\n{SERVER}"
    server = start(code, port=port)
    limits = ReadyLimits(silence_s=30, total_s=60, poll_s=0.05)
    assert isinstance(wait_for_server(server, "canary", http_probes(port), limits=limits), Ready)


def test_healthy_neighbour_on_our_port_is_not_accepted_as_ours(start: Start) -> None:
    with neighbour() as port:
        server = start("import time; time.sleep(600)", port=port)
        assert http_probes(port).health() and http_probes(port).one_token() is None
        verdict = wait_for_server(server, "canary", http_probes(port), limits=SHORT)
    assert isinstance(verdict, NotReady)
    assert verdict.kind is Outcome.INFRASTRUCTURE
    assert "is not ours" in verdict.reason


def test_server_that_finds_its_port_taken_is_infrastructure(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = start(f"PORT = {port}\n{SERVER}", port=port)
        verdict = wait_for_server(server, "canary", NEVER, limits=ReadyLimits(poll_s=0.05))
    assert isinstance(verdict, NotReady)
    assert (verdict.kind, verdict.exit) == (Outcome.INFRASTRUCTURE, Exit(code=1))


def test_child_that_dies_at_once_is_a_crash_with_its_code(start: Start) -> None:
    verdict = wait_for_server(start("raise SystemExit(7)"), "canary", NEVER, limits=ReadyLimits(poll_s=0.02))
    assert isinstance(verdict, NotReady)
    assert (verdict.kind, verdict.exit) == (Outcome.CRASH, Exit(code=7))


def test_out_of_memory_in_the_log_is_oom(start: Start) -> None:
    verdict = wait_for_server(start(f"raise SystemExit({TORCH!r})"), "canary", NEVER, limits=ReadyLimits(poll_s=0.02))
    assert isinstance(verdict, NotReady)
    assert (verdict.kind, verdict.exit) == (Outcome.OOM, Exit(code=1))


def test_silent_sleeper_is_a_hang(start: Start) -> None:
    verdict = wait_for_server(start("import time; time.sleep(600)"), "canary", NEVER, limits=replace(SHORT, total_s=60))
    assert isinstance(verdict, NotReady)
    assert verdict.kind is Outcome.HANG
    assert "no log line" in verdict.reason


def test_silent_worker_that_burns_cpu_is_not_silent(start: Start) -> None:
    verdict = wait_for_server(start("while True: pass"), "canary", NEVER, limits=SHORT)
    assert isinstance(verdict, NotReady)
    assert "still working" in verdict.reason


def test_server_that_prints_forever_is_stopped_by_the_log_limit(start: Start) -> None:
    server = start("while True: print('x' * 1000)")
    verdict = wait_for_server(server, "canary", NEVER, limits=ReadyLimits(poll_s=0.02), look=Watch(server, LogLimits(1 << 20)).look)
    assert isinstance(verdict, NotReady)
    assert verdict.kind is Outcome.INFRASTRUCTURE
    assert "flood" in verdict.reason
