"""Charts: plain functions from rows to Vega-Lite specifications.

Trap: a chart that drops failed boots shows a healthy line over a broken release. Rule: a boot that failed has no number and is drawn all
the same, at the bottom edge under its release. Texts in a chart are texts; nothing is fetched. The specifications are written here as they
are sent, because a library that builds them takes longer than the question to the store; their rows go beside them as Arrow.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dashboard.sentence import engine_name
from dashboard.shown import line, when
from dashboard.words import BLUE, FAIL, FALLBACK, FLAKY, GREY, PASS, SKY, look_of_state, look_of_verdict
from results.levels import Level

Row = Mapping[str, Any]
Specification = dict[str, Any]
SELECTION = "boot"
_DOTS = "boots"
_AXIS_WIDTH = 48
_FOREST_EDGE = 100.0
_OTHER = "other release"
_TEXT = "#7a7a7a"
"""Read on white and on black alike."""
_HEIGHT, _HEIGHT_WITHOUT_NUMBERS = 380, 120
_BOTTOM = {"value": "height"}
_WITH_NUMBERS = ("points", "claims", "roofline", "levels")
WORKING = ("pass", "fallback")
_PLAIN = {"format": ",.4~g", "tickCount": 5}
_COLOUR = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
_OFFSET = {"field": "offset", "type": "quantitative", "scale": {"domain": [0, 1]}}
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
    levels: Sequence[Level]
    claims: Sequence[Row]
    changes: Mapping[str, str]
    roofline: float | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class _Layer:
    """A layer with the rows it draws; `name` is what its rows are called."""

    name: str
    rows: Sequence[Row]
    mark: Specification
    encoding: Specification
    view: str = ""


def _number(field: str, **more: Any) -> Specification:
    return {"field": field, "type": "quantitative", **more}


def _word(field: str, **more: Any) -> Specification:
    return {"field": field, "type": "nominal", **more}


def history(chart: HistoryChart) -> Specification:
    """Boots as dots, their median, levels, claims and the roofline; failed boots at the bottom edge; the node's state beneath it."""
    layers = [*_numbers(chart), *_failures(chart), *_node_states(chart)]
    click = {"name": SELECTION, "select": {"type": "point", "fields": ["run_id"], "on": "click"}, "views": [_DOTS]}
    height = _HEIGHT if any(layer.name in _WITH_NUMBERS and layer.rows for layer in layers) else _HEIGHT_WITHOUT_NUMBERS
    return _layered(layers, height) | {"params": [click]}


def _x(chart: HistoryChart) -> Specification:
    other = [_OTHER] if any(claim["release"] == _OTHER for claim in _claims(chart)) else []
    axis = {"labelAngle": -40, "labelLimit": 110, "labelPadding": 22, "title": None, "grid": False}
    return {"field": "release", "type": "ordinal", "scale": {"domain": [*chart.releases, *other]}, "axis": axis}


def _points(chart: HistoryChart) -> dict[str, list[Row]]:
    """By release one row per boot with a number; boots of one release stand side by side in the order they were made."""
    by_release: dict[str, list[Row]] = {}
    on_axis = set(chart.releases)
    for boot in chart.boots:
        if boot["release"] in on_axis and boot.get(chart.metric) is not None and boot["counted_as"] in WORKING:
            by_release.setdefault(boot["release"], []).append(boot)
    return {
        release: [
            {
                "release": release,
                "value": float(boot[chart.metric] * chart.scale),
                "offset": (index + 0.5) / len(own),
                "outcome": boot["counted_as"],
                "colour": look_of_state(boot["counted_as"]).colour,
                "run_id": boot["run_id"],
                "started": when(boot["started_at"]),
                "node": boot["health"] or "not probed",
            }
            for index, boot in enumerate(own)
        ]
        for release, own in by_release.items()
    }


