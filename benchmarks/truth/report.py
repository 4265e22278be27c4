"""The tables of one run, and its result file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.truth.accuracy import Row
from benchmarks.truth.cost import Cost
from benchmarks.truth.scenarios import SCENARIOS

RESULTS = Path(__file__).parent / "results"
_TABLES, _END = "<!-- tables: python -m benchmarks.truth --readme -->", "<!-- end of tables -->"


def accuracy_table(rows: Sequence[Row]) -> str:
    """Every tool in every scenario."""
    lines = [
        "| scenario | tool | true tok/s | said tok/s | worst decode error | worst TTFT error | worst prefill error | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        said = "null" if row.decode_said_tok_s is None else _rate(row.decode_said_tok_s)
        cells = (
            row.scenario,
            row.tool,
            _rate(row.decode_true_tok_s),
            said,
            _percent(row.decode_error),
            _ms(row.ttft_error_s),
            _percent(row.prefill_error),
            f"**{row.verdict}**" if row.verdict == "wrong" else row.verdict,
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdict_table(rows: Sequence[Row]) -> str:
    """How often each tool was right, over the scenarios that all of them were asked for."""
    tools = list(dict.fromkeys(row.tool for row in rows))
    shared = [s for s in dict.fromkeys(row.scenario for row in rows) if {r.tool for r in rows if r.scenario == s} == set(tools)]
    verdicts = ("right", "wrong", "missing", "nothing")
    lines = [
        f"| of {len(shared)} scenarios asked of all | right | wrong | null though knowable | no number at all |",
        "|---|---|---|---|---|",
    ]
    for tool in tools:
        counts = [sum(r.verdict == verdict for r in rows if r.tool == tool and r.scenario in shared) for verdict in verdicts]
        lines.append(f"| {tool} | " + " | ".join(str(count) for count in counts) + " |")
    return "\n".join(lines)


def cost_table(costs: Sequence[Cost]) -> str:
    """What each tool costs (median of its turns and their range) and takes."""
    lines = ["| tool | client CPU s per 1,000 tokens | keeps up to, tok/s | what stopped it |", "|---|---|---|---|"]
    for cost in costs:
        turns = sorted(cost.cpu_s_per_1000)
        per = f"{median(turns):.3f}" + (f" ({turns[0]:.3f} to {turns[-1]:.3f})" if len(turns) > 1 else "") if turns else "unknown"
        none = "not tried" if cost.stopped_by is None else "none of the steps"
        reached = none if cost.keeps_up_tok_s is None else f"{cost.keeps_up_tok_s:,.0f}"
        lag = f"; lag {cost.lag_share:.1%} of ITL" if cost.lag_share is not None else ""
        lines.append(f"| {cost.tool} | {per} | {reached}{lag} | {cost.stopped_by or ''} |")
    return "\n".join(lines)


def profile_table(parts: Sequence[tuple[str, float]]) -> str:
    """Where our client's CPU time goes."""
    lines = ["| part of our client's CPU time, profiled | share |", "|---|---|"]
    return "\n".join([*lines, *(f"| {part} | {share:.0%} |" for part, share in parts)])


def tables(*results: Mapping[str, Any]) -> str:
    """All tables of results that belong together, as Markdown, with what each was measured on. The newest row of a tool counts."""
    newest = {(r["tool"], r["scenario"]): r for result in sorted(results, key=lambda r: str(r["date"])) for r in result["accuracy"]}
    places = {scenario.name: place for place, scenario in enumerate(SCENARIOS)}
    rows = sorted((_from(Row, r) for r in newest.values()), key=lambda row: places[row.scenario])
    parts = ["\n".join(f"- {_made(result)}" for result in results)]
    parts += [_doubt(rows), verdict_table(rows), accuracy_table(rows)] if rows else []
    for result in results:
        parts += [cost_table([_from(Cost, c) for c in result["cost"]])] if result["cost"] else []
        parts += [profile_table([tuple(p) for p in result["profile"]])] if result["profile"] else []
    said = [*dict.fromkeys(sentence for result in results for sentence in result["missing"])]
    said += [f"{r.tool}, {r.scenario}: {r.null_reason}" for r in rows if r.verdict == "nothing"]
    return "\n\n".join([*parts, *(["\n".join(f"- {sentence}" for sentence in said)] if said else [])])


