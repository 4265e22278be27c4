"""The sentence of the day, from the states that are stored for every release and cell.

Trap: "newest release: fine" of a release that broke the one path its reader uses. Rule: the newest *good* release is the newest one that
passes somewhere and fails nowhere where an earlier release passed; what newer releases broke and fixed is said by name. A cell that never
passed is nobody's regression and is named apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.verdict.words import CellState, Verdict
from results.vocabulary import Outcome

ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp"}
_NAMED = 3
_NOT_FAILING = {Outcome.PASS, Outcome.UNSUPPORTED, CellState.NOT_RUN}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Sentence:
    """What is to be said of one engine. `good` is the newest good release, `newest` the newest with evidence; None: there is none."""

    engine: str
    good: str | None
    newest: str | None
    text: str
    bad_news: bool


def engine_name(engine: str) -> str:
    """The engine as its makers write it."""
    return ENGINES.get(engine, engine)


def sentences(rows: Sequence[Row]) -> list[Sentence]:
    """One sentence per engine that has evidence; `rows` are those of `results.queries.today_page.cells`."""
    by_engine: dict[str, list[Row]] = {}
    for row in rows:
        by_engine.setdefault(row["engine"], []).append(row)
    return [_sentence(engine, own) for engine, own in sorted(by_engine.items()) if any(_has_evidence(row) for row in own)]


def cell_name(row: Row, *, nodes: int = 1) -> str:
    """`model on backend`, with the node where there are several."""
    where = f" ({row['node_label'] or row['node_id']})" if nodes > 1 else ""
    return f"{row['recipe_name']} on {row['backend_name']}{where}"


def _has_evidence(row: Row) -> bool:
    return bool(row["state"] != CellState.NOT_RUN)


def _cell(row: Row) -> tuple[str, str, str, str]:
    return row["distribution"], row["recipe_name"], row["backend_name"], row["node_id"]


def _sentence(engine: str, rows: Sequence[Row]) -> Sentence:
    releases = sorted({(row["position"], row["release"]) for row in rows if _has_evidence(row)}, reverse=True)
    first_pass: dict[tuple[str, ...], int] = {}
    for row in sorted(rows, key=lambda row: row["position"]):
        if row["state"] == Outcome.PASS:
            first_pass.setdefault(_cell(row), row["position"])
    good = next((release for position, release in releases if _is_good(rows, position, first_pass)), None)
    newest = releases[0][1]
    nodes = len({row["node_id"] for row in rows})
    parts = [_opening(engine, rows, good)]
    news = []
    for position, release in releases:
        if release == good:
            break
        news.append(_news(release, [row for row in rows if row["position"] == position], nodes))
    if good == newest:
        news.append(_news(newest, [row for row in rows if row["release"] == newest], nodes))
    parts += [text for text in news[:_NAMED] if text]
    never = [row for row in _latest(rows) if _cell(row) not in first_pass and row["state"] not in _NOT_FAILING]
    if never:
        names = [f"{cell_name(row, nodes=nodes)} ({row['state']})" for row in never]
        parts.append(f"Never passed: {_listed(names)}.")
    bad = good != newest or any(row["headline"] in (Verdict.BROKE, Verdict.SLOWER) for row in rows if row["release"] == newest)
    return Sentence(engine, good, newest, " ".join(parts), bad)


def _is_good(rows: Sequence[Row], position: int, first_pass: Mapping[tuple[str, ...], int]) -> bool:
    own = [row for row in rows if row["position"] == position]
    worse = any(row["state"] not in _NOT_FAILING and first_pass.get(_cell(row), position) < position for row in own)
    return not worse and any(row["state"] == Outcome.PASS for row in own)


def _opening(engine: str, rows: Sequence[Row], good: str | None) -> str:
    if good is None:
        return f"No release of {engine_name(engine)} passes without failing where an earlier one passed."
    passing = [row for row in rows if row["release"] == good and row["state"] == Outcome.PASS]
    count = Counter(row["backend_name"] for row in passing)
    best = min(count, key=lambda name: (-count[name], name))
    models = len({row["recipe_name"] for row in passing})
    only = "" if len(count) < 2 or models < 2 else f" (passes {count[best]} of {models} models)"
    return f"Newest good: {engine_name(engine)} {good} / {best}{only}."


def _news(release: str, rows: Sequence[Row], nodes: int) -> str:
    told = []
    for word, verb in (
        (Verdict.BROKE, "breaks"),
        (Verdict.STILL_BROKEN, "still fails"),
        (Verdict.SLOWER, "slows"),
        (Verdict.CONFOUNDED, "may have changed, with something besides the engine,"),
        (Verdict.GONE, "drops"),
        (Verdict.FIXED, "fixes"),
        (Verdict.FASTER, "speeds up"),
    ):
        own = [_told(row, nodes) for row in rows if row["headline"] == word]
        if own:
            told.append(f"{verb} {_listed(own)}")
    return f"{release} {'; '.join(told)}." if told else ""


def _told(row: Row, nodes: int) -> str:
    name = cell_name(row, nodes=nodes)
    if row["headline"] in (Verdict.BROKE, Verdict.STILL_BROKEN):
        sure = "" if row["confirmed"] else ", not confirmed yet"
        return f"{name}: {row['state']}{sure}"
    if row["headline"] in (Verdict.FASTER, Verdict.SLOWER) and row["decode_change"] is not None:
        return f"{name} ({row['decode_change'] * 100:+.1f} %)"
    return name


def _latest(rows: Iterable[Row]) -> list[Row]:
    """The newest row with evidence of each cell."""
    latest: dict[tuple[str, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row["position"]):
        if _has_evidence(row):
            latest[_cell(row)] = row
    return list(latest.values())


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
