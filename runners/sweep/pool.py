"""One engine process for many boots: a place in it is what a boot of a sweep gets in place of a server.

Trap: one checkpoint that crashes or hangs the process takes the results of all others with it, or a checkpoint is called broken because of
what an earlier one left behind. Rule: a boot that failed in company is made again in a process of its own (`runners/sweep/session.py`), a
process whose environment does not fit is ended first, and a process that did not give a checkpoint back is not used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from results.boot_folder import new_run_id
from results.redact import plain, redact_argv
from results.vocabulary import Outcome, Phase
from runners.boot import Boot
from runners.engines.base import HttpRequest, ServeCommand, ServeRequest
from runners.engines.launch import option
from runners.engines.vllm import SMALL_CACHE
from runners.errors import InfrastructureError
from runners.process.ports import free_port
from runners.process.ready import NotReady, Probes, Ready
from runners.process.server import launch
from runners.process.teardown import TeardownProof
from runners.serve_request import serve_request
from runners.server_client import ServerClient
from runners.serving import Hurry, OwnServer

WORKER = Path(__file__).parent / "worker" / "worker.py"
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
"""vLLM's engine core stays in the process that loads it."""
IMPORT_LIMIT_S, LOAD_LIMIT_S, UNLOAD_LIMIT_S = 900.0, 900.0, 60.0
_POLL_S, _DYING_S = 0.1, 10.0
_MOST_LOG_BYTES = 8 << 20


@dataclass(frozen=True)
class Limits:
    """Seconds until a process must have imported its engine, and loaded or given back a checkpoint; then it hangs."""

    import_s: float = IMPORT_LIMIT_S
    load_s: float = LOAD_LIMIT_S
    unload_s: float = UNLOAD_LIMIT_S


LIMITS = Limits()


class Worker:
    """One engine process. `key` is what must be the same for two boots to share it: the Python and the environment."""

    def __init__(self, server: OwnServer, key: tuple[str, Mapping[str, str]]) -> None:
        self.server, self.key = server, key
        self.client = ServerClient(server.base_url)
        self.served = 0
        self.fit = True
        """False once it did something that the next checkpoint must not inherit."""

    def state(self) -> dict[str, str]:
        """What it says it does; empty while it does not answer."""
        answer = self.client.ask(HttpRequest("/state"), 30.0)
        return answer.data if answer.ok and isinstance(answer.data, dict) else {}

    @property
    def log(self) -> Path:
        """Everything it has written."""
        return self.server.process.log_path


class WorkerPool:
    """At most one engine process at a time. `start` is a session's `start`; `close` ends the last process."""

    def __init__(self, folder: Path, *, hurry: Hurry = lambda: False, limits: Limits | None = None) -> None:
        self._folder = folder
        self._hurry = hurry
        self._limits = limits or LIMITS
        self._worker: Worker | None = None
        self.processes = 0
        """Engine processes started so far."""

    def start(self, boot: Boot, command: ServeCommand) -> Place:
        """A place for this boot: in the present process if it fits, else in a new one. A boot that repeats another gets its own."""
        assert boot.environment is not None, "only an installed engine can be loaded into a worker"
        environment = {**command.environment, **IN_PROCESS}
        key = (str(boot.environment.python), environment)
        alone = boot.recorder.run.control_of is not None
        if self._worker is not None and (alone or not self._worker.fit or self._worker.key != key or self._worker.server.ended()):
            proof = self.close()
            if proof is not None and not proof.clean:
                raise InfrastructureError(f"the shared process before this one is not gone: {proof.reason}")
        if self._worker is None:
            self._worker = self._launch(key)
        request = serve_request(boot.cell, model_path=str(boot.require_model().path), served_name="", port=0, has_cuda=boot.has_cuda)
        arguments = (*load_arguments(request), *(SMALL_CACHE if boot.has_cuda else ()))
        self._worker.served += 1
        argv = (*self._argv(key[0], 0), "--model", request.model_path, *arguments)
        boot.recorder.update(in_process=True, command=redact_argv(argv))
        return Place(self._worker, boot, arguments, alone=alone, end=self.close, limits=self._limits)

    def close(self) -> TeardownProof | None:
        """End the present process and prove that it is gone; None if there is none."""
        worker, self._worker = self._worker, None
        if worker is None:
            return None
        worker.client.close()
        return worker.server.stop()

    def _argv(self, python: str, port: int) -> tuple[str, ...]:
        return (python, str(WORKER), "serve", "--engine", "vllm", "--host", "127.0.0.1", "--port", str(port))

    def _launch(self, key: tuple[str, Mapping[str, str]]) -> Worker:
        name, port = new_run_id(), free_port()
        folder = self._folder / name
        folder.mkdir(parents=True)
        command = ServeCommand((*self._argv(key[0], port), "--die-with-parent"), key[1])
        self.processes += 1
        process = launch(command, folder, name, port)
        return Worker(OwnServer(process, lambda sample: None, lambda: Phase.COHERENCE, self._hurry), key)