def _numbers(chart: HistoryChart) -> list[_Layer]:
    passed = _points(chart)
    x = _x(chart)
    title = f"{chart.title} ({chart.unit})"
    # Room below the lowest boot for the failures, where no number is: nothing shown here can be below zero.
    scale = {"zero": False, "nice": True, "padding": 30}
    axis = {"minExtent": _AXIS_WIDTH, "format": ",.4~g", "labelExpr": "datum.value < 0 ? '' : datum.label"}
    some = passed or _claims(chart) or chart.levels or chart.roofline is not None
    y = _number("value", title=title, scale=scale, axis=axis if some else None)
    layers = _bands(chart, x, y)
    told = _number("value", title=title, format=",.4~g")
    dots = {
        "x": x,
        "xOffset": _OFFSET,
        "y": y,
        "color": _COLOUR,
        "tooltip": [told, _word("started"), _word("outcome"), _word("node"), _word("run_id")],
    }
    mark = {"type": "circle", "size": 75, "opacity": 0.75, "cursor": "pointer"}
    layers.append(_Layer("points", [row for own in passed.values() for row in own], mark, dots, view=_DOTS))
    medians = [
        {"release": release, "value": statistics.median(row["value"] for row in own), "boots": len(own)} for release, own in passed.items()
    ]
    tips = [_number("value", title="median", format=",.4~g"), _number("boots")]
    tick = {"type": "tick", "thickness": 3, "color": GREY, "size": 30}
    layers.append(_Layer("medians", medians, tick, {"x": x, "y": y, "tooltip": tips}))
    hollow = {"type": "point", "shape": "diamond", "size": 90, "filled": False, "strokeWidth": 2, "color": FALLBACK}
    tips = [_number("value", title="claim", format=",.4~g"), _word("source"), _word("version"), _word("tool"), _word("note")]
    layers.append(_Layer("claims", _claims(chart), hollow, {"x": x, "y": y, "tooltip": tips}))
    changed = [{"release": release, "change": line(text, 300)} for release, text in chart.changes.items()]
    rule = {"x": x, "tooltip": [_word("change")]}
    layers.append(_Layer("changes", changed, {"type": "rule", "strokeDash": [4, 3], "color": FLAKY, "strokeWidth": 1.5}, rule))
    layers.append(_Layer("changes", changed, {"type": "text", "text": "⚙", "color": FLAKY, "fontSize": 15}, rule | {"y": {"value": 8}}))
    if chart.roofline is not None:
        top = [{"value": chart.roofline, "text": f"roofline at 273 GB/s: {chart.roofline:.3g} {chart.unit}"}]
        layers.append(_Layer("roofline", top, {"type": "rule", "color": BLUE, "strokeDash": [8, 4]}, {"y": y, "tooltip": [_word("text")]}))
        words = {"type": "text", "align": "left", "dx": 4, "dy": -7, "color": BLUE}
        layers.append(_Layer("roofline", top, words, {"x": {"value": 0}, "y": y, "text": _word("text")}))
    return layers


def _bands(chart: HistoryChart, x: Specification, y: Specification) -> list[_Layer]:
    on_axis = set(chart.releases)
    rows = [
        {
            "release": found.releases[0],
            "last": found.releases[-1],
            "value": found.level * chart.scale,
            "level": f"{found.level * chart.scale:.4g} ± {found.spread * 100:.1f} %",
        }
        for found in chart.levels
        if on_axis.issuperset(found.releases)
    ]
    band = {"type": "rule", "strokeWidth": 9, "opacity": 0.2, "color": BLUE}
    return [_Layer("levels", rows, band, {"x": x, "x2": {"field": "last"}, "y": y, "tooltip": [_word("level")]})]


def _claims(chart: HistoryChart) -> list[Row]:
    """One row per claim about this metric; those about a release that is not on the axis, or about none, stand at its end."""
    return [
        {
            "release": claim["engine_version"] if claim["engine_version"] in chart.releases else _OTHER,
            "version": line(claim["engine_version"] or "not said", 60),
            "value": float(claim["value"] * chart.scale),
            "source": line(claim["source"], 120),
            "tool": line(claim["tool"], 60),
            "note": line(claim["note"] or "", 200),
        }
        for claim in chart.claims
        if claim["metric"] == chart.metric
    ]


