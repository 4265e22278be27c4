"""The anchor measured twice under two names: our own false-alarm rate on this node.

Trap: a rule that was quiet on somebody else's data is trusted here. Rule: once a month the pinned release is booted six times in a row and
its boots are judged by turns as if they were two releases; whatever the verdict engine then calls news is a false alarm, and is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from results.history import cell_history
from results.series import history_id_of, series_key
from results.store import Store
from results.verdict.facts import CellHistory
from results.verdict.numbers import MIN_BOOTS
from results.verdict.selfcheck import FalseAlarmReport, false_alarms
from results.vocabulary import Purpose
from runners.nightly.state import NightState
from runners.plan import Cell, PlannedBoot

SELF_CHECK_BOOTS = 2 * MIN_BOOTS


@dataclass(frozen=True)
class SelfCheck:
    """What the check found. `boots` took part."""

    boots: int
    report: FalseAlarmReport

    @property
    def sentence(self) -> str:
        """For a person."""
        told = "; ".join(f"{alarm.series} {alarm.verdict}" for alarm in self.report.alarms) or "none"
        return (
            f"self-check of {self.boots} boots of one release under two names: {self.report.comparisons} comparisons, false alarms: {told}"
        )


def next_self_check(anchor: Cell, done: int) -> PlannedBoot | None:
    """The next boot of the check after `done` ones, None when it has all of them."""
    return PlannedBoot(anchor, done + 1, SELF_CHECK_BOOTS, Purpose.SELF_CHECK) if done < SELF_CHECK_BOOTS else None


def boots_in_sight(anchor: Cell | None, state: NightState, now: datetime, every: timedelta) -> int:
    """How many boots of the check a night that begins now would add, if its budget has room for all of them; 0 if it is not due."""
    return SELF_CHECK_BOOTS if anchor is not None and state.self_check_due(now, every) else 0


def judge_self_check(store: Store, anchor: Cell, node_id: str, run_ids: Sequence[str]) -> SelfCheck:
    """Judge these boots as two releases. Raises StoreError and what the verdict engine raises."""
    key = series_key(anchor.spec.name, anchor.spec.distribution, anchor.recipe.name, anchor.backend.name, node_id)
    with store.reading() as connection:
        found = cell_history(connection, history_id_of(key), purposes=(Purpose.SELF_CHECK,))
    boots = [] if found is None else [boot for boot in found.history.boots if boot.run_id in set(run_ids)]
    return SelfCheck(len(boots), false_alarms(CellHistory(key, boots)))
