"""Cell: one (model, backend) on one node over the releases of an engine."""

from __future__ import annotations

import json
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
from dashboard.shown import count, gib, line, measured, number, percent, seconds, when
from dashboard.words import SEVERITY, look_of_state, look_of_verdict
from results.levels import levels_of
from results.queries import cell_page, run_page
from results.roofline import ABOVE

Row = Mapping[str, Any]
_GB10 = "12.1"
_GB10_BYTES_S = 273e9
"""Memory bandwidth of a GB10 by its data sheet."""
_SHOWN_BOOTS = 100


@dataclass(frozen=True)
class Shown:
    """A metric of the switch: its word, its unit after `scale`, and which verdict series are its levels."""

    word: str
    unit: str
    scale: float = 1.0


METRICS: Mapping[str, Shown] = {
    "decode_tok_s": Shown("Decode", "tok/s"),
    "ttft_s": Shown("TTFT", "ms", 1000.0),
    "prefill_tok_s": Shown("Prefill", "tok/s"),
    "itl_p50_s": Shown("ITL", "ms", 1000.0),
    "aggregate_tok_s": Shown("All streams", "tok/s"),
    "memory_used_bytes": Shown("Memory", "GiB", 1 / 2**30),
    "kv_cache_tokens": Shown("KV tokens", "tokens"),
    "verified_context_tokens": Shown("Verified context", "tokens"),
    "nll_drift_rms": Shown("NLL drift", "nats/token"),
    "margin_drift_rms": Shown("Margin drift", "nats"),
}


def show() -> None:
    """The page."""
    st.title("Cell")
    history = _choose(source.rows(cell_page.histories()))
    if history is None:
        quiet("No cell was booted yet.", "cell")
        return
    metric = switch("Metric", "metric", {name: shown.word for name, shown in METRICS.items()}, default="decode_tok_s")
    verdicts = source.rows(cell_page.verdicts(history["history_id"]))
    _headline(history, verdicts)
    boots = source.rows(cell_page.boots(history["history_id"]))
    _chart(history, metric, boots, verdicts)
    rows_behind("cell-boots", cell_page.boots(history["history_id"]))
    _verdicts(history, verdicts)
    _numbers(history)
    _boots(boots)
    _claims(history)


def _choose(histories: Sequence[Row]) -> Row | None:
    """Four boxes that narrow each other down; what the address names wins, else the cell booted last."""
    left = list(histories)
    with st.container(horizontal=True):
        for label, name, column in (
            ("Engine", "engine", "engine"),
            ("Model", "recipe", "recipe_name"),
            ("Backend", "backend", "backend_name"),
        ):
            value = choose(label, name, {row[column]: engine_name(row[column]) if name == "engine" else row[column] for row in left})
            left = [row for row in left if row[column] == value]
        node = choose("Node", "node", {row["node_id"]: row["node_label"] or row["node_id"] for row in left})
        left = [row for row in left if row["node_id"] == node]
        if len({row["distribution"] for row in left}) > 1 or "dist" in st.query_params:
            kind = choose("Installed as", "dist", list(dict.fromkeys(row["distribution"] for row in left)))
            left = [row for row in left if row["distribution"] == kind]
    return left[0] if left else None


def _headline(history: Row, verdicts: Sequence[Row]) -> None:
    with_evidence = [row for row in verdicts if row["verdict"] is not None]
    if history["error"]:
        with st.container(key="bad_headline_cell"):
            st.text(line(f"This history cannot be judged: {history['error']}", 500))
        return
    if not with_evidence:
        quiet("No release has evidence on this cell yet.", "evidence")
        return
    newest = with_evidence[-1]
    look = look_of_state(newest["state"])
    since = f" since {newest['since']}" if newest["since"] and newest["since"] != newest["release"] else ""
    good = "" if newest["state"] == "pass" else f" Last good: {history['last_passing'] or 'none'}."
    with st.container(key=f"{'good' if newest['state'] == 'pass' else 'bad'}_headline_cell"):
        st.text(line(f"{engine_name(history['engine'])} {newest['release']}: {look.sign} {newest['state']}{since}.{good}", 400))
    quiet(f"{newest['reason']}", "reason")


