"""The sentence of the day, from the states that are stored for every release and cell.

Trap: "newest release: fine" of a release that broke the one path its reader uses. Rule: the newest *good* release is the newest one that
passes somewhere and fails nowhere where an earlier release passed; what newer releases broke and fixed is said by name. A cell that never
passed is nobody's regression and is named apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard.shown import model_name
from results.verdict.words import Verdict

ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp"}
_NAMED = 3

Row = Mapping[str, Any]

_VERBS = (
    (Verdict.BROKE, "breaks"),
    (Verdict.STILL_BROKEN, "still fails"),
    (Verdict.SLOWER, "slows"),
    (Verdict.CONFOUNDED, "may have changed, with something besides the engine,"),
    (Verdict.GONE, "drops"),
    (Verdict.FIXED, "fixes"),
    (Verdict.FASTER, "speeds up"),
)
"""Worst first."""


@dataclass(frozen=True)
class Sentence:
    """What is to be said of one engine, and whether a reader should worry."""

    engine: str
    text: str
    bad_news: bool


def engine_name(engine: str) -> str:
    """The engine as its makers write it."""
    return ENGINES.get(engine, engine)


def cell_name(row: Row, *, nodes: int = 1) -> str:
    """`model on backend`, with the node where there are several."""
    where = f" ({row['node_label'] or row['node_id']})" if nodes > 1 else ""
    return f"{model_name(row['recipe_name'])} on {row['backend_name']}{where}"


def sentences(goods: Sequence[Row], news: Sequence[Row]) -> list[Sentence]:
    """One sentence per engine; the rows are those of `good_releases` and `news` of `results.queries.today_page`."""
    return [_sentence(good, [row for row in news if row["engine"] == good["engine"]]) for good in goods]


def _sentence(good: Row, news: Sequence[Row]) -> Sentence:
    releases = list(dict.fromkeys(row["release"] for row in news if not row["never"]))
    if good["good"] is None:
        releases = [release for release in releases if release == good["newest"]]
    elif good["good"] != good["newest"]:
        releases = [release for release in releases if release != good["good"]]
    # The newest release, and the first one after the good one, which says why none since is good.
    chosen = dict.fromkeys([*releases[:1], *releases[-1:]])
    told = [_told_of(release, [row for row in news if row["release"] == release], good["nodes"]) for release in chosen]
    never = [f"{cell_name(row, nodes=good['nodes'])} ({row['state']})" for row in news if row["never"]]
    parts = [_opening(good), *filter(None, told), *([f"Never passed: {_listed(never)}."] if never else [])]
    slower = any(row["headline"] == Verdict.SLOWER for row in news if row["release"] == good["newest"])
    return Sentence(good["engine"], " ".join(parts), good["good"] != good["newest"] or slower)


def _opening(good: Row) -> str:
    name = engine_name(good["engine"])
    if good["good"] is None:
        some = f"{good['newest']} passes {good['passing']} of {good['cells']} cells."
        return f"No release of {name} passes everywhere an earlier one passed; {some}"
    only = f" (passes {good['models']} of {good['good_models']} models)" if good["good_backends"] > 1 and good["good_models"] > 1 else ""
    return f"Newest good: {name} {good['good']} / {good['backend_name']}{only}."


def _told_of(release: str, rows: Sequence[Row], nodes: int) -> str:
    told = []
    for word, verb in _VERBS:
        names = [_name(row, nodes) for row in rows if row["headline"] == word and not row["never"]]
        if word == Verdict.STILL_BROKEN and len(names) > 1:
            told.append(f"{verb} {len(names)} cells")
        elif names:
            told.append(f"{verb} {_listed(names)}")
    return f"{release} {'; '.join(told)}." if told else ""


def _name(row: Row, nodes: int) -> str:
    name = cell_name(row, nodes=nodes)
    if row["headline"] in (Verdict.BROKE, Verdict.STILL_BROKEN):
        return f"{name}: {row['state']}{'' if row['confirmed'] else ', not confirmed yet'}"
    if row["headline"] in (Verdict.FASTER, Verdict.SLOWER) and row["decode_change"] is not None:
        return f"{name} ({row['decode_change'] * 100:+.1f} %)"
    return name


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