def _failures(chart: HistoryChart) -> list[_Layer]:
    """One sign per release and outcome, with the number of boots, at the bottom edge."""
    by_release: dict[str, dict[str, list[Row]]] = {}
    on_axis = set(chart.releases)
    for boot in chart.boots:
        if boot["release"] in on_axis and boot["counted_as"] not in WORKING:
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
    sign = {"type": "text", "fontSize": 16, "fontWeight": "bold", "dy": -11}
    encoding = {
        "x": _x(chart),
        "xOffset": _OFFSET,
        "y": _BOTTOM,
        "text": _word("text"),
        "color": _COLOUR,
        "tooltip": [_word("outcome"), _number("boots"), _word("why")],
    }
    return [_Layer("failures", rows, sign, encoding)]


def _node_states(chart: HistoryChart) -> list[_Layer]:
    """The worst that was said of the node during the boots of each release, between the axis and its labels."""
    ranks = {word: rank for rank, word in enumerate(_NODE)}
    on_axis = set(chart.releases)
    worst: dict[str, str] = {}
    for boot in chart.boots:
        if boot["release"] in on_axis:
            word = "void" if boot["session_void"] else "suspect" if boot["throttled"] else boot["health"] or "not probed"
            worst[boot["release"]] = max(word, worst.get(boot["release"], word), key=lambda known: ranks.get(known, 0))
    rows = []
    for release, word in worst.items():
        sign, colour = _NODE.get(word, _NODE["not probed"])
        rows.append({"release": release, "node": word, "sign": sign, "colour": colour})
    encoding = {"x": _x(chart), "y": _BOTTOM, "text": _word("sign"), "color": _COLOUR, "tooltip": [_word("node")]}
    return [_Layer("nodes", rows, {"type": "text", "fontSize": 12, "dy": 13}, encoding)]


