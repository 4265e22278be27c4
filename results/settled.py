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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, repeat, takewhile
from pathlib import Path
from typing import Any

import duckdb
from pydantic_core import from_json

from results import verdict as rule_package
from results.engine_versions import releases_of
from results.history import Standing, StoredHistory, node_state, total
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
_MOVED = """
SELECT history_id, release, series, verdict, baseline, effect, reason FROM number_verdicts
WHERE moved AND history_id IN (SELECT unnest(?))
"""
_NOT_MOVED = NumberVerdict(Verdict.UNCHANGED, "", None, "")
"""In place of every number that did not move: no later release and no finding asks more of it than that it was judged."""
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
    """What is stored of some histories: by history, release to the row of its verdict, and the numbers of it that moved."""

    verdicts: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    moved: dict[tuple[str, str], dict[str, NumberVerdict]] = field(default_factory=dict)
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
        for history, release, series, verdict, baseline, effect, reason in connection.execute(_MOVED, wanted).fetchall():
            number = NumberVerdict(Verdict(verdict), reason, baseline, release, effect=effect, moved=True)
            former.moved.setdefault((history, release), {})[series] = number
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
            verdicts=tuple(
                _release_verdict(rows[release], one.boots, self.moved.get((history, release), {}))
                for release, one in zip(stands, kept, strict=True)
            ),
            boots={release: one.boots for release, one in zip(stands, kept, strict=True)},
            clock_went_back=frozenset(run for one in kept for run in one.clock),
            shapes=[(workload, shape) for one in kept for workload, shape in one.shapes],
            unlike={one.unlike for one in kept},
            left_out=total(one.left_out for one in kept),
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


def _release_verdict(row: Mapping[str, Any], boots: Sequence[BootFact], moved: Mapping[str, NumberVerdict]) -> ReleaseVerdict:
    """As much of a stored verdict as later releases and findings ask of it. Every number of a release that passes was judged."""
    names = () if row["suppressed"] else chain.from_iterable(boot.metrics for boot in boots)
    numbers = {**dict.fromkeys(names, _NOT_MOVED), **moved}
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
        said = from_json(row["evidence"][len(rule()) :])
        states = [node_state(*values) for values in said["states"]]
        numbers = zip(*said["metrics"].values(), strict=True) if said["metrics"] else repeat(())
        boots = tuple(
            BootFact(
                run_id,
                row["release"],
                _OUTCOMES[outcome],
                row["node_id"],
                session,
                started,
                finished,
                _known(said["metrics"], values),
                states[state],
                frozenset(flags),
            )
            for (run_id, outcome, session, started, finished, state, flags), values in zip(said["boots"], numbers, strict=False)
        )
        left_out = Counter({Exclusion(reason): number for reason, number in said["left_out"].items()})
        return cls(boots, said["clock"], [(workload, shape) for workload, shape in said["shapes"]], frozenset(said["unlike"]), left_out)


def _known(names: Iterable[str], values: tuple[float | None, ...]) -> dict[str, float]:
    found: dict[str, Any] = dict(zip(names, values, strict=False))
    return {name: value for name, value in found.items() if value is not None} if None in values else found


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
