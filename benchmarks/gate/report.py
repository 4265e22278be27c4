"""The tracked results: one JSON file per engine and kind of run, and the tables of README.md.

A fault that no judge sees is a row like any other, with the drift it caused, so that what the gate cannot see is in the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gate.judge import JUDGES, NOT_LOADED, Pass
from suites.canaries import zoo

RESULTS = Path(__file__).with_name("results")


def rows(passes: Iterable[Pass]) -> list[dict[str, Any]]:
    """Passes as JSON rows; answers' texts stay out of the repository."""
    found = []
    for one in passes:
        row = asdict(one)
        case = row.pop("case")
        del row["texts"]
        kept = {name: case[name] for name in ("name", "what", "kind", "canary", "weight_format", "fault")}
        row = {**kept, **{k: _rounded(v) for k, v in row.items()}, "caught": one.caught}
        row["reason"] = row["reason"][:400]
        found.append(row)
    return found


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def weights_of(canary: str) -> str:
    """Which weights of a canary ship: the start of their sha256."""
    return zoo.load(canary).sha256[zoo.PACKED_WEIGHTS][:16]


def _other_weights(kept: dict[str, Any]) -> str:
    """A sentence on the canaries whose weights were others than those that ship now; empty if none."""
    asked = {row["canary"] for row in kept.get("faults") or kept.get("runs") or ()}
    before = [name for name, weights in kept.get("weights", {}).items() if name in asked and weights != weights_of(name)]
    return f" Not the weights that ship now, but those before them: {', '.join(before)}." if before else ""


def write(name: str, data: dict[str, Any]) -> Path:
    """Write one results file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path


def fault_table(found: Sequence[dict[str, Any]], peers: dict[str, dict[str, Any]] | None = None) -> str:
    """Markdown: fault, caught by, first token, drift, and what the peers' checks say on the same answers."""
    names = sorted({name for verdicts in (peers or {}).values() for name in verdicts})
    head = ["fault", "canary", "caught", "by (first wrong token)", "answers wrong", "drift rms (tolerated)", *names]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in found:
        seen = [(judge, row["by"][judge]) for judge in JUDGES if judge in row["by"]]
        by = ", ".join(judge if token is None else f"{judge} @{token}" for judge, token in seen)
        drift = "–" if row["drift_rms"] is None else f"{row['drift_rms']:.3f} ({row['drift_rms_tolerated']:.3f})"
        caught = "yes" if row["caught"] else "**no**"
        if row["outcome"] == NOT_LOADED:
            caught, by = "refused by the engine", ""
        verdicts = (peers or {}).get(row["name"], {})
        told = [str(verdicts.get(name, "–")) for name in names]
        cells = [row["what"], f"{row['canary']} {row['weight_format']}", caught, by, f"{row['wrong']}/{row['judged']}", drift, *told]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def clean_table(found: Sequence[dict[str, Any]]) -> str:
    """Markdown: runs and false alarms per canary, format and setting."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in found:
        groups.setdefault((row["canary"], row["weight_format"], row["what"]), []).append(row)
    lines = ["| canary | format | setting | runs | false alarms | drift rms, largest (tolerated) |", "|---|---|---|---|---|---|"]
    for (canary, weight_format, setting), group in groups.items():
        alarms = sum(row["caught"] for row in group)
        drifts = [row["drift_rms"] for row in group if row["drift_rms"] is not None]
        tolerated = next((row["drift_rms_tolerated"] for row in group if row["drift_rms_tolerated"] is not None), None)
        drift = f"{max(drifts):.3f} ({tolerated:.3f})" if drifts and tolerated is not None else "–"
        lines.append(f"| {canary} | {weight_format} | {setting} | {len(group)} | {alarms} | {drift} |")
    return "\n".join(lines)


def diagnosis_table(found: Sequence[dict[str, Any]]) -> str:
    """Markdown: injected fault, the controls that were made, and what was concluded."""
    lines = ["| fault | node | controls | conclusion | use instead |", "|---|---|---|---|---|"]
    for row in found:
        made = ", ".join(f"{c['backend']} {c['version']}: {c['outcome']}" for c in row["controls"]) or "none needed"
        what = f"{row['conclusion']} ({row['detail']})" if row["detail"] else str(row["conclusion"])
        right = what if row["as_expected"] else f"{what}, **not as expected**"
        lines.append(f"| {row['what']} | {row['node']} | {made} | {right} | {' '.join(row['use_instead'])} |")
    return "\n".join(lines)


def write_tables() -> Path:
    """All tables of the tracked results in one file beside them."""
    parts = ["# Results\n\nWritten by `python -m benchmarks.gate tables` from the JSON files beside it."]
    for path in sorted(RESULTS.glob("*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        kind = path.stem.partition("-")[0]
        if kind == "faults":
            table = fault_table(kept["faults"], kept.get("peers"))
        elif kind == "clean":
            table = clean_table(kept["runs"])
        elif kind == "diagnosis":
            table = diagnosis_table(kept["rows"])
        else:
            continue
        parts.append(f"## {path.stem}\n\n{kept['date']}, {kept['machine']}.{_other_weights(kept)}\n\n{table}")
    written = RESULTS / "README.md"
    written.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return written