def _chart(history: Row, metric: str, boots: Sequence[Row], verdicts: Sequence[Row]) -> None:
    shown = METRICS[metric]
    releases = [row["release"] for row in verdicts if row["position"] is not None]
    if not releases:
        quiet("None of its versions is a release, so there is no axis to draw it on. The boots are listed below.", "axis")
        return
    levels = levels_of(row for row in source.rows(cell_page.numbers(history["history_id"])) if _is_series_of(row["series"], metric))
    active_bytes = _active_bytes(history) if metric == "decode_tok_s" else None
    on_gb10 = any(boot["compute_capability"] == _GB10 for boot in boots)
    roofline = _GB10_BYTES_S / active_bytes if active_bytes and on_gb10 else None
    chart = charts.history(
        charts.HistoryChart(
            metric=metric,
            title=shown.word,
            unit=shown.unit,
            releases=releases,
            boots=boots,
            levels=levels,
            claims=source.rows(cell_page.claims(history["engine"], history["recipe_name"])),
            changes=_changes(boots),
            roofline=roofline,
            scale=shown.scale,
        )
    )
    key = f"history_{metric}"

    def noted() -> None:
        chosen = st.session_state[key].selection.get(charts.SELECTION) or []
        if chosen and chosen[0].get("run_id"):
            links.clicked(links.to("run", run=str(chosen[0]["run_id"])))

    st.vega_lite_chart(
        chart,
        key=key,
        on_select=noted,
        selection_mode=charts.SELECTION,
        alt=f"{shown.word} by release; the same boots are in the table below",
    )
    # Of the fastest boot only: over all boots of a large store it takes longer than somebody waits.
    fastest = max((boot for boot in boots if boot["decode_tok_s"] is not None), key=lambda boot: float(boot["decode_tok_s"]), default=None)
    shares = source.rows(run_page.table("rooflines", fastest["run_id"])) if fastest and active_bytes else []
    _explain(metric, boots, roofline, shares)


def _explain(metric: str, boots: Sequence[Row], roofline: float | None, shares: Sequence[Row]) -> None:
    said = ["Signs at the bottom edge: boots that failed, were stopped or do not count; beneath them the node's state."]
    if any(boot.get(metric) is not None and boot["counted_as"] in charts.WORKING for boot in boots):
        said.insert(0, "Each dot is a boot; a click opens it. The bar is the median of a release, the wide line a level.")
    else:
        said.insert(0, "No boot that passed has this number.")
    said.append("Hollow diamonds: other people's numbers.")
    if any(boot["weights"] == "dummy" for boot in boots):
        said.append("Dummy weights: random numbers in the shape of a model, timed and not judged.")
    if any(boot["launch_bound"] for boot in boots):
        said.append("Launch-bound: a canary's rate is launch overhead, not kernel speed.")
    if roofline is not None:
        rates = sorted(boot["decode_tok_s"] for boot in boots if boot["decode_tok_s"] is not None)
        if rates:
            said.append(f"The best boot reaches {rates[-1] / roofline * 100:.0f} % of what 273 GB/s allow for one stream.")
    if shares:
        best = max(shares, key=lambda row: row["percent"] or 0.0)
        if best["percent"] is not None:
            said.append(f"The best boot reaches {best['percent']:.0f} % of the bandwidth that its node's own probe measured.")
        if any(row["alarm"] for row in shares):
            said.append(f"✗ Above the roofline: {ABOVE}.")
    quiet(" ".join(said), f"chart_{metric}")


def _is_series_of(series: str, metric: str) -> bool:
    parts = series.split("/")
    if metric == "aggregate_tok_s":
        return metric in parts
    return metric in parts and (len(parts) == 1 or parts[0] == "decode_c1")


def _active_bytes(history: Row) -> float | None:
    """Bytes of weights that one token reads. With them the roofline of one stream is bandwidth / bytes."""
    recipe = source.row(cell_page.recipe(history["recipe_id"])) if history["recipe_id"] else None
    definition = json.loads(recipe["definition"]) if recipe and recipe["definition"] else {}
    weights = definition.get("weights") if isinstance(definition, dict) else None
    active = weights.get("active_bytes") if isinstance(weights, dict) else None
    return active if isinstance(active, (int, float)) and active > 0 else None


def _changes(boots: Sequence[Row]) -> dict[str, str]:
    """By release: what of the node changed before its first boot under the new state."""
    watched = {"driver_version": "driver", "kernel_version": "kernel", "firmware": "firmware", "sm_clock_cap_mhz": "clock cap"}
    changes: dict[str, str] = {}
    before: Row | None = None
    for boot in boots:
        if before is not None and boot["release"] is not None:
            told = [
                f"{word} {before[name] or 'unknown'} → {boot[name] or 'unknown'}"
                for name, word in watched.items()
                if before[name] != boot[name]
            ]
            if told:
                changes[boot["release"]] = "; ".join(
                    [*filter(None, [changes.get(boot["release"])]), f"{when(boot['started_at'])}: {', '.join(told)}"]
                )
        before = boot
    return changes


def _verdicts(history: Row, verdicts: Sequence[Row]) -> None:
    st.header("Releases")
    grid(
        "releases",
        "What each release did to this cell, newest first",
        ["Release", "State", "Against the last good one", Column("Boots", right=True), Column("Decode", right=True), "Why"],
        [_release(row) for row in reversed(verdicts)],
    )
    rows_behind("cell-releases", cell_page.verdicts(history["history_id"]))


