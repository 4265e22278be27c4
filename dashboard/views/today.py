"""Today: one sentence, then what broke, then how far it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from dashboard import links, source
from dashboard.evidence import rows_behind
from dashboard.filters import node_filter
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.sentence import cell_name, engine_name, sentences
from dashboard.shown import ago, block, count, model_name, number, percent
from dashboard.words import look_of_state, look_of_verdict
from results.queries import today_page
from results.self_checks import SelfChecks

_SHOWN = 60


def show() -> None:
    """The page."""
    st.title("Today")
    nodes = {row["node_id"]: row["label"] for row in source.rows(today_page.nodes())}
    node = node_filter(nodes)
    _headline(node)
    _findings(node)
    _coverage(node)


def _headline(node: str | None) -> None:
    found = sentences(source.rows(today_page.good_releases(node)), source.rows(today_page.news(node)))
    if not found:
        with st.container(key="headline_none"):
            st.text("No release has evidence yet.")
        quiet("Every boot so far was stopped, or failed on our side or the node's. The page Run says why.", "none")
    for sentence in found:
        with st.container(key=f"{'bad' if sentence.bad_news else 'good'}_headline_{sentence.engine}"):
            st.text(block(sentence.text, 1_500))
    rows_behind("releases", today_page.good_releases(node), "releases")
    rows_behind("news", today_page.news(node), "cells")


def _findings(node: str | None) -> None:
    question = today_page.findings(node)
    found = source.rows(question)
    st.header("Findings")
    if not found:
        quiet("None: no cell of this store failed or slowed down after an earlier release did better.", "findings")
        return
    grid(
        "findings",
        "Findings, open ones and failures first",
        ["What", "Cell", "Since", "Evidence", "Why", "Use instead"],
        [_finding(row) for row in found[:_SHOWN]],
    )
    _cut("findings", len(found))
    rows_behind("findings", question)


def _finding(row: Mapping[str, Any]) -> list[Cell]:
    look = look_of_verdict(row["kind"])
    open_ = row["stage"] in ("confirmed", "detected")
    what = f"{look.sign} {row['state'] if row['subject'] == 'outcome' and row['state'] else row['kind']}"
    subject = "" if row["subject"] == "outcome" else str(row["subject"])
    stage = f"fixed in {row['fixed_in']}" if row["fixed_in"] else str(row["stage"])
    after = f"good in {row['after']}" if row["after"] else "never seen good"
    return [
        Cell(what, stage, kind=(look.kind if row["stage"] == "confirmed" else "flaky") if open_ else "notrun"),
        Cell(
            f"{model_name(row['recipe_name'])} on {row['backend_name']}",
            f"{engine_name(row['engine'])} · {row['node_label'] or row['node_id']}" + (f" · {subject}" if subject else ""),
            link=links.cell_of(row),
        ),
        Cell(row["release"], after),
        Cell(*_evidence(row), link=links.to("run", run=row["last_run_id"]) if row["last_run_id"] else None),
        Cell(row["reason"], row["note"] or row["diagnosis"] or ""),
        Cell(_instead(row)),
    ]


def _evidence(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["subject"] == "outcome":
        before = "–" if row["boots_before"] is None else row["boots_before"]
        needed = f"{row['boots_needed']} more would confirm" if row["boots_needed"] else "confirmed"
        return f"{row['boots']} v {before} boots", needed
    if row["n_candidate"] is None:
        return percent(row["effect"]), ""
    sure = f"p = {row['p']:.3g}" if row["p"] is not None else ""
    if row["boots_to_decide"]:
        sure = f"{row['boots_to_decide']} boots a side would decide"
    return f"{percent(row['effect'])} ({row['n_candidate']} v {row['n_baseline']} boots)", sure


def _instead(row: Mapping[str, Any]) -> str:
    if row["use_instead"]:
        return " ".join(row["use_instead"])
    if row["fixed_in"]:
        return f"{row['fixed_in']} or newer"
    if row["other_backend"]:
        return f"backend {row['other_backend']}"
    return f"{engine_name(row['engine'])} {row['after']}" if row["after"] else "nothing known"


def _coverage(node: str | None) -> None:
    activity = source.row(today_page.activity(node))
    question = today_page.freshness(node)
    found = source.rows(question)
    st.header("Freshness and coverage")
    if activity:
        facts = [
            f"{count(activity['boots'], 'boot')} on {count(activity['nodes'], 'node')}",
            f"last one {ago(activity['last_started_at'], datetime.now(UTC))}: {activity['last_outcome']}",
            f"{number(activity['running'])} running" if activity["running"] else "",
            f"{number(activity['without_evidence'])} without evidence (our side, the node's, or stopped)",
            f"{number(activity['void_sessions'])} of {number(activity['sessions'])} sessions void" if activity["sessions"] else "",
        ]
        quiet(" · ".join(fact for fact in facts if fact), "activity")
        quiet(_own_rate(source.own_false_alarms(node)), "false_alarms")
    grid(
        "freshness",
        "How old the evidence on each cell is",
        ["Cell", Column("Boots", right=True), "Newest release booted", "Now", "Last good", "Last boot"],
        [_fresh(row) for row in found[:_SHOWN]],
        dense=True,
    )
    _cut("freshness", len(found))
    rows_behind("freshness", question)


def _own_rate(checks: SelfChecks) -> str:
    if not checks.comparisons:
        return "Our own false alarms: not measured here yet (the nightly self-check judges boots of one release against each other)."
    rate = f"{len(checks.alarms)} of {count(checks.comparisons, 'comparison')} of a release with itself told a change"
    return f"Our own false alarms: {rate} ({count(checks.boots, 'boot')}). {'; '.join(checks.alarms[:3])}".rstrip()


def _cut(name: str, there_are: int) -> None:
    if there_are > _SHOWN:
        quiet(f"The first {_SHOWN}; more are in the rows.", f"cut_{name}")


def _behind(releases: int, newest: str) -> str:
    return f"{releases} behind {newest}" if releases else "the newest"


def _fresh(row: Mapping[str, Any]) -> list[Cell]:
    look = look_of_state(row["state"] or "not_run")
    behind = row["releases_behind"]
    return [
        Cell(
            cell_name(row),
            f"{engine_name(row['engine'])} · {row['node_label'] or row['node_id']}",
            link=links.cell_of(row),
        ),
        Cell(number(row["boots"])),
        Cell(row["newest_release"] or "–", "no evidence yet" if behind is None else _behind(behind, row["engine_newest_release"])),
        Cell(f"{look.sign} {row['state'] or 'not run'}", kind=look.kind, tip=look.meaning),
        Cell(row["last_passing"] or "never"),
        Cell(ago(row["last_started_at"], datetime.now(UTC))),
    ]


if __name__ == "__main__":
    show()
