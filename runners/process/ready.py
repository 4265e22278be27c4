"""Wait until a server is ready, or say precisely why it never will be.

Traps: a neighbour's server answered the health check; an engine reports healthy and then never produces a token; a silent kernel
compilation was killed as a hang; an OOM kill was filed as a crash of the engine. Rules: ready means that `/health` answers 200, every
listener on the port is ours, `/v1/models` names our model, AND one token came back. It hangs only if nothing was written, computed, read
or compiled for the silence limit, or the total limit is over. What ended it is asked of the log and the kernel.

`Readiness` is a pure state machine over looks, probes and an injected clock.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from results.redact import plain, redact
from results.vocabulary import Outcome
from runners.process.log import read_end
from runners.process.oom import matching_line
from runners.process.ports import Listeners, port_owner
from runners.process.server import Exit, ServerProcess
from runners.process.vitals import Vitals, Watch

PORT_TAKEN = re.compile(r"(?i)address already in use|EADDRINUSE|errno 98\b")
ENDED_ITSELF = re.compile(r"Received sigquit from a child process|kill_process_tree called: .{0,40}include_parent=True")
"""SGLang's last words before it sends SIGKILL to its own processes, itself included, because one of them has failed."""
MEMORY_PATTERNS = (
    re.compile(r"(?:torch|cuda)\.OutOfMemoryError"),
    re.compile(r"CUDA out of memory"),
    re.compile(r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|NV_ERR_NO_MEMORY"),
    re.compile(r"Cannot allocate memory|std::bad_alloc|^MemoryError\b"),
    re.compile(r"Out of memory: Killed process|\boom-kill"),
    re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory"),
)
"""Log lines of a server that ended for want of memory, whichever engine (engines add their own, such as a KV cache that does not fit)."""


@dataclass(frozen=True)
class Probes:
    """How to ask the server; each call bounded by its own timeout and never raising for a server that does not answer.

    `health`: whether GET /health gave 200. `models`: the ids of GET /v1/models, None if it gave no list. `one_token`: None once a
    one-token request succeeded, else a sentence saying what came instead; raises TimeoutError if nothing came in time.
    """

    health: Callable[[], bool]
    models: Callable[[], Sequence[str] | None]
    one_token: Callable[[], str | None]


@dataclass(frozen=True)
class ReadyLimits:
    """All in seconds. `silence_s`: nothing happened at all. `refusal_s`: healthy, but every token request was answered with a refusal.

    `token_s`: healthy, but no token. `total_s`: everything together.
    """

    silence_s: float = 180.0
    total_s: float = 1800.0
    refusal_s: float = 60.0
    token_s: float = 600.0
    poll_s: float = 1.0


READY_LIMITS = ReadyLimits()


@dataclass(frozen=True)
class Ready:
    """The server answers with tokens, `seconds` after waiting began."""

    seconds: float


@dataclass(frozen=True)
class NotReady:
    """Why the server will not become ready. `kind` is crash, oom, hang or infrastructure; `exit` is set if the server ended."""

    kind: Outcome
    reason: str
    seconds: float
    exit: Exit | None = None


class Readiness:
    """The state machine: give it one look after the other, until it decides."""

    def __init__(
        self,
        probes: Probes,
        listeners: Callable[[], Listeners],
        served_name: str,
        *,
        limits: ReadyLimits = READY_LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probes = probes
        self._listeners = listeners
        self._served_name = served_name
        self._limits = limits
        self._clock = clock
        self._started = self._looked = self._last_active = clock()
        self._healthy_since: float | None = None
        self._refused_since: float | None = None
        self._strangers_seen = False
        self._last_answer = "it never answered /health with 200"

    def step(self, vitals: Vitals) -> Ready | NotReady | None:
        """Decide after one look; None: go on waiting."""
        now = self._clock()
        if vitals.trouble is not None:  # first: it is why `LogGuard` may have killed the server a moment ago
            return self._not_ready(Outcome.INFRASTRUCTURE, vitals.trouble)
        if vitals.exit is not None:
            reason = f"the server {vitals.exit} before it was ready, after {now - self._started:.0f} s"
            return replace(self._not_ready(Outcome.CRASH, reason), exit=vitals.exit)
        if vitals.active(now - self._looked):
            self._last_active = now
        self._looked = now
        return self._answers(vitals.pids) or self._over_limit()

    def _not_ready(self, kind: Outcome, reason: str) -> NotReady:
        return NotReady(kind, reason, self._clock() - self._started)

    def _answers(self, ours: frozenset[int]) -> Ready | NotReady | None:
        if not self._probes.health():
            return None
        owners = self._listeners()
        strangers = owners.pids - ours
        if strangers or owners.hidden:
            return self._stranger(strangers)
        self._strangers_seen = False
        if not owners.pids:
            self._last_answer = "something answers /health, but no listener on the port is visible"
            return None
        if self._healthy_since is None:
            self._healthy_since = self._clock()
        served = self._probes.models()
        if served is None:
            self._last_answer = "it answers /health, but /v1/models gives no list of models"
            return None
        if self._served_name not in served:
            shown = plain(", ".join(served), 200) or "nothing"
            return self._not_ready(Outcome.INFRASTRUCTURE, f"/v1/models names {shown}, not {self._served_name}: the wrong model is served")
        return self._token()

    def _stranger(self, strangers: frozenset[int]) -> NotReady | None:
        """Only the second look in a row counts: a worker of ours may have been born after the process table was read."""
        who = ", ".join(f"pid {pid}" for pid in sorted(strangers)) or "a process of another user"
        self._last_answer = f"the port answers, but {who} listens on it, which is not ours: end it or choose another port"
        if self._strangers_seen:
            return self._not_ready(Outcome.INFRASTRUCTURE, self._last_answer)
        self._strangers_seen = True
        return None

    def _token(self) -> Ready | None:
        try:
            refused = self._probes.one_token()
        except TimeoutError:
            self._refused_since = None
            self._last_answer = "it answers /health, but a one-token request got no answer in time"
            return None
        now = self._clock()
        if refused is None:
            return Ready(now - self._started)
        if self._refused_since is None:
            self._refused_since = now
        self._last_answer = f"it answers /health, but not a one-token request: {plain(redact(refused), 300)}"
        return None

    def _over_limit(self) -> NotReady | None:
        now, limits = self._clock(), self._limits
        if self._refused_since is not None and now - self._refused_since >= limits.refusal_s:
            return self._not_ready(Outcome.CRASH, f"for {limits.refusal_s:.0f} s, {self._last_answer}")
        if self._healthy_since is not None and now - self._healthy_since >= limits.token_s:
            return self._not_ready(Outcome.HANG, f"no token within {limits.token_s:.0f} s of being healthy: {self._last_answer}")
        if now - self._last_active >= limits.silence_s:
            nothing = "no log line, CPU time or disk traffic by any of its processes"
            return self._not_ready(Outcome.HANG, f"{nothing} for {limits.silence_s:.0f} s: {self._last_answer}")
        if now - self._started >= limits.total_s:
            return self._not_ready(Outcome.HANG, f"not ready after {limits.total_s:.0f} s although still working: {self._last_answer}")
        return None


@dataclass(frozen=True)
class Evidence:
    """What is known about an end besides the exit status: the log's end, and the kernel's sentence (`KernelReport.memory_reason`)."""

    log_end: str
    memory_reason: str | None


def explain(failed: NotReady, evidence: Evidence, memory_patterns: Sequence[re.Pattern[str]] = MEMORY_PATTERNS) -> NotReady:
    """Tell out-of-memory and a taken port from a real crash or hang.

    `memory_patterns` match log lines that mean out of memory. A SIGKILL that nobody explains stays a crash, and the sentence says so.
    """
    if failed.kind is Outcome.INFRASTRUCTURE:
        return failed
    line = matching_line(evidence.log_end, memory_patterns)
    told = f"its log says: {line}" if line is not None else evidence.memory_reason
    if told is not None:
        return replace(failed, kind=Outcome.OOM, reason=f"{failed.reason}; {plain(redact(told), 400)}")
    taken = matching_line(evidence.log_end, (PORT_TAKEN,), last_lines=100)
    if taken is not None and failed.exit is not None:
        said = plain(redact(taken), 300)
        return replace(failed, kind=Outcome.INFRASTRUCTURE, reason=f"{failed.reason}; somebody else took a port it needs: {said}")
    if failed.exit is not None and failed.exit.signal == signal.SIGKILL:
        if matching_line(evidence.log_end, (ENDED_ITSELF,), last_lines=20) is not None:
            return replace(failed, reason=f"{failed.reason}; by itself, after one of its processes had failed")
        unexplained = "the kernel tells of no memory shortage: somebody sent it (a person, or a daemon such as systemd-oomd)"
        return replace(failed, reason=f"{failed.reason}; {unexplained}")
    return failed


def wait_for_server(
    server: ServerProcess,
    served_name: str,
    probes: Probes,
    *,
    memory_patterns: Sequence[re.Pattern[str]] = MEMORY_PATTERNS,
    limits: ReadyLimits = READY_LIMITS,
    look: Callable[[], Vitals] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Ready | NotReady:
    """Look at a launched server until it is ready or hopeless, and explain its end with its log and the kernel's counters."""
    look = look or Watch(server).look
    readiness = Readiness(probes, lambda: port_owner(server.record.port), served_name, limits=limits, clock=clock)
    while (verdict := readiness.step(look())) is None:
        sleep(limits.poll_s)
    if isinstance(verdict, Ready):
        return verdict
    return explain(verdict, Evidence(read_end(server.log_path), server.witness.report().memory_reason()), memory_patterns)
