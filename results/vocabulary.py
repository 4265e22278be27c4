"""The words every table, command and page shares: phases, outcomes, exit codes.

Trap: two spellings of one outcome split a history in two. Rule: these enums are the only place an outcome or phase is spelled.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """One step of a boot, in the order they run (`control` only after a failed gate)."""

    RESOLVE = "resolve"
    INSTALL = "install"
    LAUNCH = "launch"
    READY = "ready"
    IDENTIFY = "identify"
    COHERENCE = "coherence"
    CONTROL = "control"
    WARMUP = "warmup"
    THROUGHPUT = "throughput"
    CONTEXT = "context"
    RECHECK = "recheck"
    TEARDOWN = "teardown"


class Outcome(StrEnum):
    """How one boot of one cell ended.

    `incoherent`: structurally broken output. `wrong`: coherent, but differs from the known good set. `fallback`: passes, but not on the
    kernel asked for. `infrastructure`: our side or the node's. `unsupported`: this version cannot express the backend or run here.
    """

    PASS = "pass"
    INCOHERENT = "incoherent"
    WRONG = "wrong"
    FALLBACK = "fallback"
    UNSUPPORTED = "unsupported"
    INSTALL_FAILED = "install_failed"
    CRASH = "crash"
    HANG = "hang"
    OOM = "oom"
    INFRASTRUCTURE = "infrastructure"
    INTERRUPTED = "interrupted"


class Purpose(StrEnum):
    """Why a boot was made. Only `measure`, `confirm`, `anchor` and `bisect` boots are evidence about an engine's release.

    `control`: one thing changed, to find out why another boot failed. `sweep`: judged in a shared process, never timed.
    `self_check`: the same release twice, for our own false-alarm rate. `admission`: a canary that a shape needs to be timed.
    """

    MEASURE = "measure"
    CONFIRM = "confirm"
    CONTROL = "control"
    ANCHOR = "anchor"
    SWEEP = "sweep"
    BISECT = "bisect"
    REFERENCE = "reference"
    SELF_CHECK = "self_check"
    ADMISSION = "admission"


SHAPE_PREFIX = "shape-"
"""How the name of every recipe with dummy weights begins, and of no other: a name alone tells them apart."""


class ExitCode:
    """Process exit codes of every command."""

    OK = 0
    BROKEN_OR_SLOWER = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    INTERRUPTED = 130


_BROKEN = {
    Outcome.INCOHERENT,
    Outcome.WRONG,
    Outcome.FALLBACK,
    Outcome.CRASH,
    Outcome.HANG,
    Outcome.OOM,
    Outcome.UNSUPPORTED,
}


def exit_code_of(outcomes: list[Outcome]) -> int:
    """Exit code of a command that asked for cells with these outcomes.

    Interruption wins, then a broken engine (1), then our own or the node's fault (3): a broken cell is the news a user must not miss.
    No outcome at all is our fault (3): a run that measured nothing must never look like a pass.
    """
    if Outcome.INTERRUPTED in outcomes:
        return ExitCode.INTERRUPTED
    if any(o in _BROKEN for o in outcomes):
        return ExitCode.BROKEN_OR_SLOWER
    if not outcomes or any(o in (Outcome.INFRASTRUCTURE, Outcome.INSTALL_FAILED) for o in outcomes):
        return ExitCode.INFRASTRUCTURE
    return ExitCode.OK