def _made(result: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    words = {True: "with real-time scheduling", False: "as ordinary processes"}
    scheduling = f"truth server {words[result['realtime']]}, clients {words[result['clients_realtime']]}"
    return f"{result['date']}, {result['machine']}; load average {_load(result)}; {scheduling}. {versions}."


def _doubt(rows: Sequence[Row]) -> str:
    doubt, late = max(r.doubt_s for r in rows), max(r.lateness_s for r in rows)
    return f"The truth server's own worst doubt about a TTFT: {_ms(doubt)}; its worst delay of a chunk against the plan: {_ms(late)}."


def result_of(rows: Sequence[Row], costs: Sequence[Cost], parts: Sequence[tuple[str, float]], about: Mapping[str, Any]) -> dict[str, Any]:
    """The result file's content."""
    return {**about, "accuracy": [asdict(row) for row in rows], "cost": [asdict(cost) for cost in costs], "profile": list(parts)}


def write(result: Mapping[str, Any], name: str) -> Path:
    """Keep a result beside this module."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def write_readme() -> None:
    """Put the tables of every kept result into README.md: costs, accuracy as one table, engine cross-checks."""
    readme = Path(__file__).with_name("README.md")
    text = readme.read_text(encoding="utf-8")
    results = [read(path.stem) for path in sorted(RESULTS.glob("*.json"))]
    shown = [tables(result) for result in results if result.get("cost")]
    shown += [tables(*(result for result in results if result.get("accuracy")))]
    shown += [f"{r['date']}, {r['machine']}; {_load_in_words(r)}\n\n{engine_table(r['engines'])}" for r in results if "engines" in r]
    head, rest = text.split(_TABLES)
    readme.write_text("\n\n".join([head + _TABLES, *shown, _END + rest.partition(_END)[2]]), encoding="utf-8")


def engine_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Ours, the engine's and the difference; rows are those of `engines.Compared`."""
    lines = [
        "| engine | workload | requests | tokens: ours / engine's | TTFT mean: ours / engine's | time between tokens: ours / engine's |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        counts = f"{row['tokens']:,} / {'not said' if row['engine_tokens'] is None else format(row['engine_tokens'], ',.0f')}"
        ttft = _pair(row["ttft_mean_s"], row["engine_ttft_mean_s"])
        itl = _pair(row["itl_mean_s"], row["engine_itl_mean_s"])
        lines.append(f"| {row['engine']} | {row['workload']} | {row['requests']} | {counts} | {ttft} | {itl} |")
    return "\n".join(lines)


def _pair(ours: float | None, engine: float | None) -> str:
    if ours is None or engine is None:
        return f"{_ms(ours) or 'null'} / {_ms(engine) or 'not said'}"
    return f"{_ms(ours)} / {_ms(engine)} ({(ours - engine) * 1000:+.2f} ms, {ours / engine - 1:+.1%})"


def _load_in_words(result: Mapping[str, Any]) -> str:
    return f"load average {_load(result)}" if result["load"] else result.get("made", "boots made before, load not recorded")


def _load(result: Mapping[str, Any]) -> str:
    return " to ".join(f"{value:.1f}" for value in result["load"])


def read(name: str) -> dict[str, Any]:
    """A kept result. Raises FileNotFoundError."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return result


def _from(kind: Any, values: Mapping[str, Any]) -> Any:
    return kind(**{f.name: values[f.name] for f in fields(kind)})


def _rate(value: float | None) -> str:
    return "none" if value is None else f"{value:,.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.3%}" if value < 10 else f"x{value + 1:,.0f}"


def _ms(value_s: float | None) -> str:
    return "" if value_s is None else f"{value_s * 1000:.2f} ms"
