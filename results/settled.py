"""Stored verdicts on numbers that a new boot cannot have changed.

Trap: one boot of the newest release has forty older ones judged again, and a commit of milliseconds becomes one of tenths of a second; or a
verdict is kept although what it was made of has changed. Rule: each release's verdict is stored with a digest of its evidence and of the
rule itself (the text of `results.verdict`). From the oldest release on, as long as both are what they were, the stored verdicts on numbers
stand; from the first difference on everything is judged anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import duckdb

from results import verdict as rule_package
from results.verdict.numbers import NumberVerdict
from results.verdict.words import Verdict

_COLUMNS = (
    "history_id, release, series, verdict, reason, baseline, n_baseline, n_candidate, n_level, n_rerun, effect, interval_low,"
    " interval_high, interval_level, p, moved, boots_to_decide, differs, warnings"
)
Numbers = dict[str, NumberVerdict]


@lru_cache(maxsize=1)
def rule() -> str:
    """Eight hex digits of the rule: another text of `results.verdict` may say something else of the same boots."""
    digest = hashlib.sha256()
    for path in sorted(Path(str(rule_package.__file__)).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


@dataclass
class Former:
    """What is stored of some histories, and, once `settle` was asked, which of their releases stand."""

    evidence: dict[str, dict[str, str | None]]
    """By history, release to the evidence its stored verdict was made of."""
    numbers: dict[tuple[str, str], Numbers]
    """By history and release."""
    standing: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, connection: duckdb.DuckDBPyConnection, history_ids: Sequence[str]) -> Former:
        """Read what is stored of these histories."""
        wanted = [list(history_ids)]
        evidence: dict[str, dict[str, str | None]] = {}
        for history, release, digest in connection.execute(
            "SELECT history_id, release, evidence FROM verdicts WHERE history_id IN (SELECT unnest(?))", wanted
        ).fetchall():
            evidence.setdefault(history, {})[release] = digest
        cursor = connection.execute(f"SELECT {_COLUMNS} FROM number_verdicts WHERE history_id IN (SELECT unnest(?))", wanted)
        names = [column[0] for column in cursor.description or ()]
        numbers: dict[tuple[str, str], Numbers] = {}
        for values in cursor.fetchall():
            row = dict(zip(names, values, strict=True))
            numbers.setdefault((row["history_id"], row["release"]), {})[row["series"]] = _number_verdict(row)
        return cls(evidence, numbers)

    def settle(self, history: str, releases: Sequence[str], evidence: Mapping[str, str]) -> dict[str, Numbers]:
        """The stored verdicts on numbers of the oldest `releases` whose evidence is what it was, by release and series."""
        stored = self.evidence.get(history, {})
        standing = list(takewhile(lambda release: stored.get(release) == evidence[release], releases))
        self.standing[history] = set(standing)
        return {release: self.numbers.get((history, release), {}) for release in standing}

    def forget_unsettled(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Delete the stored verdicts on numbers that do not stand."""
        gone = [(history, release) for history, release in self.numbers if release not in self.standing.get(history, ())]
        if gone:
            histories, releases = (list(column) for column in zip(*gone, strict=True))
            connection.execute(
                "DELETE FROM number_verdicts WHERE (history_id, release) IN (SELECT unnest(?), unnest(?))", [histories, releases]
            )


def _number_verdict(row: Mapping[str, Any]) -> NumberVerdict:
    return NumberVerdict(
        verdict=Verdict(row["verdict"]),
        reason=row["reason"],
        baseline=row["baseline"],
        candidate=row["release"],
        n_baseline=row["n_baseline"],
        n_candidate=row["n_candidate"],
        n_level=row["n_level"],
        n_rerun=row["n_rerun"],
        effect=row["effect"],
        interval=None if row["interval_low"] is None else (row["interval_low"], row["interval_high"]),
        interval_level=row["interval_level"],
        p=row["p"],
        moved=row["moved"],
        boots_to_decide=row["boots_to_decide"],
        differs=tuple(row["differs"] or ()),
        warnings=tuple(row["warnings"] or ()),
    )
