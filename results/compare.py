"""Two releases of one engine, cell by cell.

Trap: two medians side by side look like a comparison although the older release failed, or the driver changed between them. Rule: what is
said of a pair is the verdict engine's word: the stored one where the older release is the one the newer was judged against, else the same
rule applied to the boots of just these two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import duckdb

from results.errors import StoreError
from results.history import StoredHistory, cell_histories
from results.store import Store
from results.verdict.cell import ReleaseVerdict, judge_cell
from results.verdict.facts import CellHistory, VerdictInputError
from results.verdict.metrics import LAUNCH_BOUND
from results.verdict.outcomes import verdict_between
from results.verdict.words import CellState, State, Verdict
from results.vocabulary import Outcome

Row = dict[str, Any]
MOST_JUDGED = 400
"""Cells judged by one question about releases that are not neighbours: more take longer than somebody waits."""

_SIDES = """
SELECT history_id, engine, distribution, release, position, recipe_name, backend_name, node_id, node_label, state, verdict, headline, alarm,
       confirmed, after, last_good, boots, reason, differs, suppressed, decode_tok_s, decode_tok_s_low, decode_tok_s_high, ttft_s,
       aggregate_tok_s, launch_bound, last_run_id
FROM matrix
WHERE engine = $engine AND distribution = $distribution AND release IN ($old, $new) AND ($recipe IS NULL OR recipe_name = $recipe)
  AND ($backend IS NULL OR backend_name = $backend) AND ($node IS NULL OR node_id = $node OR node_label = $node)
ORDER BY recipe_name, backend_name, node_id
"""
_NUMBERS = """
SELECT history_id, series, metric, workload, launch_bound, verdict, reason, n_baseline, n_candidate, n_rerun, effect, interval_low,
       interval_high, interval_level, p, boots_to_decide, differs, warnings
FROM numbers
WHERE engine = $engine AND distribution = $distribution AND release = $new AND baseline = $old
  AND ($recipe IS NULL OR recipe_name = $recipe) AND ($backend IS NULL OR backend_name = $backend)
  AND ($node IS NULL OR node_id = $node OR node_id IN (SELECT node_id FROM nodes WHERE label = $node))
ORDER BY series
"""


class UnknownReleaseError(StoreError):
    """A release of which the store has no boot."""


@dataclass(frozen=True)
class Question:
    """What is compared. `node` is an id or a label; None: all."""

    engine: str
    old: str
    new: str
    distribution: str = "venv"
    recipe: str | None = None
    backend: str | None = None
    node: str | None = None


@dataclass(frozen=True)
class ComparedNumber:
    """One series: the verdict's word with everything it rests on. `effect` -0.06 is 6 % lower."""

    series: str
    verdict: str
    reason: str
    effect: float | None
    interval: tuple[float, float] | None
    p: float | None
    boots: tuple[int, int]
    boots_to_decide: int | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparedCell:
    """One cell. `old` and `new` are rows of the view `matrix`, None where a side was never booted; `verdict` None: nothing can be said.

    `judged` is False for a cell of releases that are no neighbours which was left to its outcomes.
    """

    recipe_name: str
    backend_name: str
    node_id: str
    node_label: str | None
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None
    verdict: str | None
    reason: str
    alarm: bool
    numbers: tuple[ComparedNumber, ...] = ()
    judged: bool = True


def compare(store: Store, question: Question, most_judged: int = MOST_JUDGED) -> list[ComparedCell]:
    """One row per cell that has either release. Of releases that are not neighbours at most `most_judged` cells are judged, those that
    changed most; with 0 the answer is there at once, as far as it needs no judging. Raises UnknownReleaseError, StoreError."""
    with store.reading() as connection:
        question = replace(question, old=_release(connection, question, question.old), new=_release(connection, question, question.new))
        cells: dict[str, dict[str, Row]] = {}
        for row in _rows(connection, _SIDES, question):
            cells.setdefault(row["history_id"], {})[row["release"]] = row
        numbers: dict[str, list[ComparedNumber]] = {}
        for row in _rows(connection, _NUMBERS, question):
            numbers.setdefault(row["history_id"], []).append(_number_of_row(row))
        apart = _most_changed_first(
            {cell: sides for cell, sides in cells.items() if len(sides) == 2 and not _adjacent(sides, question)}, question
        )
        judged = _judge(connection, question, apart[:most_judged])
    left = set(apart[most_judged:])
    only = f": only the {most_judged} of {len(apart)} cells that changed most are; ask for one node, model or backend"
    why = only if most_judged else " yet"
    for cell in left:
        states = f"{cells[cell][question.old]['state']} -> {cells[cell][question.new]['state']}"
        judged[cell] = f"{states}; not judged{why}"
    found = {cell: _cell(sides, question, numbers.get(cell, ()), judged.get(cell)) for cell, sides in cells.items()}
    return [replace(row, judged=cell not in left) for cell, row in found.items()]


