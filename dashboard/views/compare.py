"""Compare: two releases, nodes or backends side by side, worst first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import charts, links, source
from dashboard.evidence import rows_behind
from dashboard.filters import choose, switch
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.sentence import engine_name
from dashboard.shown import count, number, percent
from dashboard.words import SEVERITY, look_of_state, look_of_verdict
from results.queries import compare_page, matrix_page, today_page
from results.queries.query import Query
from results.report.wheels import wheel_changes
from results.verdict.words import Verdict

Row = Mapping[str, Any]
_AXES = {"release": "Releases", "node": "Nodes", "backend": "Backends"}
_FOREST_ROWS = 40


def show() -> None:
    """The page."""
    st.title("Compare")
    engines = {row["engine"]: engine_name(row["engine"]) for row in source.rows(matrix_page.engines())}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        axis = switch("Two", "axis", _AXES, default="release")
        engine = choose("Engine", "engine", engines)
        if engine is None:
            quiet("No cell was booted yet.", "compare")
            return
        releases = [row["release"] for row in source.rows(matrix_page.releases(engine))]
        release = None if axis == "release" else choose("Release", "release", releases)
        values = _values(axis, engine, releases)
        before = choose("Before", "a", values, default=_nth(values, 1))
        after = choose("After", "b", values, default=_nth(values, 0))
    if before is None or after is None or before == after:
        quiet(f"Two different {_AXES[axis].lower()} are needed; this store has {len(values)} of {engine_name(engine)}.", "compare")
        return
    old = compare_page.side(axis, engine, before, release)
    new = compare_page.side(axis, engine, after, release)
    pairs = _pairs(axis, source.rows(old), source.rows(new))
    judged = compare_page.numbers(engine, after, before) if axis == "release" else None
    numbers = source.rows(judged) if judged else []
    _table(axis, engine, pairs, numbers, values[before], values[after])
    rows_behind("compare-before", old)
    rows_behind("compare-after", new)
    if judged:
        _forest(judged, numbers, before, after)
        _wheels(engine, before, after)


def _values(axis: str, engine: str, releases: Sequence[str]) -> dict[str, str]:
    if axis == "release":
        return {release: release for release in releases}
    if axis == "node":
        return {row["node_id"]: row["label"] for row in source.rows(today_page.nodes())}
    return {row["backend_name"]: row["backend_name"] for row in source.rows(compare_page.backends(engine))}


def _nth(values: Mapping[str, str], index: int) -> str | None:
    return list(values)[index] if len(values) > index else None


def _pairs(axis: str, old: Sequence[Row], new: Sequence[Row]) -> list[tuple[Row | None, Row | None]]:
    """The same cell on both sides; None where it exists on one only."""
    varying = {"release": None, "node": "node_id", "backend": "backend_name"}[axis]
    names = [name for name in ("distribution", "recipe_name", "backend_name", "node_id") if name != varying]
    left, right = ({tuple(row[name] for name in names): row for row in side} for side in (old, new))
    return [(left.get(key), right.get(key)) for key in sorted({*left, *right}, key=str)]


def _table(axis: str, engine: str, pairs: Sequence[tuple[Row | None, Row | None]], numbers: Sequence[Row], before: str, after: str) -> None:
    if not pairs:
        quiet("Neither side has a cell.", "pairs")
        return
    lines = [_line(axis, engine, old, new, numbers, before) for old, new in pairs]
    lines.sort(key=lambda line: line[0])
    grid(
        "compare",
        "Cells of both sides, worst first",
        ["Cell", "Verdict", f"{before}", f"{after}", Column("Decode", right=True), "Why"],
        [cells for _, cells in lines],
    )
    if axis != "release":
        quiet("Nodes and backends are not judged against each other: the change is the plain difference of the medians.", "axis")
    confounded = [new for _, new in pairs if new is not None and new["differs"]]
    if confounded:
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
            [[Cell(f"{row['recipe_name']} on {row['backend_name']}"), Cell(", ".join(row["differs"]))] for row in confounded],
        )


def _line(
    axis: str, engine: str, old: Row | None, new: Row | None, numbers: Sequence[Row], before: str
) -> tuple[tuple[int, str], list[Cell]]:
    some = new or old
    assert some is not None
    own = [row for row in numbers if row["history_id"] == some["history_id"]]
    verdict, reason = _verdict(axis, old, new, own, before)
    change = _change(old, new)
    look = look_of_verdict(verdict)
    name = f"{some['recipe_name']} on {some['backend_name']}" if axis != "backend" else some["recipe_name"]
    cells = [
        Cell(name, some["node_label"] or some["node_id"] if axis != "node" else "", link=links.cell_of({**some, "engine": engine})),
        Cell(
            f"{look.sign} {verdict.replace('_', ' ')}" if verdict else "–",
            kind=look.kind if verdict else "",
            tip=look.meaning if verdict else "",
        ),
        _state(old),
        _state(new),
        Cell(percent(change), "launch-bound" if some["launch_bound"] and change is not None else ""),
        Cell(reason),
    ]
    return (SEVERITY.get(verdict or "", len(SEVERITY)), name), cells


def _verdict(axis: str, old: Row | None, new: Row | None, numbers: Sequence[Row], before: str) -> tuple[str | None, str]:
    """The stored word if these two were judged against each other, and why; otherwise what there is to say instead."""
    if new is None:
        return None, "not booted on the right side"
    if old is None:
        return None, "not booted on the left side"
    if axis != "release":
        return None, new["reason"]
    if numbers:
        worst = min(numbers, key=lambda row: SEVERITY.get(row["verdict"], len(SEVERITY)))
        if new["headline"] in (Verdict.FASTER, Verdict.SLOWER, Verdict.UNCHANGED, Verdict.INCONCLUSIVE, Verdict.CONFOUNDED):
            return str(worst["verdict"]), worst["reason"]
    if new["state"] != old["state"] or new["headline"] not in (None, Verdict.UNCHANGED):
        return new["headline"], new["reason"]
    return None, f"same state; the numbers were judged against another release than {before}"


def _change(old: Row | None, new: Row | None) -> float | None:
    if old is None or new is None or not old["decode_tok_s"] or new["decode_tok_s"] is None:
        return None
    return float(new["decode_tok_s"]) / float(old["decode_tok_s"]) - 1


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


def _forest(question: Query, numbers: Sequence[Row], before: str, after: str) -> None:
    shown = [
        {**row, "name": f"{row['recipe_name']} · {row['backend_name']} · {row['series']}"}
        for row in numbers
        if row["effect"] is not None and math.isfinite(row["effect"])
    ]
    st.header("Effects")
    if not shown:
        quiet(f"No number of {after} was judged against {before}.", "forest")
        return
    shown.sort(key=lambda row: (SEVERITY.get(row["verdict"], len(SEVERITY)), row["effect"]))
    quiet(f"Change from {before} to {after} with its interval, worst first.", "forest")
    st.altair_chart(charts.forest(shown[:_FOREST_ROWS]), key="forest")
    rows_behind("compare-numbers", question)


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
    rows_behind("wheels-before", compare_page.wheels(engine, before))
    rows_behind("wheels-after", compare_page.wheels(engine, after))


if __name__ == "__main__":
    show()
