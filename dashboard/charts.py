"""Charts: plain functions from rows to Vega-Lite specifications.

Trap: a chart that drops failed boots shows a healthy line over a broken release. Rule: a boot that failed has no number and is drawn all
the same, at the bottom edge under its release. Texts in a chart are texts; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd
from altair.utils.schemapi import disable_debug_mode

from dashboard.sentence import engine_name
from dashboard.shown import line, when
from dashboard.words import BLUE, FAIL, FALLBACK, FLAKY, GREY, PASS, SKY, STATES, look_of_state, look_of_verdict

alt.data_transformers.disable_max_rows()
alt.theme.enable("none")
# Each part of each chart is checked against the whole schema otherwise, which takes longer than everything else about it.
disable_debug_mode()

Row = Mapping[str, Any]
Specification = dict[str, Any]
SELECTION = "boot"
_DOTS = "boots"
_AXIS_WIDTH = 48
_FOREST_EDGE = 100.0
_OTHER = "other release"
_TEXT = "#7a7a7a"
"""Read on white and on black alike."""
_HEIGHT = 380
_x_at: Any = alt.XValue
_y_at: Any = alt.YValue
_BOTTOM = _y_at("height")
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


def history(chart: HistoryChart) -> Specification:
    """Boots as dots, their median, levels, claims and the roofline; failed boots at the bottom edge; the node's state beneath it."""
    layers = [*_numbers(chart), *_failures(chart), *_node_states(chart)]
    click = {"name": SELECTION, "select": {"type": "point", "fields": ["run_id"], "on": "click"}, "views": [_DOTS]}
    return _layered(layers, _HEIGHT) | {"params": [click]}


def _x(chart: HistoryChart) -> alt.X:
    axis = alt.Axis(labelAngle=-40, labelLimit=110, labelPadding=22, title=None, grid=False)
    other = [_OTHER] if any(claim["release"] == _OTHER for claim in _claims(chart)) else []
    return alt.X("release:O", scale=alt.Scale(domain=[*chart.releases, *other]), axis=axis)


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
    tips = [
        alt.Tooltip("value:Q", title=title, format=",.4~g"),
        alt.Tooltip("started:N"),
        alt.Tooltip("outcome:N"),
        alt.Tooltip("node:N"),
        alt.Tooltip("run_id:N"),
    ]
    dots = (
        alt.Chart(passed)
        .mark_circle(size=75, opacity=0.75, cursor="pointer")
        .encode(x=x, xOffset=alt.XOffset("offset:Q", scale=alt.Scale(domain=[0, 1])), y=y, color=_COLOUR, tooltip=tips)
    )
    layers.append(dots.properties(name=_DOTS))
    medians = passed.groupby("release", as_index=False).agg(value=("value", "median"), boots=("value", "size"))
    tips = [alt.Tooltip("value:Q", title="median", format=",.4~g"), alt.Tooltip("boots:Q")]
    layers.append(alt.Chart(medians).mark_tick(thickness=3, color=GREY, size=30).encode(x=x, y=y, tooltip=tips))
    claims = pd.DataFrame(_claims(chart))
    if len(claims):
        tips = [
            alt.Tooltip("value:Q", title="claim", format=",.4~g"),
            alt.Tooltip("source:N"),
            alt.Tooltip("version:N"),
            alt.Tooltip("tool:N"),
            alt.Tooltip("note:N"),
        ]
        hollow = alt.Chart(claims).mark_point(shape="diamond", size=90, filled=False, strokeWidth=2, color=FALLBACK)
        layers.append(hollow.encode(x=x, y=y, tooltip=tips))
    if chart.changes:
        changed = pd.DataFrame([{"release": release, "change": line(text, 300)} for release, text in chart.changes.items()])
        rule = alt.Chart(changed).encode(x=x, tooltip=[alt.Tooltip("change:N")])
        layers.append(rule.mark_rule(strokeDash=[4, 3], color=FLAKY, strokeWidth=1.5))
        layers.append(rule.mark_text(text="⚙", color=FLAKY, fontSize=15).encode(y=_y_at(8)))
    if chart.roofline is not None:
        top = pd.DataFrame([{"value": chart.roofline, "text": f"roofline at 273 GB/s: {chart.roofline:.3g} {chart.unit}"}])
        layers.append(alt.Chart(top).mark_rule(color=BLUE, strokeDash=[8, 4]).encode(y=y, tooltip=[alt.Tooltip("text:N")]))
        layers.append(alt.Chart(top).mark_text(align="left", dx=4, dy=-7, color=BLUE).encode(x=_x_at(0), y=y, text=alt.Text("text:N")))
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
    return [band.encode(x=x, x2=alt.X2("last:O"), y=y, tooltip=[alt.Tooltip("level:N")])]


