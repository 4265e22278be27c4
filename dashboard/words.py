"""What the outcomes and verdicts look like and say on every page.

Trap: red and green alone say nothing to one man in twelve, nor on paper. Rule: each has a colour of the Okabe-Ito palette, a sign and a
word, and each absence says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from results.verdict.words import CellState, Verdict
from results.vocabulary import Outcome


@dataclass(frozen=True)
class Look:
    """`kind` is the colour in the grid, `colour` the same in a chart."""

    sign: str
    kind: str
    colour: str
    meaning: str


PASS, FAIL, FLAKY, FALLBACK, GREY, DARK, BLUE, SKY = "#009e73", "#d55e00", "#e69f00", "#cc79a7", "#999999", "#555555", "#0072b2", "#56b4e9"

STATES: Mapping[str, Look] = MappingProxyType(
    {
        Outcome.PASS: Look("✓", "pass", PASS, "every boot passed the coherence gate"),
        Outcome.INCOHERENT: Look("✗", "fail", FAIL, "the output is structurally broken"),
        Outcome.WRONG: Look("✗", "fail", FAIL, "coherent, but not what this model says"),
        Outcome.CRASH: Look("✗", "fail", FAIL, "the engine crashed"),
        Outcome.HANG: Look("✗", "fail", FAIL, "the engine stopped answering"),
        Outcome.OOM: Look("✗", "fail", FAIL, "out of memory"),
        Outcome.FALLBACK: Look("↷", "fallback", FALLBACK, "passes, but not on the kernel asked for"),
        CellState.FLAKY: Look("≈", "flaky", FLAKY, "some boots passed, some failed"),
        Outcome.UNSUPPORTED: Look("∅", "unsupported", GREY, "this release cannot do it"),
        Outcome.INSTALL_FAILED: Look("?", "notrun", GREY, "the release could not be installed; nothing is known of the cell"),
        Outcome.INFRASTRUCTURE: Look("?", "notrun", GREY, "our side or the node's; nothing is known of the cell"),
        Outcome.INTERRUPTED: Look("?", "notrun", GREY, "stopped before it ended; nothing is known of the cell"),
        CellState.NOT_RUN: Look("·", "notrun", GREY, "not run"),
        "gone": Look("∅", "gone", DARK, "the backend no longer exists in this release"),
        "running": Look("▸", "running", SKY, "running now"),
    }
)
"""By state of a cell, outcome of a boot, or "running"."""

VERDICTS: Mapping[str, Look] = MappingProxyType(
    {
        Verdict.BROKE: Look("✗", "fail", FAIL, "worked before, fails now"),
        Verdict.STILL_BROKEN: Look("✗", "fail", FAIL, "failed before, fails now"),
        Verdict.SLOWER: Look("▼", "fail", FAIL, "confirmed worse"),
        Verdict.CONFOUNDED: Look("?", "flaky", FLAKY, "something other than the engine changed too"),
        Verdict.INCONCLUSIVE: Look("…", "flaky", FLAKY, "too few boots to tell"),
        Verdict.GONE: Look("∅", "gone", DARK, "the backend no longer exists"),
        Verdict.NEW: Look("+", "better", BLUE, "first evidence"),
        Verdict.FIXED: Look("✓", "better", BLUE, "failed before, works now"),
        Verdict.FASTER: Look("▲", "better", BLUE, "confirmed better"),
        Verdict.UNCHANGED: Look("=", "", GREY, "no change that counts"),
    }
)
"""By verdict, worst first: the order of every table of verdicts."""

SEVERITY: Mapping[str, int] = MappingProxyType({str(word): rank for rank, word in enumerate(VERDICTS)})

_UNKNOWN = Look("?", "notrun", GREY, "a word this dashboard does not know")


def look_of_state(word: str | None) -> Look:
    """Look of an outcome or state; None is a boot that runs."""
    return STATES.get(word or "running", _UNKNOWN)


def look_of_verdict(word: str | None) -> Look:
    """Look of a verdict; None is a release without evidence."""
    return VERDICTS.get(word or "", _UNKNOWN) if word else STATES[CellState.NOT_RUN]
