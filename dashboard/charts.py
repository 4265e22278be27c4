"""Charts: plain functions from rows to Altair specifications.

Trap: a chart that drops failed boots shows a healthy line over a broken release. Rule: a boot that failed has no number and is drawn all
the same, at the bottom edge under its release. Texts in a chart are texts; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from dashboard.shown import line, when
from dashboard.words import BLUE, FAIL, FALLBACK, FLAKY, GREY, PASS, SKY, STATES, look_of_state, look_of_verdict

alt.data_transformers.disable_max_rows()

Row = Mapping[str, Any]
SELECTION = "boot"
_AXIS_WIDTH = 48
_FOREST_EDGE = 100.0
_HEIGHT = 380
_BOTTOM: Any = alt.value("height")
_WORKING = ("pass", "fallback")
_PLAIN = alt.Axis(format=",.4~g", tickCount=5)
_COLOUR = alt.Color("colour:N", scale=None, legend=None)
_NODE = {"not probed": ("○", GREY), "unknown": ("○", GREY), "ok": ("●", PASS), "suspect": ("▲", FLAKY), "void": ("■", FAIL)}
"""Best first: sign and colour of what was said of the node."""


@dataclass(frozen=True)
class HistoryChart:
    """What the release-axis chart of a cell is made of. `roofline` is in the metric's unit; `changes` maps a release to what changed."""

    metric: str
    title: str
    unit: str
    releases: Sequence[str]
    boots: Sequence[Row]
    levels: Sequence[Row]
    claims: Sequence[Row]
    changes: Mapping[str, str]
    roofline: float | None = None
    scale: float = 1.0


def history(chart: HistoryChart) -> alt.LayerChart | alt.FacetChart:
    """Boots as dots, their median, levels, claims and the roofline; failed boots at the bottom edge; the node's state beneath it."""
    layers = [*_numbers(chart), *_failures(chart), *_node_states(chart)]
    return alt.layer(*layers).properties(height=_HEIGHT)


def _x(chart: HistoryChart) -> alt.X:
    axis = alt.Axis(labelAngle=-40, labelLimit=110, labelPadding=22, title=None, grid=False)
    return alt.X("release:O", scale=alt.Scale(domain=list(chart.releases)), axis=axis)


def _points(chart: HistoryChart) -> pd.DataFrame:
    """One row per boot with a number; boots of one release stand side by side in the order they were made."""
    by_release: dict[str, list[Row]] = {}
    for boot in chart.boots:
        if boot["release"] in chart.releases and boot.get(chart.metric) is not None and boot["counted_as"] in _WORKING:
            by_release.setdefault(boot["release"], []).append(boot)
    rows = [
        {
            "release": release,
            "value": boot[chart.metric] * chart.scale,
            "offset": (index + 0.5) / len(own),
            "outcome": boot["counted_as"],
            "colour": look_of_state(boot["counted_as"]).colour,
            "run_id": boot["run_id"],
            "started": when(boot["started_at"]),
            "node": boot["health"] or "not probed",
        }
        for release, own in by_release.items()
        for index, boot in enumerate(own)
    ]
    return pd.DataFrame(rows, columns=["release", "value", "offset", "outcome", "colour", "run_id", "started", "node"])


def _numbers(chart: HistoryChart) -> list[alt.Chart]:
    passed = _points(chart)
    x = _x(chart)
    title = f"{chart.title} ({chart.unit})"
    # Room below the lowest boot for the failures.
    y = alt.Y(
        "value:Q", title=title, scale=alt.Scale(zero=False, nice=True, padding=30), axis=alt.Axis(minExtent=_AXIS_WIDTH, format=",.4~g")
    )
    layers = _bands(chart, x, y)
    tips = [alt.Tooltip("value:Q", title=title, format=",.4~g"), "started:N", "outcome:N", "node:N", "run_id:N"]
    chosen = alt.selection_point(name=SELECTION, fields=["run_id"], on="click", empty=False)
    dots = (
        alt.Chart(passed)
        .mark_circle(size=75, opacity=0.75, cursor="pointer")
        .encode(x=x, xOffset=alt.XOffset("offset:Q", scale=alt.Scale(domain=[0, 1])), y=y, color=_COLOUR, tooltip=tips)
    )
    layers.append(dots.add_params(chosen))
    medians = passed.groupby("release", as_index=False).agg(value=("value", "median"), boots=("value", "size"))
    tips = [alt.Tooltip("value:Q", title="median", format=",.4~g"), "boots:Q"]
    layers.append(alt.Chart(medians).mark_tick(thickness=3, color=GREY, size=30).encode(x=x, y=y, tooltip=tips))
    claims = _claims(chart)
    if len(claims):
        tips = [alt.Tooltip("value:Q", title="claim", format=",.4~g"), "source:N", "tool:N", "note:N"]
        hollow = alt.Chart(claims).mark_point(shape="diamond", size=90, filled=False, strokeWidth=2, color=FALLBACK)
        layers.append(hollow.encode(x=x, y=y, tooltip=tips))
    if chart.changes:
        changed = pd.DataFrame([{"release": release, "change": line(text, 300)} for release, text in chart.changes.items()])
        rule = alt.Chart(changed).encode(x=x, tooltip=["change:N"])
        layers.append(rule.mark_rule(strokeDash=[4, 3], color=FLAKY, strokeWidth=1.5))
        layers.append(rule.mark_text(text="⚙", color=FLAKY, fontSize=15).encode(y=alt.value(8)))
    if chart.roofline is not None:
        top = pd.DataFrame([{"value": chart.roofline, "text": f"roofline at 273 GB/s: {chart.roofline:.3g} {chart.unit}"}])
        layers.append(alt.Chart(top).mark_rule(color=BLUE, strokeDash=[8, 4]).encode(y=y, tooltip=["text:N"]))
        layers.append(alt.Chart(top).mark_text(align="left", dx=4, dy=-7, color=BLUE).encode(x=alt.value(0), y=y, text="text:N"))
    return layers