def _claims(chart: HistoryChart) -> list[dict[str, Any]]:
    """One row per claim about this metric; those about a release that is not on the axis, or about none, stand at its end."""
    return [
        {
            "release": claim["engine_version"] if claim["engine_version"] in chart.releases else _OTHER,
            "version": line(claim["engine_version"] or "not said", 60),
            "value": claim["value"] * chart.scale,
            "source": line(claim["source"], 120),
            "tool": line(claim["tool"], 60),
            "note": line(claim["note"] or "", 200),
        }
        for claim in chart.claims
        if claim["metric"] == chart.metric
    ]


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
    tips = [alt.Tooltip("outcome:N"), alt.Tooltip("boots:Q"), alt.Tooltip("why:N")]
    return [marks.encode(x=_x(chart), xOffset=offset, y=_BOTTOM, text=alt.Text("text:N"), color=_COLOUR, tooltip=tips)]


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
    return [marks.encode(x=_x(chart), y=_BOTTOM, text=alt.Tooltip("sign:N"), color=_COLOUR, tooltip=[alt.Tooltip("node:N")])]


def forest(rows: Sequence[Row]) -> Specification:
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
    y = alt.Y("name:N", sort=None, title=None, axis=None)
    base = alt.Chart(frame).encode(y=y, color=alt.Color("colour:N", scale=None, legend=None))
    tips = [
        alt.Tooltip("told:N", title="effect"),
        alt.Tooltip("low:Q", format="+.2f"),
        alt.Tooltip("high:Q", format="+.2f"),
        alt.Tooltip("verdict:N"),
        alt.Tooltip("n:N"),
    ]
    edge = max(5.0, *(abs(own) for name in ("effect", "low", "high") for own in frame[name].dropna()))
    zero = alt.Chart(pd.DataFrame({"x": [0]})).mark_rule(color=GREY).encode(x=alt.X("x:Q"))
    lines = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title="change, %", scale=alt.Scale(domain=[-edge, edge])), x2=alt.X2("high:Q"), tooltip=tips
    )
    dots = base.mark_point(filled=True, size=80).encode(x=alt.X("effect:Q"), tooltip=tips)
    # Above its line, not beside it: a narrow screen has no room for both.
    names = (
        alt.Chart(frame)
        .mark_text(align="left", dy=-13, color=_TEXT, limit=340)
        .encode(y=y, x=_x_at(0), text=alt.Text("name:N"), tooltip=tips)
    )
    return _layered([zero, lines, dots, names], 50 + 38 * len(frame))


def _percent(change: float | None) -> float | None:
    """In percent, drawn at the edge of the chart when it lies beyond."""
    return None if change is None else max(-_FOREST_EDGE, min(_FOREST_EDGE, change * 100))