def forest(rows: Sequence[Row]) -> Specification:
    """Effects with their intervals, one line each, worst first; what lies beyond 100 % is drawn at the edge."""
    shown = [
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
    edge = max(5.0, *(abs(row[name]) for row in shown for name in ("effect", "low", "high") if row[name] is not None))
    y = {"field": "name", "type": "nominal", "sort": None, "title": None, "axis": None}
    tips = [
        _word("told", title="effect"),
        _number("low", format="+.2f"),
        _number("high", format="+.2f"),
        _word("verdict"),
        _word("n"),
    ]
    low = _number("low", title="change, %", scale={"domain": [-edge, edge]})
    # Above its line, not beside it: a narrow screen has no room for both.
    name = {"type": "text", "align": "left", "dy": -13, "color": _TEXT, "limit": 340}
    layers = [
        _Layer("zero", [{"x": 0}], {"type": "rule", "color": GREY}, {"x": _number("x")}),
        _Layer(
            "effects",
            shown,
            {"type": "rule", "strokeWidth": 2},
            {"y": y, "color": _COLOUR, "x": low, "x2": {"field": "high"}, "tooltip": tips},
        ),
        _Layer(
            "effects",
            shown,
            {"type": "point", "filled": True, "size": 80},
            {"y": y, "color": _COLOUR, "x": _number("effect"), "tooltip": tips},
        ),
        _Layer("effects", shown, name, {"y": y, "x": {"value": 0}, "text": _word("name"), "tooltip": tips}),
    ]
    return _layered(layers, 50 + 38 * len(shown))


def _percent(change: float | None) -> float | None:
    """In percent, drawn at the edge of the chart when it lies beyond."""
    return None if change is None else max(-_FOREST_EDGE, min(_FOREST_EDGE, change * 100))


def over_time(rows: Sequence[Row], column: str, title: str, scale: float = 1.0) -> Specification:
    """One telemetry column over the seconds of a boot, with a band for each phase."""
    shown = [
        {"elapsed_s": row["elapsed_s"], "value": row[column] * scale, "phase": row["phase"]} for row in rows if row[column] is not None
    ]
    spans: dict[str, list[float]] = {}
    for row in rows:
        spans.setdefault(row["phase"], []).append(row["elapsed_s"])
    phases = [{"phase": phase, "start": min(own), "stop": max(own)} for phase, own in spans.items()]
    bands = {
        "x": _number("start", title="s since the boot began"),
        "x2": {"field": "stop"},
        "color": _word("phase", legend=None, sort=None),
        "tooltip": [_word("phase")],
    }
    steps = {
        "x": _number("elapsed_s"),
        "y": _number("value", title=None, scale={"zero": False}, axis=_PLAIN),
        "tooltip": [_number("elapsed_s", format=".1f"), _number("value", format=",.4~g", title=title), _word("phase")],
    }
    layers = [
        _Layer("phases", phases, {"type": "rect", "opacity": 0.13}, bands),
        _Layer("telemetry", shown, {"type": "line", "color": SKY, "interpolate": "step-after"}, steps),
    ]
    return _layered(layers, 190) | {"title": _heading(title)}


def by_boot(rows: Sequence[Row], column: str, title: str, scale: float = 1.0) -> Specification:
    """One number of each boot over the time it was started. A row has `started_at`, `run_id` and `outcome`."""
    shown = [
        {
            "started": row["started_at"].timestamp() * 1000,
            "value": float(row[column] * scale),
            "outcome": row["outcome"] or "running",
            "colour": look_of_state(row["outcome"]).colour,
            "run_id": row["run_id"],
        }
        for row in rows
        if row[column] is not None
    ]
    axis = {"format": "%m-%d %H:%M", "tickCount": 8, "labelOverlap": True}
    encoding = {
        "x": {"field": "started", "type": "temporal", "title": None, "scale": {"type": "utc"}, "axis": axis},
        "y": _number("value", title=None, scale={"zero": False}, axis=_PLAIN),
        "color": _COLOUR,
        "tooltip": [
            _number("value", format=",.4~g", title=title),
            {"field": "started", "type": "temporal"},
            _word("outcome"),
            _word("run_id"),
        ],
    }
    return _layered([_Layer("boots", shown, {"type": "circle", "size": 60, "opacity": 0.8}, encoding)], 190) | {"title": _heading(title)}


def timeline(rows: Sequence[Row]) -> Specification:
    """Cells per release that got better (up) and worse (down), oldest release to the left."""
    several = len({row["engine"] for row in rows}) > 1
    names = [line(f"{engine_name(row['engine'])} {row['release']}" if several else row["release"], 60) for row in rows]
    order = list(dict.fromkeys(names))
    shown = [
        {
            "release": name,
            "what": row["headline"].replace("_", " "),
            "cells": row["cells"] if row["headline"] in ("fixed", "faster") else -row["cells"],
            "colour": look_of_verdict(row["headline"]).colour,
            "opacity": 0.45 if row["headline"] in ("still_broken", "faster") else 0.9,
        }
        for name, row in zip(names, rows, strict=True)
    ]
    bars = {
        "x": {"field": "release", "type": "ordinal", "sort": order, "title": None, "scale": {"domain": order}, "axis": {"labelAngle": -40}},
        "y": _number("cells", title="cells better / worse", axis={"tickMinStep": 1, "format": "d"}),
        "color": _COLOUR,
        "opacity": _number("opacity", scale=None, legend=None),
        "tooltip": [_word("release"), _word("what"), _number("cells")],
    }
    layers = [
        _Layer("cells", shown, {"type": "bar", "size": min(26, max(3, 640 // max(1, len(order))))}, bars),
        _Layer("zero", [{"y": 0}], {"type": "rule", "color": GREY}, {"y": _number("y")}),
    ]
    return _layered(layers, 220)


def _heading(title: str) -> Specification:
    return {"text": title, "anchor": "start", "fontSize": 13, "fontWeight": "normal"}


def _layered(layers: Sequence[_Layer], height: int) -> Specification:
    """One above the other; a layer without rows is left out unless a selection names it."""
    drawn = [layer for layer in layers if layer.rows or layer.view]
    return {
        "layer": [
            {"data": {"name": layer.name}, "mark": layer.mark, "encoding": layer.encoding} | ({"name": layer.view} if layer.view else {})
            for layer in drawn
        ],
        "datasets": {layer.name: _arrow(layer.rows) for layer in drawn},
        "height": height,
    }


def _arrow(rows: Sequence[Row]) -> bytes:
    table = pa.Table.from_pylist([dict(row) for row in rows], None if rows else pa.schema([("value", pa.float64())]))
    # A column of which nothing is known is a number that was not measured.
    table = table.cast(pa.schema([field.with_type(pa.float64()) if pa.types.is_null(field.type) else field for field in table.schema]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
