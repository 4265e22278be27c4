"""Matrix: engine releases by (model, backend), and why each empty cell is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import links, source
from dashboard.evidence import rows_behind
from dashboard.filters import choose, node_filter, search, switch
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.sentence import engine_name
from dashboard.shown import count, model_name, number, percent, when
from dashboard.words import STATES, look_of_state, look_of_verdict
from results.queries import matrix_page, today_page
from results.verdict.words import CellState, Verdict
from results.vocabulary import Outcome

_VIEWS = {"both": "Both", "correctness": "Correctness", "speed": "Speed"}
_ONLY = {"all": "All", "failing": "Failing now", "changed": "Changed"}
_FAILING = {Outcome.INCOHERENT, Outcome.WRONG, Outcome.CRASH, Outcome.HANG, Outcome.OOM, Outcome.FALLBACK, CellState.FLAKY}
_MOST_RELEASES, _MOST_LINES = 80, 60

Row = Mapping[str, Any]


def show() -> None:
    """The page."""
    st.title("Matrix")
    engines = [row["engine"] for row in source.rows(matrix_page.engines())]
    nodes = {row["node_id"]: row["label"] for row in source.rows(today_page.nodes())}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        engine = choose("Engine", "engine", {name: engine_name(name) for name in engines}, narrow=True)
        node = node_filter(nodes)
        view = switch("Show", "view", _VIEWS, default="both")
        only = switch("Rows", "only", _ONLY, default="all")
        wanted = search("Search", "q", "model or backend")
    if engine is None:
        quiet("No cell was booted yet.", "matrix")
        return
    releases = [row["release"] for row in source.rows(matrix_page.releases(engine))][:_MOST_RELEASES]
    everything = source.rows(matrix_page.lines(engine, node))
    wanted_lines = [row for row in everything if _is_wanted(row, wanted, only)]
    shown = wanted_lines[:_MOST_LINES]
    question = matrix_page.cells(tuple(row["history_id"] for row in shown))
    cells: dict[str, dict[str, Row]] = {}
    for row in source.rows(question):
        cells.setdefault(row["history_id"], {})[row["release"]] = row
    cut = f" The first {len(shown)} are shown: search, or choose a node." if len(shown) < len(wanted_lines) else ""
    quiet(f"{len(wanted_lines):,} of {count(len(everything), 'cell')}, {count(len(releases), 'release')}, newest first.{cut}", "count")
    several = len({row["node_id"] for row in everything}) > 1 or len({row["distribution"] for row in everything}) > 1
    grid(
        "matrix",
        f"Outcomes of {engine_name(engine)} by release",
        [Column("Model"), Column("Backend"), *(Column(release) for release in releases)],
        [_line(engine, row, cells.get(row["history_id"], {}), releases, view, several) for row in shown],
        frozen=2,
        dense=True,
        tall=True,
    )
    _legend()
    rows_behind("matrix", question)


def _is_wanted(row: Row, wanted: str, only: str) -> bool:
    text = " ".join(str(row[name]) for name in ("recipe_name", "backend_name", "node_id", "node_label", "distribution", "model")).casefold()
    if not all(word in text for word in wanted.casefold().split()):
        return False
    return row["newest_state"] in _FAILING if only == "failing" else bool(row["changed"]) if only == "changed" else True


def _line(engine: str, row: Row, own: Mapping[str, Row], releases: Sequence[str], view: str, several: bool) -> list[Cell]:
    link = links.cell_of({**row, "engine": engine})
    where = f"{row['node_label'] or row['node_id']} · {row['distribution']}" if several else ""
    cells = [_cell(own.get(release), link, view, release) for release in releases]
    return [Cell(model_name(row["recipe_name"]), row["quantization"] or "", link=link), Cell(row["backend_name"], where), *cells]


def _cell(row: Row | None, link: links.Link, view: str, release: str) -> Cell:
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
    sign = word.split(" ", 1)[0]
    if view == "speed":
        return (f"{sign} {rate}" if rate else word), _change(row)
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
    elif row["launch_bound"]:
        return "launch-bound"  # a canary's rate is launch overhead: what moves it without being confirmed is the node
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