def _release(row: Row) -> list[Cell]:
    state, verdict = look_of_state(row["state"]), look_of_verdict(row["headline"])
    differs = f"also changed: {', '.join(row['differs'])}" if row["differs"] else ""
    return [
        Cell(row["release"]),
        Cell(f"{state.sign} {str(row['state']).replace('_', ' ')}", kind=state.kind, tip=state.meaning),
        Cell(
            f"{verdict.sign} {(row['headline'] or '').replace('_', ' ')}" if row["headline"] else "–",
            f"after {row['after']}" if row["after"] else "",
            tip=verdict.meaning,
        ),
        Cell(number(row["boots"]), link=links.to("run", run=row["last_run_id"]) if row["last_run_id"] else None),
        Cell(number(row["decode_tok_s"]), percent(row["decode_change"]) if row["decode_change"] is not None else ""),
        Cell(row["reason"], row["suppressed"] or differs),
    ]


def _numbers(history: Row) -> None:
    question = cell_page.numbers(history["history_id"])
    found = source.rows(question)
    if not found:
        return
    st.header("Numbers")
    newest = found[0]["release"]
    own = sorted((row for row in found if row["release"] == newest), key=lambda row: (_severity(row["verdict"]), row["series"]))
    quiet(f"{newest}, worst first; every release is in the rows.", "numbers")
    grid(
        "numbers",
        "Verdicts on every number of the newest release",
        ["Series", "Verdict", Column("Median", right=True), "Range", Column("Change", right=True), "Boots", "Why"],
        [_number(row) for row in own],
    )
    rows_behind("cell-numbers", question)


def _severity(verdict: str) -> int:
    return SEVERITY.get(verdict, len(SEVERITY))


def _number(row: Row) -> list[Cell]:
    look = look_of_verdict(row["verdict"])
    interval = f"{percent(row['interval_low'])} to {percent(row['interval_high'])}" if row["interval_low"] is not None else ""
    return [
        Cell(row["series"]),
        Cell(f"{look.sign} {row['verdict']}", kind=look.kind, tip=look.meaning),
        Cell(measured(row["series"], row["median"])),
        Cell(f"{measured(row['series'], row['low'])} – {measured(row['series'], row['high'])}"),
        Cell(percent(row["effect"]), interval),
        Cell(f"{row['n_candidate']} v {row['n_baseline']}", f"against {row['baseline']}" if row["baseline"] else ""),
        Cell(row["reason"], "; ".join(row["warnings"] or ())),
    ]


def _boots(boots: Sequence[Row]) -> None:
    st.header("Boots")
    shown = list(reversed(boots))[:_SHOWN_BOOTS]
    grid(
        "boots",
        "Boots of this cell, newest first",
        [
            "Boot",
            "Version",
            "Outcome",
            Column("Decode", right=True),
            Column("TTFT", right=True),
            Column("Gate", right=True),
            Column("Memory", right=True),
            "Node",
        ],
        [_boot(boot) for boot in shown],
        dense=True,
    )
    if len(boots) > len(shown):
        quiet(f"The newest {len(shown)} of {len(boots)}; all are in the rows behind the chart.", "boots")


def _boot(boot: Row) -> list[Cell]:
    look = look_of_state(boot["counted_as"])
    gate = "–" if boot["gate_prompts"] is None else f"{boot['gate_matched']}/{boot['gate_prompts']}"
    node = "void" if boot["session_void"] else boot["health"] or "not probed"
    return [
        Cell(
            when(boot["started_at"]),
            boot["purpose"] if boot["purpose"] != "measure" else "",
            link=links.to("run", run=boot["run_id"]),
            tip=boot["run_id"],
        ),
        Cell(boot["engine_version"]),
        Cell(f"{look.sign} {boot['counted_as'] or 'running'}", kind=look.kind, tip=boot["reason"] or look.meaning),
        Cell(number(boot["decode_tok_s"])),
        Cell(seconds(boot["ttft_s"])),
        Cell(gate),
        Cell(gib(boot["memory_used_bytes"])),
        Cell(node, "throttled" if boot["throttled"] else ""),
    ]


def _claims(history: Row) -> None:
    question = cell_page.claims(history["engine"], history["recipe_name"])
    found = source.rows(question)
    if not found:
        return
    st.header("Claims from the field")
    quiet("Numbers of others, measured with other tools. They take no part in any verdict.", "claims")
    grid(
        "claims",
        "Numbers published by others",
        ["Source", "Version", "Backend", "Metric", Column("Value", right=True), "Node", "Note"],
        [
            [
                Cell(row["source"], row["tool"]),
                Cell(row["engine_version"] or "–"),
                Cell(row["backend_name"] or "–"),
                Cell(row["metric"], count(row["concurrency"], "stream") if row["concurrency"] else ""),
                Cell(number(row["value"], 4)),
                Cell(row["node"] or "–", row["claimed_at"] or ""),
                Cell(row["note"] or ""),
            ]
            for row in found
        ],
    )
    rows_behind("cell-claims", question)


if __name__ == "__main__":
    show()