def _bands(chart: HistoryChart, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    rows = [
        {
            "release": level["first_release"],
            "last": level["last_release"],
            "value": level["level"] * chart.scale,
            "level": f"{level['level'] * chart.scale:.4g} ± {level['spread'] * 100:.1f} %",
        }
        for level in chart.levels
        if {level["first_release"], level["last_release"]} <= set(chart.releases)
    ]
    if not rows:
        return []
    band = alt.Chart(pd.DataFrame(rows)).mark_rule(strokeWidth=9, opacity=0.2, color=BLUE)
    return [band.encode(x=x, x2="last:O", y=y, tooltip=["level:N"])]


def _claims(chart: HistoryChart) -> pd.DataFrame:
    rows = [
        {
            "release": claim["engine_version"],
            "value": claim["value"] * chart.scale,
            "source": line(claim["source"], 120),
            "tool": line(claim["tool"], 60),
            "note": line(claim["note"] or "", 200),
        }
        for claim in chart.claims
        if claim["metric"] == chart.metric and claim["engine_version"] in chart.releases
    ]
    return pd.DataFrame(rows, columns=["release", "value", "source", "tool", "note"])


def _failures(chart: HistoryChart) -> list[alt.Chart]:
    """One sign per release and outcome, with the number of boots, at the bottom edge."""
    by_release: dict[str, dict[str, list[Row]]] = {}
    for boot in chart.boots:
        if boot["release"] in chart.releases and boot["counted_as"] not in _WORKING:
            by_release.setdefault(boot["release"], {}).setdefault(boot["counted_as"] or "running", []).append(boot)
    rows = [
        {
            "release": release,
            "offset": (index + 0.5) / len(outcomes),
            "outcome": outcome,
            "colour": look_of_state(outcome).colour,
            "text": f"{look_of_state(outcome).sign}{len(own) if len(own) > 1 else ''}",
            "boots": len(own),
            "why": line(own[-1]["reason"] or "", 300),
        }
        for release, outcomes in by_release.items()
        for index, (outcome, own) in enumerate(outcomes.items())
    ]
    if not rows:
        return []
    marks = alt.Chart(pd.DataFrame(rows)).mark_text(fontSize=16, fontWeight="bold", dy=-11)
    offset = alt.XOffset("offset:Q", scale=alt.Scale(domain=[0, 1]))
    tips = ["outcome:N", "boots:Q", "why:N"]
    return [marks.encode(x=_x(chart), xOffset=offset, y=_BOTTOM, text="text:N", color=_COLOUR, tooltip=tips)]


def _node_states(chart: HistoryChart) -> list[alt.Chart]:
    """The worst that was said of the node during the boots of each release, between the axis and its labels."""
    worst: dict[str, str] = {}
    for boot in chart.boots:
        if boot["release"] in chart.releases:
            word = "void" if boot["session_void"] else "suspect" if boot["throttled"] else boot["health"] or "not probed"
            worst[boot["release"]] = max(
                word, worst.get(boot["release"], word), key=lambda known: list(_NODE).index(known) if known in _NODE else 0
            )
    rows = [
        {
            "release": release,
            "node": word,
            "sign": _NODE.get(word, _NODE["not probed"])[0],
            "colour": _NODE.get(word, _NODE["not probed"])[1],
        }
        for release, word in worst.items()
    ]
    if not rows:
        return []
    marks = alt.Chart(pd.DataFrame(rows)).mark_text(fontSize=12, dy=13)
    return [marks.encode(x=_x(chart), y=_BOTTOM, text="sign:N", color=_COLOUR, tooltip=["node:N"])]


def forest(rows: Sequence[Row]) -> alt.LayerChart | alt.FacetChart:
    """Effects with their intervals, one line each, worst first; what lies beyond 100 % is drawn at the edge."""
    frame = pd.DataFrame(
        [
            {
                "name": line(row["name"], 90),
                "effect": _percent(row["effect"]),
                "low": _percent(row["interval_low"]),
                "high": _percent(row["interval_high"]),
                "told": f"{row['effect'] * 100:+.1f} %",
                "verdict": row["verdict"],
                "colour": look_of_verdict(row["verdict"]).colour,
                "n": f"{row['n_candidate']} v {row['n_baseline']} boots",
            }
            for row in rows
        ]
    )
    y = alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=320, labelOverlap=False))
    base = alt.Chart(frame).encode(y=y, color=alt.Color("colour:N", scale=None, legend=None))
    tips = [
        alt.Tooltip("told:N", title="effect"),
        alt.Tooltip("low:Q", format="+.2f"),
        alt.Tooltip("high:Q", format="+.2f"),
        "verdict:N",
        "n:N",
    ]
    edge = max(5.0, *(abs(own) for name in ("effect", "low", "high") for own in frame[name].dropna()))
    zero = alt.Chart(pd.DataFrame({"x": [0]})).mark_rule(color=GREY).encode(x="x:Q")
    lines = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title="change, %", scale=alt.Scale(domain=[-edge, edge])), x2="high:Q", tooltip=tips
    )
    dots = base.mark_point(filled=True, size=80).encode(x="effect:Q", tooltip=tips)
    return alt.layer(zero, lines, dots).properties(height=70 + 26 * len(frame))