def load_arguments(request: ServeRequest) -> tuple[str, ...]:
    """What a worker loads a checkpoint with: the serve command's arguments without those of its HTTP server."""
    length, sequences = option("--max-model-len", request.max_model_len), option("--max-num-seqs", request.max_num_seqs)
    return (*length, *sequences, "--seed", "0", *request.arguments)


class Place:
    """A checkpoint of one boot in a shared process; a `Serving` as the pipeline knows it."""

    def __init__(
        self,
        worker: Worker,
        boot: Boot,
        arguments: tuple[str, ...],
        *,
        alone: bool,
        end: Callable[[], TeardownProof | None],
        limits: Limits,
    ) -> None:
        self.base_url = worker.server.base_url
        self._worker, self._boot, self._arguments = worker, boot, arguments
        self._alone, self._end, self._limits = alone, end, limits
        self._log_from = worker.log.stat().st_size if worker.served > 1 else 0

    def wait_ready(self, served_name: str, probes: Probes) -> Ready | NotReady:
        """Wait for the import, load the checkpoint, ask for one token."""
        started = time.monotonic()
        found = self._wait(("idle", "serving", "failed"), self._limits.import_s, started, "the engine was not imported")
        if found is None:
            path = str(self._boot.require_model().path)
            body = {"model": path, "served_name": served_name, "arguments": list(self._arguments)}
            self._worker.client.ask(HttpRequest("/load", body), self._limits.load_s)
            found = self._wait(("serving", "failed"), self._limits.load_s, started, "the checkpoint was not loaded")
        if found is None and self._worker.state().get("state") == "failed":
            self._worker.fit = False
            reason = f"the checkpoint could not be loaded: {plain(self._worker.state().get('error', ''), 600)}"
            found = NotReady(Outcome.CRASH, reason, time.monotonic() - started)
        if found is None:
            refused = _one_token(probes)
            found = NotReady(Outcome.CRASH, f"loaded, but {refused}", time.monotonic() - started) if refused else None
        self._copy_log()
        return found or Ready(time.monotonic() - started)

    def _wait(self, states: tuple[str, ...], limit_s: float, started: float, what: str) -> NotReady | None:
        until = time.monotonic() + limit_s
        while self._worker.state().get("state") not in states:
            seconds = time.monotonic() - started
            if (ended := self._worker.server.ended()) is not None:
                return NotReady(Outcome.CRASH, f"{what}: {ended}", seconds)
            if (ours := self.our_fault()) is not None:
                return NotReady(Outcome.INFRASTRUCTURE, ours, seconds)
            if time.monotonic() > until:
                self._worker.fit = False
                return NotReady(Outcome.HANG, f"{what} within {limit_s:.0f} s", seconds)
            time.sleep(_POLL_S)
        return None

    def log_text(self) -> str:
        """What the process wrote since this checkpoint's turn began."""
        self._copy_log()
        return self._boot.recorder.folder.log.read_text(encoding="utf-8", errors="replace")

    def ended(self) -> str | None:
        """See Serving. A process that no longer answers gets a moment to be seen ending: its last words are in the log by then."""
        until = time.monotonic() + _DYING_S
        while (ended := self._worker.server.ended()) is None and not self._worker.state() and time.monotonic() < until:
            time.sleep(_POLL_S)
        self._copy_log()
        return ended

    def our_fault(self) -> str | None:
        """See Serving."""
        return self._worker.server.our_fault()

    def stop(self) -> TeardownProof | None:
        """Give the checkpoint back. The process goes on, unless it is this boot's own, has ended, or keeps what it should give back."""
        gone = self._worker.server.ended() is not None
        if self._boot.recorder.run.outcome is Outcome.INTERRUPTED:
            self._worker.fit = False  # it may be busy for minutes; whoever interrupts wants no more of it
        if not gone and self._worker.fit:
            answer = self._worker.client.ask(HttpRequest("/unload", {"now": True}), self._limits.unload_s)
            self._worker.fit = self._worker.fit and answer.ok
        self._copy_log()
        return self._end() if gone or self._alone or not self._worker.fit else None

    def _copy_log(self) -> None:
        with self._worker.log.open("rb") as source:
            source.seek(self._log_from)
            self._boot.recorder.folder.log.write_bytes(source.read(_MOST_LOG_BYTES))


def _one_token(probes: Probes) -> str | None:
    try:
        return probes.one_token()
    except TimeoutError as error:
        return str(error)
