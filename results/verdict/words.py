"""The words of a verdict.

Trap: `unchanged` said of a cell nobody ran. Rule: a release without evidence has a state (`not_run`) and no verdict at all.
"""

from __future__ import annotations

from enum import StrEnum

from results.vocabulary import Outcome


class Verdict(StrEnum):
    """What one release did to one cell, against the release it is compared with."""

    FIXED = "fixed"
    BROKE = "broke"
    STILL_BROKEN = "still_broken"
    FASTER = "faster"
    SLOWER = "slower"
    UNCHANGED = "unchanged"
    INCONCLUSIVE = "inconclusive"
    CONFOUNDED = "confounded"
    NEW = "new"
    GONE = "gone"


class CellState(StrEnum):
    """States of a cell over the boots of one release that no single boot can have."""

    FLAKY = "flaky"
    NOT_RUN = "not_run"


State = Outcome | CellState
"""`pass`, one failure, `flaky` or `not_run`."""

NO_EVIDENCE = frozenset({Outcome.INFRASTRUCTURE, Outcome.INTERRUPTED, Outcome.INSTALL_FAILED})
"""Outcomes that say nothing about the cell: the engine never came to judge it. They are counted and shown, and never a transition."""
