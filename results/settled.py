"""What of a history's verdicts a new boot cannot have changed, and the boots that those were made of.

Trap: one boot of the newest release has forty older ones read and judged again, and a commit of milliseconds becomes one of tenths of a
second; or a verdict is kept although what it was made of has changed. Rule: each release's verdict is stored with the boots it was made of
as the rule saw them, and with a digest of the rule itself (the text of `results.verdict`). From the oldest release up to the first one that
a changed boot belongs to, verdicts stand and their boots are taken from there; from then on all is read and judged anew. If a changed boot
reaches back all the same (a clock, a workload under one name), nothing stands.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import duckdb

from results import verdict as rule_package
from results.engine_versions import releases_of
from results.history import Standing, StoredHistory, node_state
from results.verdict.cell import ReleaseVerdict
from results.verdict.facts import AdmittedHistory, BootFact, Exclusion
from results.verdict.numbers import NumberVerdict
from results.verdict.outcomes import ReleaseOutcome
from results.verdict.words import CellState, Verdict
from results.vocabulary import Outcome

_VERDICTS = """
SELECT v.history_id, h.engine, h.node_id, v.release, v.state, v.verdict, v.confirmed, v.counts::VARCHAR AS counts, v.boots_needed, v.after,
    v.since, v.skipped, v.reason, v.differs, v.suppressed, v.decode_tok_s, v.evidence
FROM verdicts v JOIN histories h ON h.history_id = v.history_id WHERE v.history_id IN (SELECT unnest(?))
"""
_NUMBERS = """
SELECT history_id, release, series, verdict, median, moved, CASE WHEN moved THEN baseline END, CASE WHEN moved THEN effect END,
    CASE WHEN moved THEN reason END
FROM number_verdicts WHERE history_id IN (SELECT unnest(?))
"""
_OUTCOMES: Mapping[str, Outcome] = {str(outcome): outcome for outcome in Outcome}
_STATES: Mapping[str, Outcome | CellState] = {str(state): state for state in (*Outcome, *CellState)}

Touched = Mapping[str, Collection[str | None]]
"""History to the versions whose boots changed; None among them: every version."""


@lru_cache(maxsize=1)
def rule() -> str:
    """Eight hex digits of the rule: another text of `results.verdict` may say something else of the same boots."""
    digest = hashlib.sha256()
    for path in sorted(Path(str(rule_package.__file__)).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


@dataclass
class Former:
    """What is stored of some histories: by history, release to the row of its verdict and the numbers of it."""

    verdicts: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    numbers: dict[tuple[str, str], dict[str, NumberVerdict]] = field(default_factory=dict)
    medians: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)
    """By history, (release, series) to the median of its boots."""
    last_runs: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Finding to (last run, when it started)."""

    @classmethod
    def read(cls, connection: duckdb.DuckDBPyConnection, history_ids: Sequence[str]) -> Former:
        """Read what is stored of these histories."""
        wanted, former = [list(history_ids)], cls()
        cursor = connection.execute(_VERDICTS, wanted)
        names = [column[0] for column in cursor.description or ()]
        for values in cursor.fetchall():
            row = dict(zip(names, values, strict=True))
            former.verdicts.setdefault(row["history_id"], {})[row["release"]] = row
        for history, release, series, verdict, median, *moved in connection.execute(_NUMBERS, wanted).fetchall():
            former.numbers.setdefault((history, release), {})[series] = _number(verdict, release, *moved)
            former.medians.setdefault(history, {})[release, series] = median
        former.last_runs = {
            finding: (run, started)
            for finding, run, started in connection.execute(
                "SELECT finding_id, last_run_id, last_started_at FROM findings WHERE history_id IN (SELECT unnest(?))", wanted
            ).fetchall()
        }
        return former

    def standing(self, connection: duckdb.DuckDBPyConnection, touched: Touched) -> dict[str, Standing]:
        """Of each history whose verdicts stand in part, that part."""
        found: dict[str, Standing] = {}
        orders: dict[str, tuple[list[str], dict[str, str]]] = {}
        for history, rows in self.verdicts.items():
            versions = touched[history]
            if None in versions:
                continue
            engine = next(iter(rows.values()))["engine"]
            if engine not in orders:
                orders[engine] = releases_of(connection, engine)
            releases, release_of = orders[engine]
            changed = {release_of.get(version or "") for version in versions}
            first = next((at for at, release in enumerate(releases) if release in rows or release in changed), 0)
            stands = list(
                takewhile(lambda one, changed=changed, rows=rows: one not in changed and _usable(rows.get(one)), releases[first:])  # type: ignore[misc]
            )
            if stands:
                found[history] = self._part(history, stands, position=first + len(stands) + 1)
        return found

    def _part(self, history: str, stands: Sequence[str], position: int) -> Standing:
        rows = self.verdicts[history]
        kept = [_Kept.of(rows[release]) for release in stands]
        good = next((rows[release] for release in reversed(stands) if rows[release]["state"] == Outcome.PASS), None)
        return Standing(
            since=position,
            verdicts=tuple(_release_verdict(rows[release], self.numbers.get((history, release), {})) for release in stands),
            boots={release: one.boots for release, one in zip(stands, kept, strict=True)},
            clock_went_back=frozenset(run for one in kept for run in one.clock),
            shapes=[(workload, shape) for one in kept for workload, shape in one.shapes],
            unlike={one.unlike for one in kept},
            left_out=sum((one.left_out for one in kept), Counter()),
            last_good=None if good is None else (good["release"], good["decode_tok_s"]),
        )

    def forget(self, connection: duckdb.DuckDBPyConnection, standing: Mapping[str, Standing]) -> None:
        """Delete the stored verdicts that do not stand."""
        gone = [
            (history, release) for history, rows in self.verdicts.items() for release in rows if not _stands(standing, history, release)
        ]
        if gone:
            histories, releases = (list(column) for column in zip(*gone, strict=True))
            for table in ("verdicts", "number_verdicts"):
                connection.execute(
                    f"DELETE FROM {table} WHERE history_id IN (SELECT unnest($1))"
                    " AND (history_id, release) IN (SELECT unnest($2), unnest($3))",
                    [sorted(set(histories)), histories, releases],
                )