def over_time(frame: pd.DataFrame, column: str, title: str) -> Specification:
    """One telemetry column over the seconds of a boot, with a band for each phase."""
    shown = frame.loc[frame[column].notna(), ["elapsed_s", column, "phase"]].rename(columns={column: "value"})
    phases = frame.groupby("phase", sort=False).agg(start=("elapsed_s", "min"), stop=("elapsed_s", "max")).reset_index()
    bands = (
        alt.Chart(phases)
        .mark_rect(opacity=0.13)
        .encode(
            x=alt.X("start:Q", title="s since the boot began"),
            x2=alt.X2("stop:Q"),
            color=alt.Color("phase:N", legend=None, sort=None),
            tooltip=[alt.Tooltip("phase:N")],
        )
    )
    line_ = (
        alt.Chart(shown)
        .mark_line(color=SKY, interpolate="step-after")
        .encode(
            x=alt.X("elapsed_s:Q"),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=_PLAIN),
            tooltip=[alt.Tooltip("elapsed_s:Q", format=".1f"), alt.Tooltip("value:Q", format=",.4~g", title=title), alt.Tooltip("phase:N")],
        )
    )
    return _layered([bands, line_], 190) | {"title": _heading(title)}


def by_boot(frame: pd.DataFrame, column: str, title: str) -> Specification:
    """One number of each boot over the time it was started."""
    shown = frame.loc[frame[column].notna(), ["started_at", column, "run_id", "outcome"]].rename(columns={column: "value"})
    shown["outcome"] = [word or "running" for word in shown["outcome"]]
    words = list(STATES)
    dots = (
        alt.Chart(shown)
        .mark_circle(size=60, opacity=0.8)
        .encode(
            x=alt.X(
                "started_at:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(format="%m-%d %H:%M", tickCount=8, labelOverlap=True)
            ),
            y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=_PLAIN),
            color=alt.Color("outcome:N", scale=alt.Scale(domain=words, range=[look_of_state(word).colour for word in words]), legend=None),
            tooltip=[
                alt.Tooltip("value:Q", format=",.4~g", title=title),
                alt.Tooltip("started_at:T"),
                alt.Tooltip("outcome:N"),
                alt.Tooltip("run_id:N"),
            ],
        )
    )
    return _layered([dots], 190) | {"title": _heading(title)}


def timeline(rows: Sequence[Row]) -> Specification:
    """Cells per release that got better (up) and worse (down), oldest release to the left."""
    several = len({row["engine"] for row in rows}) > 1
    names = [line(f"{engine_name(row['engine'])} {row['release']}" if several else row["release"], 60) for row in rows]
    order = list(dict.fromkeys(names))
    frame = pd.DataFrame(
        [
            {
                "release": name,
                "what": row["headline"].replace("_", " "),
                "cells": row["cells"] if row["headline"] in ("fixed", "faster") else -row["cells"],
                "colour": look_of_verdict(row["headline"]).colour,
                "opacity": 0.45 if row["headline"] in ("still_broken", "faster") else 0.9,
            }
            for name, row in zip(names, rows, strict=True)
        ]
    )
    x = alt.X("release:O", sort=order, title=None, scale=alt.Scale(domain=order), axis=alt.Axis(labelAngle=-40))
    bars = (
        alt.Chart(frame)
        .mark_bar(size=min(26, max(3, 640 // max(1, len(order)))))
        .encode(
            x=x,
            y=alt.Y("cells:Q", title="cells better / worse", axis=alt.Axis(tickMinStep=1, format="d")),
            color=_COLOUR,
            opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
            tooltip=[alt.Tooltip("release:N"), alt.Tooltip("what:N"), alt.Tooltip("cells:Q")],
        )
    )
    zero = alt.Chart(pd.DataFrame({"y": [0]})).mark_rule(color=GREY).encode(y=alt.Y("y:Q"))
    return _layered([bars, zero], 220)


def _heading(title: str) -> Specification:
    return {"text": title, "anchor": "start", "fontSize": 13, "fontWeight": "normal"}


def _layered(charts: Sequence[alt.Chart], height: int) -> Specification:
    """One above the other. Altair's own `layer` copies every part and its data several times over."""
    layers = [chart.to_dict(validate=False) for chart in charts]
    datasets = {name: rows for layer in layers for name, rows in layer.pop("datasets", {}).items()}
    return {"layer": [{name: own for name, own in layer.items() if name not in ("$schema", "config")} for layer in layers]} | {
        "datasets": datasets,
        "height": height,
    }