def _release(connection: duckdb.DuckDBPyConnection, question: Question, version: str) -> str:
    found = connection.execute(
        "SELECT release FROM engine_versions WHERE engine = ? AND (version = ? OR release = ?) AND release IS NOT NULL",
        [question.engine, version, version],
    ).fetchone()
    if found is None:
        rows = connection.execute(
            "SELECT DISTINCT release, position FROM engine_versions WHERE engine = ? AND position > 0 ORDER BY position DESC LIMIT 12",
            [question.engine],
        ).fetchall()
        known = ", ".join(row[0] for row in rows) or "none"
        todo = f"Booted releases: {known}. `sparkproof run --engine {question.engine}=={version}` boots it."
        raise UnknownReleaseError(f"{question.engine} {version} was never booted here", todo=todo)
    return str(found[0])


def _adjacent(sides: Mapping[str, Row], question: Question) -> bool:
    """Whether the stored verdict on the newer release is the verdict against the older one."""
    new, old = sides[question.new], sides[question.old]
    if new["state"] == "not_run" or old["state"] == "not_run":
        return True
    return bool(new["after"] == question.old and (new["last_good"] == question.old or old["state"] != "pass"))


def _most_changed_first(cells: Mapping[str, Mapping[str, Row]], question: Question) -> list[str]:
    """In turns: a cell with another outcome, and one with the same whose median changed most; of the former no number can be judged."""
    by_change = sorted(cells, key=lambda cell: -_change(cells[cell][question.old], cells[cell][question.new]))
    same = [cell for cell in by_change if cells[cell][question.old]["state"] == cells[cell][question.new]["state"]]
    other = [cell for cell in by_change if cells[cell][question.old]["state"] != cells[cell][question.new]["state"]]
    return [cell for pair in zip_longest(other, same) for cell in pair if cell is not None]


def _change(old: Row, new: Row) -> float:
    before, after = old["decode_tok_s"], new["decode_tok_s"]
    return abs(after / before - 1) if before and after is not None else 0.0


def _judge(connection: duckdb.DuckDBPyConnection, question: Question, cells: Sequence[str]) -> dict[str, ReleaseVerdict | str]:
    if not cells:
        return {}
    found: dict[str, ReleaseVerdict | str] = {}
    for cell, history in cell_histories(connection, cells, releases=(question.old, question.new)).items():
        found[cell] = _judged(history, question.new)
    return found


def _judged(history: StoredHistory, release: str) -> ReleaseVerdict | str:
    facts = history.history
    try:
        judged = judge_cell(CellHistory(facts.series, facts.boots))
    except VerdictInputError as error:
        return str(error)
    return next(one for one in judged.releases if one.release == release)


def _cell(
    sides: Mapping[str, Row], question: Question, stored: Sequence[ComparedNumber], judged: ReleaseVerdict | str | None
) -> ComparedCell:
    old, new = sides.get(question.old), sides.get(question.new)
    some = new or old or {}
    verdict, reason, alarm, numbers = _said(old, new, judged)
    return ComparedCell(
        recipe_name=some["recipe_name"],
        backend_name=some["backend_name"],
        node_id=some["node_id"],
        node_label=some["node_label"],
        old=old,
        new=new,
        verdict=verdict,
        reason=reason,
        alarm=alarm,
        numbers=numbers if judged is not None else tuple(stored),
    )


def _said(
    old: Row | None, new: Row | None, judged: ReleaseVerdict | str | None
) -> tuple[str | None, str, bool, tuple[ComparedNumber, ...]]:
    if old is None or new is None or "not_run" in (old["state"], new["state"]):
        missing = " and ".join(name for name, side in (("older", old), ("newer", new)) if side is None or side["state"] == "not_run")
        return None, f"no evidence on the {missing} release", False, ()
    if judged is None:
        return new["headline"], new["reason"], new["alarm"], ()
    if isinstance(judged, str):
        word = verdict_between(_state(old["state"]), _state(new["state"]))
        return (None if word is Verdict.UNCHANGED else str(word)), judged, word is Verdict.BROKE and new["confirmed"], ()
    headline = judged.headline
    numbers = tuple(
        ComparedNumber(
            name,
            str(number.verdict),
            number.reason,
            number.effect,
            number.interval,
            number.p,
            (number.n_baseline, number.n_candidate),
            number.boots_to_decide,
            number.warnings,
        )
        for name, number in judged.numbers.items()
    )
    return (None if headline is None else str(headline)), judged.outcome.reason, judged.alarm, numbers


def _state(text: str) -> State:
    return Outcome(text) if text in set(Outcome) else CellState(text)


def _number_of_row(row: Row) -> ComparedNumber:
    interval = None if row["interval_low"] is None else (row["interval_low"], row["interval_high"])
    return ComparedNumber(
        row["series"],
        row["verdict"],
        row["reason"],
        row["effect"],
        interval,
        row["p"],
        (row["n_baseline"], row["n_candidate"]),
        row["boots_to_decide"],
        tuple(row["warnings"] or ()),
    )


def is_launch_bound(series: str) -> bool:
    """Whether a series is a canary's speed, which is no model's."""
    return series.endswith(f"/{LAUNCH_BOUND}")


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, question: Question) -> list[Row]:
    values = {
        name: getattr(question, name) for name in ("engine", "old", "new", "distribution", "recipe", "backend", "node") if f"${name}" in sql
    }
    cursor = connection.execute(sql, values)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
