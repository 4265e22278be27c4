"""Matrix: engine releases by (model, backend), and why each empty cell is empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import links, source
from dashboard.evidence import rows_behind
from dashboard.filters import choose, node_filter, search, switch
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.sentence import engine_name
from dashboard.shown import count, number, percent, when
from dashboard.words import STATES, look_of_state, look_of_verdict
from results.queries import matrix_page, today_page
from results.verdict.words import CellState, Verdict
from results.vocabulary import Outcome

_VIEWS = {"both": "Both", "correctness": "Correctness", "speed": "Speed"}
_ONLY = {"all": "All", "failing": "Failing now", "changed": "Changed"}
_FAILING = {Outcome.INCOHERENT, Outcome.WRONG, Outcome.CRASH, Outcome.HANG, Outcome.OOM, Outcome.FALLBACK, CellState.FLAKY}
_STEADY = {None, Verdict.UNCHANGED, Verdict.NEW}
_MOST_RELEASES = 80

Row = Mapping[str, Any]
Key = tuple[str, str, str, str]


def show() -> None:
    """The page."""
    st.title("Matrix")
    engines = [row["engine"] for row in source.rows(matrix_page.engines())]
    nodes = {row["node_id"]: row["label"] for row in source.rows(today_page.nodes())}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        engine = choose("Engine", "engine", {name: engine_name(name) for name in engines})
        node = node_filter(nodes)
        view = switch("Show", "view", _VIEWS, default="both")
        only = switch("Rows", "only", _ONLY, default="all")
        wanted = search("Search", "q", "model or backend")
    if engine is None:
        quiet("No cell was booted yet.", "matrix")
        return
    question = matrix_page.cells(engine, node)
    releases = [row["release"] for row in source.rows(matrix_page.releases(engine))][:_MOST_RELEASES]
    cells = _by_cell(source.rows(question))
    kept = {key: row for key, row in cells.items() if _is_wanted(key, row.values(), wanted, only)}
    quiet(f"{len(kept)} of {len(cells)} cells, {len(releases)} releases, newest first.", "count")
    several = len({key[2] for key in cells}) > 1 or len({key[3] for key in cells}) > 1
    grid(
        "matrix",
        f"Outcomes of {engine_name(engine)} by release",
        [Column("Model"), Column("Backend"), *(Column(release) for release in releases)],
        [_line(engine, key, row, releases, view, several) for key, row in kept.items()],
        frozen=2,
        dense=True,
        tall=True,
    )
    _legend()
    rows_behind("matrix", question)


def _by_cell(rows: Iterable[Row]) -> dict[Key, dict[str, Row]]:
    cells: dict[Key, dict[str, Row]] = {}
    for row in rows:
        cells.setdefault((row["recipe_name"], row["backend_name"], row["node_id"], row["distribution"]), {})[row["release"]] = row
    return cells


def _is_wanted(key: Key, rows: Iterable[Row], wanted: str, only: str) -> bool:
    own = list(rows)
    text = " ".join((*key, *(str(row["model"]) for row in own[:1]))).casefold()
    if not all(word in text for word in wanted.casefold().split()):
        return False
    if only == "failing":
        newest = next((row for row in own if row["state"] != CellState.NOT_RUN), None)
        return newest is not None and newest["state"] in _FAILING
    return only != "changed" or any(row["headline"] not in _STEADY for row in own)


def _line(engine: str, key: Key, row: Mapping[str, Row], releases: Sequence[str], view: str, several: bool) -> list[Cell]:
    recipe, backend, node, distribution = key
    some = next(iter(row.values()))
    link = links.to("cell", engine=engine, dist=distribution, recipe=recipe, backend=backend, node=node)
    where = f"{some['node_label'] or node} · {distribution}" if several else ""
    first = min(cell["position"] for cell in row.values())
    cells = [_cell(row.get(release), link, view, release, first) for release in releases]
    return [Cell(recipe, some["quantization"] or "", link=link), Cell(backend, where), *cells]


def _cell(row: Row | None, link: links.Link, view: str, release: str, first: int) -> Cell:
    if row is None:
        return Cell("· not run", kind="notrun", tip=f"{release}: this cell was never booted on it")
    look = STATES["gone"] if row["verdict"] == Verdict.GONE else look_of_state(row["state"])
    word = "gone" if row["verdict"] == Verdict.GONE else str(row["state"]).replace("_", " ")
    tip = f"{release}: {look.meaning}. {row['reason']} (last boot {when(row['last_started_at'])} UTC)"
    if row["state"] == CellState.NOT_RUN:
        return Cell("· not run" if not row["boots"] else "? no evidence", kind="notrun", tip=tip)
    return Cell(*_texts(row, view, f"{look.sign} {word}"), kind=look.kind, link=link, tip=tip)


def _texts(row: Row, view: str, word: str) -> tuple[str, str]:
    """The cell's line and its small line."""
    rate = None if row["decode_tok_s"] is None else f"{number(row['decode_tok_s'])} tok/s"
    if view == "correctness":
        return word, _verdict(row)
    if view == "speed":
        return rate or word, _change(row) or ("launch-bound" if row["launch_bound"] and rate else "")
    sign = word.split(" ", 1)[0]
    return (f"{sign} {number(row['decode_tok_s'])}" if rate else word), _change(row) or _verdict(row)


def _verdict(row: Row) -> str:
    headline = row["headline"]
    said = "" if headline in (None, Verdict.UNCHANGED) else f"{look_of_verdict(headline).sign} {str(headline).replace('_', ' ')}"
    boots = count(row["boots"], "boot")
    return f"{said}, {boots}" if said else boots


def _change(row: Row) -> str:
    """The arrow against the last good release: filled when it is confirmed, hollow when it only was seen."""
    change = row["decode_change"]
    if change is None:
        return ""
    if row["headline"] in (Verdict.FASTER, Verdict.SLOWER):
        arrow = "▲" if change > 0 else "▼"
    else:
        arrow = "△" if change >= 0.03 else "▽" if change <= -0.03 else "="
    return f"{arrow} {percent(change)}"


def _legend() -> None:
    shown = (Outcome.PASS, Outcome.INCOHERENT, CellState.FLAKY, Outcome.FALLBACK, Outcome.UNSUPPORTED, "gone", CellState.NOT_RUN)
    names: dict[str, str] = {Outcome.INCOHERENT: "fails (incoherent, wrong, crash, hang, oom)"}
    signs = [f"{STATES[word].sign} {names.get(word, word.replace('_', ' '))}" for word in shown]
    arrows = "▲▼ confirmed change against the last good release, △▽ 3 % or more but not confirmed, = less"
    quiet("   ".join(signs) + "\nNumbers are decode tok/s, median over boots. " + arrows + ".", "legend")


if __name__ == "__main__":
    show()
