"""The example tables of README.md and docs/findings.md, computed from the sample: `python -m results.sample --tables`.

Trap: a table that was typed once stays in the README while the boots below it change. Rule: what stands between two markers is written by
this module from the sample's own store; a file keeps its words, and a table that it does not mark is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from results.store import Store

_CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENTS = (_CHECKOUT / "README.md", _CHECKOUT / "docs" / "findings.md")
_BEGIN, _END = "<!-- {name}: python -m results.sample --tables -->", "<!-- end of {name} -->"
_MIN_BOOTS = 3
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
_CANARIES = ("dense", "moe", "gpt-oss", "hybrid")

_BOOTS = """
WITH counted AS (
    SELECT *, mode(workload ORDER BY workload) OVER (PARTITION BY history_id, engine_version) AS timed_as
    FROM boots
    WHERE purpose IN ('measure', 'anchor', 'confirm') AND outcome NOT IN ('interrupted', 'infrastructure')
)
SELECT engine, engine_version, any_value(position) AS position, node_label, recipe_name, backend_name,
    count(*) AS boots, count(*) FILTER (outcome = 'pass') AS passed,
    arg_min(gate_matched || '/' || gate_prompts, (gate_matched - gate_prompts, gate_prompts)) AS worst_gate,
    bool_or(launch_bound) AS launch_bound, median(startup_s) AS startup_s, median(gate_s) AS gate_s,
    median(ttft_s) FILTER (workload = timed_as) AS ttft_s, median(decode_tok_s) FILTER (workload = timed_as) AS decode,
    min(decode_tok_s) FILTER (workload = timed_as) AS lowest, max(decode_tok_s) FILTER (workload = timed_as) AS highest
FROM counted
GROUP BY engine, engine_version, node_label, recipe_name, backend_name
HAVING count(*) >= ?
ORDER BY node_label, engine DESC, position, recipe_name, backend_name
"""
_SWEPT = """
SELECT engine, engine_version, position, node_label, recipe_name, outcome
FROM boots
WHERE purpose = 'sweep' AND backend_name = 'eager' AND control_of IS NULL
QUALIFY row_number() OVER (
    PARTITION BY engine, engine_version, node_label, recipe_name ORDER BY outcome IN ('interrupted', 'infrastructure'), started_at DESC
) = 1
ORDER BY node_label, engine DESC, position, recipe_name
"""


def write_tables(store: Store, documents: Iterable[Path] = DOCUMENTS) -> list[str]:
    """Put each table where a document marks it; returns what was written, as `file: table`."""
    tables = {"boots": boots_table(store), "formats": formats_table(store)}
    written = []
    for path in documents:
        text = path.read_text(encoding="utf-8")
        for name, table in tables.items():
            begin, end = _BEGIN.format(name=name), _END.format(name=name)
            if begin in text and end in text:
                head, _, rest = text.partition(begin)
                text = f"{head}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"
                written.append(f"{path.name}: {name}")
        path.write_text(text, encoding="utf-8")
    return written


def boots_table(store: Store) -> str:
    """Cells with at least three ordinary boots: medians over boots; rates of the workload most of them had, with their range."""
    head = ("machine", "release", "model", "backend", "boots", "gate", "decode tok/s", "TTFT ms", "start s", "gate s")
    return _markdown(head, [_boots_row(row) for row in store.query(_BOOTS, [_MIN_BOOTS])])


def _boots_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    passed = f"{row['passed']} pass" if row["passed"] == row["boots"] else f"{row['passed']} of {row['boots']} pass"
    star = "\\*" if row["launch_bound"] else ""
    return (
        row["node_label"],
        _release(row),
        row["recipe_name"],
        row["backend_name"],
        passed,
        row["worst_gate"] or "–",
        f"{_number(row['decode'])}{star} ({_number(row['lowest'])}–{_number(row['highest'])})",
        _number(row["ttft_s"] and row["ttft_s"] * 1000),
        _number(row["startup_s"]),
        _number(row["gate_s"]),
    )


def formats_table(store: Store) -> str:
    """What a sweep found, a canary a column: the formats that pass, then every other outcome but `unsupported` by its name."""
    found: dict[tuple[str, str], dict[str, list[tuple[str, str]]]] = {}
    for row in store.query(_SWEPT):
        canary, weight_format = _canary(row["recipe_name"])
        found.setdefault((row["node_label"], _release(row)), {}).setdefault(canary, []).append((row["outcome"], weight_format))
    rows = [(*key, *(_formats(by_canary.get(canary)) for canary in _CANARIES)) for key, by_canary in found.items()]
    return _markdown(("machine", "release", *_CANARIES), rows)


def _formats(outcomes: Sequence[tuple[str, str]] | None) -> str:
    if outcomes is None:
        return "not run"
    by_outcome: dict[str, list[str]] = {"pass": []}
    for outcome, weight_format in outcomes:
        by_outcome.setdefault(outcome, []).append(weight_format)
    passed = by_outcome.pop("pass")
    others = [f"{outcome}: {', '.join(names)}" for outcome, names in by_outcome.items() if outcome != "unsupported"]
    return "; ".join([", ".join(passed), *others] if passed else others) or "unsupported"


def _canary(recipe: str) -> tuple[str, str]:
    """`canary-gpt-oss-mxfp4` to (`gpt-oss`, `mxfp4`); without a format it is bf16."""
    rest = recipe.removeprefix("canary-")
    name = next((canary for canary in _CANARIES if rest == canary or rest.startswith(f"{canary}-")), rest)
    return name, rest.removeprefix(name).removeprefix("-") or "bf16"


def _release(row: Mapping[str, Any]) -> str:
    return f"{_ENGINES.get(row['engine'], row['engine'])} {row['engine_version']}"


def _number(value: float | None) -> str:
    """Three digits, as many as such a number is worth; a dash for what was not measured."""
    return "–" if value is None else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])
