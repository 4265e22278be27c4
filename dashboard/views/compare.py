"""Compare: two releases, nodes or backends side by side, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard import charts, links, source
from dashboard.evidence import rows_behind
from dashboard.filters import choose, switch
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.sentence import engine_name
from dashboard.shown import count, model_name, number, percent
from dashboard.words import SEVERITY, look_of_state, look_of_verdict
from results.compare import ComparedNumber, Question
from results.queries import compare_page, matrix_page, today_page
from results.report.wheels import wheel_changes
from results.verdict.words import Verdict

Row = Mapping[str, Any]
_AXES = {"release": "Releases", "node": "Nodes", "backend": "Backends"}
_OF_NUMBERS = (Verdict.SLOWER, Verdict.FASTER, Verdict.INCONCLUSIVE, Verdict.CONFOUNDED)
_FOREST_ROWS, _SHOWN = 24, 100


@dataclass(frozen=True)
class Pair:
    """One cell on both sides; None where it was never booted. `verdict` None: nothing can be said."""

    old: Row | None
    new: Row | None
    verdict: str | None
    reason: str
    numbers: tuple[ComparedNumber, ...] = ()

    @property
    def some(self) -> Row:
        """The side that there is, the newer one first."""
        side = self.new or self.old
        assert side is not None
        return side


def show() -> None:
    """The page."""
    st.title("Compare")
    engines = {row["engine"]: engine_name(row["engine"]) for row in source.rows(matrix_page.engines())}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        axis = switch("Two", "axis", _AXES, default="release")
        engine = choose("Engine", "engine", engines, narrow=True)
        if engine is None:
            quiet("No cell was booted yet.", "compare")
            return
        nodes = {row["node_id"]: row["label"] for row in source.rows(today_page.nodes())}
        node = choose("Node", "node", nodes, narrow=True) if axis != "node" and len(nodes) > 1 else None
        releases = [row["release"] for row in source.rows(matrix_page.releases(engine))]
        release = None if axis == "release" else choose("Release", "release", releases, narrow=True)
        values = _values(axis, engine, releases)
        before = choose("Before", "a", values, default=_nth(values, 1), narrow=axis == "release")
        after = choose("After", "b", values, default=_nth(values, 0), narrow=axis == "release")
        kinds = [row["distribution"] for row in source.rows(compare_page.distributions(engine))]
        kind = choose("Installed as", "dist", kinds, narrow=True) if len(kinds) > 1 else (kinds or ["venv"])[0]
    if before is None or after is None or before == after:
        quiet(f"Two different {_AXES[axis].lower()} are needed; this store has {len(values)} of {engine_name(engine)}.", "compare")
        return
    old, new = (compare_page.side(axis, engine, value, release, None if axis == "node" else node) for value in (before, after))
    pairs = (
        _releases(engine, before, after, kind or "venv", node) if axis == "release" else _pairs(axis, source.rows(old), source.rows(new))
    )
    _table(axis, engine, pairs, values[before], values[after])
    rows_behind("compare-before", old, "before")
    rows_behind("compare-after", new, "after")
    _confounded(pairs)
    if axis == "release":
        _forest(pairs, before, after)
        rows_behind("compare-numbers", compare_page.numbers(engine, after, before))
        _wheels(engine, before, after)


def _values(axis: str, engine: str, releases: Sequence[str]) -> dict[str, str]:
    if axis == "release":
        return {release: release for release in releases}
    if axis == "node":
        return {row["node_id"]: row["label"] for row in source.rows(today_page.nodes())}
    return {row["backend_name"]: row["backend_name"] for row in source.rows(compare_page.backends(engine))}


def _nth(values: Mapping[str, str], index: int) -> str | None:
    return list(values)[index] if len(values) > index else None


def _releases(engine: str, before: str, after: str, distribution: str, node: str | None) -> list[Pair]:
    question = Question(engine, before, after, distribution, node=node)
    found, left = source.compared(question)
    if left:
        waiting = f"{before} and {after} are no neighbours: {count(left, 'cell')} being judged now, told by their outcomes until then."
        quiet(waiting, "judging")
        _look_again(question)
    return [Pair(cell.old, cell.new, cell.verdict, _reason(cell.verdict, cell.reason, cell.numbers), cell.numbers) for cell in found]


@st.fragment(run_every="1s")
def _look_again(question: Question) -> None:
    if source.is_compared(question):
        st.rerun()


def _reason(verdict: str | None, reason: str, numbers: Sequence[ComparedNumber]) -> str:
    """What decided: the number that the word comes from, or the outcome."""
    deciding = next((number.reason for number in numbers if number.verdict == verdict), None) if verdict in _OF_NUMBERS else None
    return deciding or reason


def _pairs(axis: str, old: Sequence[Row], new: Sequence[Row]) -> list[Pair]:
    """The same cell on two nodes or backends: shown beside each other, not judged."""
    varying = {"node": "node_id", "backend": "backend_name"}[axis]
    names = [name for name in ("distribution", "recipe_name", "backend_name", "node_id") if name != varying]
    left, right = ({tuple(row[name] for name in names): row for row in side} for side in (old, new))
    return [Pair(left.get(key), right.get(key), None, (right.get(key) or left[key])["reason"]) for key in sorted({*left, *right}, key=str)]


def _table(axis: str, engine: str, pairs: Sequence[Pair], before: str, after: str) -> None:
    if not pairs:
        quiet("Neither side has a cell.", "pairs")
        return
    ordered = sorted(pairs, key=lambda pair: (SEVERITY.get(pair.verdict or "", len(SEVERITY)), pair.some["recipe_name"]))
    grid(
        "compare",
        "Cells of both sides, worst first",
        ["Cell", "Verdict", before, after, Column("Decode", right=True), "Why"],
        [_line(axis, engine, pair) for pair in ordered[:_SHOWN]],
    )
    if len(ordered) > _SHOWN:
        quiet(f"The worst {_SHOWN} of {len(ordered)}; all are in the rows.", "cut")
    if axis != "release":
        quiet("Nodes and backends are not judged against each other: the change is the plain difference of the medians.", "axis")


def _line(axis: str, engine: str, pair: Pair) -> list[Cell]:
    some, look, change = pair.some, look_of_verdict(pair.verdict), _change(pair)
    model = model_name(some["recipe_name"])
    name = model if axis == "backend" else f"{model} on {some['backend_name']}"
    word = Cell(f"{look.sign} {pair.verdict.replace('_', ' ')}", kind=look.kind, tip=look.meaning) if pair.verdict else Cell("–")
    return [
        Cell(name, some["node_label"] or some["node_id"] if axis != "node" else "", link=links.cell_of({**some, "engine": engine})),
        word,
        _state(pair.old),
        _state(pair.new),
        Cell(percent(change), "launch-bound" if some["launch_bound"] and change is not None else ""),
        Cell(pair.reason),
    ]


def _change(pair: Pair) -> float | None:
    if pair.old is None or pair.new is None or not pair.old["decode_tok_s"] or pair.new["decode_tok_s"] is None:
        return None
    return float(pair.new["decode_tok_s"]) / float(pair.old["decode_tok_s"]) - 1


def _state(row: Row | None) -> Cell:
    if row is None:
        return Cell("· not run", kind="notrun")
    look = look_of_state(row["state"])
    rate = "" if row["decode_tok_s"] is None else f"{number(row['decode_tok_s'])} tok/s, "
    return Cell(
        f"{look.sign} {row['state'].replace('_', ' ')}",
        f"{rate}{count(row['boots'], 'boot')}",
        kind=look.kind,
        tip=look.meaning,
        link=links.to("run", run=row["last_run_id"]) if row["last_run_id"] else None,
    )


def _confounded(pairs: Sequence[Pair]) -> None:
    found = [pair.some for pair in pairs if pair.verdict == Verdict.CONFOUNDED]
    if not found:
        return
    st.header("Confounded")
    quiet(
        "Where something besides the engine changed between the two, the change is nobody's fault yet. Run the older one"
        " again under the present state to find out.",
        "confounded",
    )
    grid(
        "confounded",
        "What else changed",
        ["Cell", "What else changed"],
        [[Cell(f"{row['recipe_name']} on {row['backend_name']}"), Cell(", ".join(row["differs"] or ()) or row["reason"])] for row in found],
    )


def _forest(pairs: Sequence[Pair], before: str, after: str) -> None:
    shown: list[dict[str, Any]] = [
        {
            "name": f"{pair.some['recipe_name']} · {pair.some['backend_name']} · {own.series}",
            "effect": own.effect,
            "interval_low": own.interval[0] if own.interval else None,
            "interval_high": own.interval[1] if own.interval else None,
            "verdict": own.verdict,
            "n_baseline": own.boots[0],
            "n_candidate": own.boots[1],
        }
        for pair in pairs
        for own in pair.numbers
        if own.effect is not None
    ]
    st.header("Effects")
    if not shown:
        quiet(f"No number of {after} could be judged against {before}.", "forest")
        return
    shown.sort(key=lambda row: (SEVERITY.get(row["verdict"], len(SEVERITY)), row["effect"]))
    cut = f" The worst {_FOREST_ROWS} of {len(shown)}." if len(shown) > _FOREST_ROWS else ""
    quiet(f"Change from {before} to {after} with its interval, worst first.{cut}", "forest")
    st.vega_lite_chart(
        charts.forest(shown[:_FOREST_ROWS]), key="forest", alt="Effects with their intervals; the same numbers are in the rows"
    )


def _wheels(engine: str, before: str, after: str) -> None:
    st.header("Wheel sets")
    old, new = (source.row(compare_page.wheels(engine, release)) for release in (before, after))
    if old is None or new is None:
        quiet("The wheel set of one of them is not on record.", "wheels")
        return
    changes = wheel_changes(old["wheels"] or (), new["wheels"] or ())
    quiet(f"{count(len(changes), 'package')} of {len(new['wheels'] or ())} changed.", "wheels")
    if changes:
        grid(
            "wheels",
            "Packages that differ",
            ["Package", before, after],
            [[Cell(own.name), Cell(own.before or "not there"), Cell(own.after or "not there")] for own in changes],
            dense=True,
        )
    rows_behind("wheels-before", compare_page.wheels(engine, before), "before")
    rows_behind("wheels-after", compare_page.wheels(engine, after), "after")


if __name__ == "__main__":
    show()