def _percent(change: float | None) -> float | None:
    """In percent, drawn at the edge of the chart when it lies beyond."""
    return None if change is None else max(-_FOREST_EDGE, min(_FOREST_EDGE, change * 100))


def over_time(frame: pd.DataFrame, column: str, title: str) -> alt.LayerChart | alt.FacetChart:
    """One telemetry column over the seconds of a boot, with a band for each phase."""
    shown = frame.loc[frame[column].notna(), ["elapsed_s", column, "phase"]].rename(columns={column: "value"})
    phases = frame.groupby("phase", sort=False).agg(start=("elapsed_s", "min"), stop=("elapsed_s", "max")).reset_index()
    bands = (
        alt.Chart(phases)
        .mark_rect(opacity=0.13)
        .encode(
            x=alt.X("start:Q", title="s since the boot began"),
            x2="stop:Q",
            color=alt.Color("phase:N", legend=None, sort=None),
            tooltip=["phase:N"],
        )
    )
    line_ = (
        alt.Chart(shown)
        .mark_line(color=SKY, interpolate="step-after")
        .encode(
            x="elapsed_s:Q",
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=_PLAIN),
            tooltip=[alt.Tooltip("elapsed_s:Q", format=".1f"), alt.Tooltip("value:Q", format=",.4~g", title=title), "phase:N"],
        )
    )
    return alt.layer(bands, line_).properties(height=190, title=alt.TitleParams(title, anchor="start", fontSize=13, fontWeight="normal"))


def by_boot(frame: pd.DataFrame, column: str, title: str) -> Any:
    """One number of each boot over the time it was started."""
    shown = frame.loc[frame[column].notna(), ["started_at", column, "run_id", "outcome"]].rename(columns={column: "value"})
    shown["outcome"] = [word or "running" for word in shown["outcome"]]
    words = list(STATES)
    return (
        alt.Chart(shown)
        .mark_circle(size=60, opacity=0.8)
        .encode(
            x=alt.X(
                "started_at:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(format="%m-%d %H:%M", tickCount=8, labelOverlap=True)
            ),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=_PLAIN),
            color=alt.Color("outcome:N", scale=alt.Scale(domain=words, range=[look_of_state(word).colour for word in words]), legend=None),
            tooltip=[alt.Tooltip("value:Q", format=",.4~g", title=title), "started_at:T", "outcome:N", "run_id:N"],
        )
        .properties(height=190, title=alt.TitleParams(title, anchor="start", fontSize=13, fontWeight="normal"))
    )


def timeline(rows: Sequence[Row]) -> alt.LayerChart | alt.FacetChart:
    """Cells per release that got better (up) and worse (down), oldest release to the left."""
    order = list(dict.fromkeys(row["release"] for row in rows))
    frame = pd.DataFrame(
        [
            {
                "release": row["release"],
                "what": row["headline"].replace("_", " "),
                "cells": row["cells"] if row["headline"] in ("fixed", "faster") else -row["cells"],
                "colour": look_of_verdict(row["headline"]).colour,
                "opacity": 0.45 if row["headline"] in ("still_broken", "faster") else 0.9,
            }
            for row in rows
        ]
    )
    x = alt.X("release:O", sort=order, title=None, scale=alt.Scale(domain=order), axis=alt.Axis(labelAngle=-40))
    bars = (
        alt.Chart(frame)
        .mark_bar(size=26)
        .encode(
            x=x,
            y=alt.Y("cells:Q", title="cells better / worse", axis=alt.Axis(tickMinStep=1, format="d")),
            color=_COLOUR,
            opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
            tooltip=["release:N", "what:N", "cells:Q"],
        )
    )
    zero = alt.Chart(pd.DataFrame({"y": [0]})).mark_rule(color=GREY).encode(y="y:Q")
    return alt.layer(bars, zero).properties(height=220)
