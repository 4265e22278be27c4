"""A server as the pipeline sees it, whether we started it or only attach to it.

Trap: two code paths, one for our servers and one for endpoints, drift apart. Rule: the pipeline talks to this protocol only; what a kind of
server cannot tell (an endpoint has no log and no processes of ours) is None or empty, not invented.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Protocol

from results.records import ResourceRecord
from results.vocabulary import Outcome, Phase
from runners.node.gpu import Nvml
from runners.process import teardown
from runners.process.guard import LogGuard
from runners.process.log import read_end
from runners.process.ready import NotReady, Probes, Ready, wait_for_server
from runners.process.server import ServerProcess
from runners.process.teardown import MACHINE, Machine, TeardownProof
from runners.process.telemetry import SOURCES, Sources, Telemetry
from runners.server_client import ServerClient

LOG_READ_BYTES = 4 << 20
SHARED_VARIABLE = "SPARKPROOF_SHARED_NODE"
"""Set it to 1 where several runners, each with its own home, judge side by side: what the node's memory does is then nobody's proof."""
Hurry = Callable[[], bool]
"""Whether the user has asked twice to stop (`Interrupts.hurry`)."""


class Serving(Protocol):
    """Something that serves a model at `base_url`."""

    base_url: str

    def wait_ready(self, served_name: str, probes: Probes) -> Ready | NotReady:
        """Wait until it answers with tokens, or say why it never will."""
        ...

    def log_text(self) -> str:
        """The end of its log, bounded; empty if we cannot see one."""
        ...

    def ended(self) -> str | None:
        """A sentence if it is gone, None while it lives (or we cannot tell)."""
        ...

    def our_fault(self) -> str | None:
        """Why we ended it ourselves (log or disk limit), None if we did not."""
        ...

    def stop(self) -> TeardownProof | None:
        """End it and prove that it is gone; None if it is not ours to end."""
        ...


class WatchedServer:
    """What every server that we started has in common: telemetry from its first second, a log, and an end that can be seen."""

    def __init__(
        self,
        process: ServerProcess,
        emit: Callable[[ResourceRecord], None],
        phase: Callable[[], Phase],
        hurry: Hurry,
        *,
        sources: Sources = SOURCES,
        machine: Machine = MACHINE,
        guard: LogGuard | None = None,
    ) -> None:
        self.process = process
        self.base_url = f"http://127.0.0.1:{process.record.port}"
        self._hurry = hurry
        self._nvml = Nvml.open()
        if self._nvml is not None:
            sources = dataclasses.replace(sources, gpu=self._nvml.sample)
            machine = dataclasses.replace(machine, gpu_pids=self._nvml.pids)
        self._machine = machine
        self._telemetry = Telemetry(process, emit, phase, guard=guard, sources=sources)
        self._telemetry.start()

    def log_text(self) -> str:
        """See Serving."""
        return read_end(self.process.log_path, LOG_READ_BYTES)

    def ended(self) -> str | None:
        """See Serving."""
        ended = self.process.exit()
        return None if ended is None else f"the server {ended}"

    def our_fault(self) -> str | None:
        """See Serving."""
        return self._telemetry.guard.trouble

    def unwatch(self) -> tuple[str, ...]:
        """Stop telemetry; what it could not sample."""
        self._telemetry.stop()
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None
        return tuple(self._telemetry.failures)


class OwnServer(WatchedServer):
    """A server process that we started."""

    def wait_ready(self, served_name: str, probes: Probes) -> Ready | NotReady:
        """See Serving."""
        return wait_for_server(self.process, served_name, probes)

    @property
    def end_by_hand(self) -> str:
        """The command that ends it when it is kept."""
        return f"kill -- -{self.process.record.pid}"

    def stop(self) -> TeardownProof:
        """See Serving."""
        alone = os.environ.get(SHARED_VARIABLE) != "1"
        proof = teardown.stop(self.process, hurry=self._hurry, machine=self._machine, judge_memory=alone)
        self.unwatch()
        return proof


class RemoteServer:
    """A server that already runs and that we leave running. `headers` carry its API key, if it has one."""

    def __init__(self, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._headers = dict(headers or {})

    def wait_ready(self, served_name: str, probes: Probes) -> Ready | NotReady:
        """It is ready now or not at all: nobody starts it for us."""
        if not probes.health():
            return NotReady(Outcome.INFRASTRUCTURE, f"nothing healthy answers at {self.base_url}/health: is the server running?", 0.0)
        models = probes.models()
        if models is None or served_name not in models:
            found = ", ".join(models or ()) or "no list of models"
            return NotReady(Outcome.INFRASTRUCTURE, f"{self.base_url}/v1/models gives {found}, not {served_name}", 0.0)
        try:
            refused = probes.one_token()
        except TimeoutError as error:
            return NotReady(Outcome.HANG, f"the endpoint is healthy, but: {error}", 0.0)
        return Ready(0.0) if refused is None else NotReady(Outcome.CRASH, f"the endpoint refuses a one-token request: {refused}", 0.0)

    def log_text(self) -> str:
        """See Serving: an endpoint's log is not ours to see."""
        return ""

    def ended(self) -> str | None:
        """See Serving."""
        client = ServerClient(self.base_url, self._headers)
        try:
            return None if client.health() else "the endpoint no longer answers /health"
        finally:
            client.close()

    def our_fault(self) -> None:
        """See Serving."""
        return None

    def stop(self) -> None:
        """See Serving: not ours to end."""
        return None
