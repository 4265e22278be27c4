"""What broke when: what each release did, and which failures are the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard import charts, links, source
from dashboard.evidence import rows_behind
from dashboard.filters import choose, node_filter
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.sentence import cell_name, engine_name
from dashboard.shown import count, number, percent, when
from dashboard.words import look_of_state, look_of_verdict
from results.queries import changes_page, matrix_page, today_page
from results.verdict.words import Verdict

Row = Mapping[str, Any]

_SHOWN = 100


def show() -> None:
    """The page."""
    st.title("What broke when")
    engines = {row["engine"]: engine_name(row["engine"]) for row in source.rows(matrix_page.engines())}
    nodes = {row["node_id"]: row["label"] for row in source.rows(today_page.nodes())}
    with st.container(horizontal=True):
        engine = choose("Engine", "engine", engines, everything="all engines")
        node = node_filter(nodes)
    _transitions(engine, node)
    _signatures(engine, node)


def _transitions(engine: str | None, node: str | None) -> None:
    question = changes_page.transitions(engine, node)
    found = source.rows(question)
    if not found:
        quiet("No release did anything to a cell yet: that takes two releases with evidence on the same cell.", "transitions")
        return
    counts = source.rows(changes_page.timeline(engine, node))
    if counts:
        st.vega_lite_chart(charts.timeline(counts), key="timeline", alt="Cells that got better and worse by release")
    grid(
        "transitions",
        "What each release did, newest first, failures first",
        ["Release", "Did", "Cell", "State", Column("Decode", right=True), "Why"],
        [_transition(row) for row in found[:_SHOWN]],
    )
    if len(found) > _SHOWN:
        quiet(f"The newest {_SHOWN}; more are in the rows.", "cut")
    rows_behind("transitions", question)


def _transition(row: Row) -> list[Cell]:
    verdict, state = look_of_verdict(row["headline"]), look_of_state(row["state"])
    kind = state.kind if row["headline"] == Verdict.NEW else verdict.kind
    sure = "" if row["confirmed"] else "not confirmed yet"
    return [
        Cell(f"{engine_name(row['engine'])} {row['release']}", when(row["last_started_at"])),
        Cell(f"{verdict.sign} {row['headline'].replace('_', ' ')}", sure, kind=kind, tip=verdict.meaning),
        Cell(cell_name(row), row["node_label"] or row["node_id"], link=links.cell_of(row)),
        Cell(
            f"{state.sign} {row['state'].replace('_', ' ')}",
            f"since {row['since']}" if row["since"] and row["since"] != row["release"] else "",
            link=links.to("run", run=row["last_run_id"]) if row["last_run_id"] else None,
        ),
        Cell(number(row["decode_tok_s"]), percent(row["decode_change"]) if row["decode_change"] is not None else ""),
        Cell(row["reason"]),
    ]


def _signatures(engine: str | None, node: str | None) -> None:
    question = changes_page.signatures(engine, node)
    found = source.rows(question)
    st.header("Failure signatures")
    if not found:
        quiet("No failure with a signature is on record.", "signatures")
        return
    quiet("One row per failure, however often and wherever it was seen. Open ones first.", "signatures")
    grid(
        "signatures",
        "Failures by signature",
        ["Signature", "Seen in", "Gone in", Column("Boots", right=True), "What it says", "Public issue"],
        [_signature(row) for row in found[:_SHOWN]],
    )
    rows_behind("signatures", question)


def _signature(row: Row) -> list[Cell]:
    look = look_of_state(row["outcome"])
    issues = links.issues_in(row["reason"] or "")
    seen = ", ".join(row["releases"][-8:])
    more = f"and {len(row['releases']) - 8} older" if len(row["releases"]) > 8 else ""
    return [
        Cell(
            row["signature"], f"{engine_name(row['engine'])} · {row['outcome']}", kind="notrun" if row["gone_in"] else look.kind, mono=True
        ),
        Cell(seen, more),
        Cell(row["gone_in"] or "no pass since"),
        Cell(number(row["boots"]), count(row["cells"], "cell"), link=links.to("run", run=row["last_run_id"])),
        Cell(row["reason"] or ""),
        Cell(issues[0].text, link=issues[0]) if issues else Cell("none known"),
    ]


if __name__ == "__main__":
    show()
