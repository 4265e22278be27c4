"""Our own false-alarm rate, from boots of one release that were made to be judged against themselves.

Trap: a rule that was quiet on somebody else's data is trusted on this node. Rule: boots made as `self_check` are judged by turns as if they
were two releases, and what the rule then calls news is counted and published.
"""

from __future__ import annotations

from dataclasses import dataclass

from results.history import cell_histories
from results.store import Store
from results.verdict.facts import VerdictInputError
from results.verdict.selfcheck import false_alarms
from results.vocabulary import Purpose


@dataclass(frozen=True)
class SelfChecks:
    """`boots` were compared with boots of the same release in `comparisons` outcomes and numbers; `alarms`: what was told of nothing."""

    boots: int
    comparisons: int
    screened: int
    alarms: tuple[str, ...]


def self_checks(store: Store, node_id: str | None = None) -> SelfChecks:
    """All self-checks of the store, or of one node. Raises StoreError."""
    with store.reading() as connection:
        found = connection.execute(
            "SELECT DISTINCT history_id FROM runs WHERE purpose = ? AND history_id IS NOT NULL AND (? IS NULL OR node_id = ?)",
            [str(Purpose.SELF_CHECK), node_id, node_id],
        ).fetchall()
        histories = cell_histories(connection, [row[0] for row in found], purposes=(Purpose.SELF_CHECK,))
    boots = comparisons = screened = 0
    alarms: list[str] = []
    for history in histories.values():
        try:
            report = false_alarms(history.history)
        except VerdictInputError as error:
            alarms.append(str(error))
            continue
        boots += len(history.history.boots)
        comparisons += report.comparisons
        screened += report.screened
        alarms += [f"{alarm.release} {alarm.series}: {alarm.verdict}" for alarm in report.alarms]
    return SelfChecks(boots, comparisons, screened, tuple(alarms))