def _stands(standing: Mapping[str, Standing], history: str, release: str) -> bool:
    return history in standing and release in standing[history].boots


def _usable(row: Mapping[str, Any] | None) -> bool:
    return row is not None and row["evidence"] is not None and row["evidence"].startswith(rule())


def _number(verdict: str, release: str, moved: bool, baseline: str | None, effect: float | None, reason: str | None) -> NumberVerdict:
    """As much of a stored verdict as later releases and findings ask of it."""
    if not moved:
        return _not_moved(verdict)
    return NumberVerdict(Verdict(verdict), reason or "", baseline, release, effect=effect, moved=True)


@lru_cache(maxsize=32)
def _not_moved(verdict: str) -> NumberVerdict:
    return NumberVerdict(Verdict(verdict), "", None, "")


def _release_verdict(row: Mapping[str, Any], numbers: Mapping[str, NumberVerdict]) -> ReleaseVerdict:
    state = _STATES[row["state"]]
    verdict = None if row["verdict"] is None else Verdict(row["verdict"])
    outcome = ReleaseOutcome(
        release=row["release"],
        state=state,
        counts=_counts(row["counts"]),
        verdict=(Verdict.FIXED if state is Outcome.PASS else Verdict.BROKE) if row["differs"] else verdict,
        after=row["after"],
        skipped=tuple(row["skipped"] or ()),
        since=row["since"],
        confirmed=row["confirmed"],
        boots_needed=row["boots_needed"],
        reason=row["reason"],
    )
    return ReleaseVerdict(row["release"], outcome, verdict, tuple(row["differs"] or ()), numbers, row["suppressed"])


@lru_cache(maxsize=1024)
def _counts(text: str) -> tuple[tuple[Outcome, int], ...]:
    return tuple((Outcome(name), number) for name, number in json.loads(text).items())


# -- evidence as text -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kept:
    """What is stored of the boots of one release."""

    boots: tuple[BootFact, ...]
    clock: Sequence[str]
    shapes: Sequence[tuple[str, str]]
    unlike: frozenset[str]
    left_out: Counter[Exclusion]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _Kept:
        said = json.loads(row["evidence"][len(rule()) :])
        states = [node_state(*values) for values in said["states"]]
        columns = list(said["metrics"].items())
        boots = tuple(
            BootFact(
                run_id,
                row["release"],
                _OUTCOMES[outcome],
                row["node_id"],
                session,
                started,
                finished,
                {name: values[number] for name, values in columns if values[number] is not None},
                states[state],
                frozenset(flags),
            )
            for number, (run_id, outcome, session, started, finished, state, flags) in enumerate(said["boots"])
        )
        left_out = Counter({Exclusion(reason): number for reason, number in said["left_out"].items()})
        return cls(boots, said["clock"], [(workload, shape) for workload, shape in said["shapes"]], frozenset(said["unlike"]), left_out)


def evidence_text(history: StoredHistory, admitted: AdmittedHistory, release: str) -> str:
    """The boots of a release as the rule saw them, what of them was left out, and the rule: what `_Kept` reads."""
    boots = admitted.boots[release]
    states = list(dict.fromkeys(boot.node_state for boot in boots))
    place = {state: number for number, state in enumerate(states)}
    names = sorted({name for boot in boots for name in boot.metrics})
    left_out = Counter(history.left_out.get(release, {})) + Counter(admitted.left_out.get(release, {}))
    said = {
        "boots": [(b.run_id, b.outcome, b.session_id, b.started_at, b.finished_at, place[b.node_state], sorted(b.flags)) for b in boots],
        "metrics": {name: [boot.metrics.get(name) for boot in boots] for name in names},
        "states": [state.values for state in states],
        "clock": [boot.run_id for boot in boots if boot.run_id in admitted.clock_went_back],
        "shapes": sorted(history.shapes.get(release, ())),
        "unlike": sorted(history.unlike),
        "left_out": dict(sorted(left_out.items())),
    }
    return rule() + json.dumps(said, separators=(",", ":"))
