"""The result of a run as one table for people and one object for programs; both show the same facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from results.redact import plain
from results.store import Store
from results.summary import CellSummary, Spread
from results.verdict.words import Verdict
from results.vocabulary import Outcome
from suites.recipes import all_recipes
from suites.recipes.knowledge import Claim

_STYLES: dict[str, str] = {
    Outcome.PASS: "bold green",
    Outcome.FALLBACK: "bold yellow",
    Outcome.INTERRUPTED: "yellow",
    Outcome.INFRASTRUCTURE: "magenta",
}
_MOST_CLAIMS = 3
_EXCLUDED = {"install", "launch", "ready"}


def as_json(cells: Sequence[CellSummary], store: Store, exit_code: int) -> dict[str, Any]:
    """What `--json` prints: every field of every cell, where logs and scripts lie, and the exit code."""
    return {
        "exit_code": exit_code,
        "store": str(store.root),
        "cells": [
            {
                **asdict(cell),
                "overhead_s": overhead_s(cell),
                "claims": [claim.model_dump() for claim in claims_of(cell)],
                "boots": [
                    {
                        "run_id": run_id,
                        "log": str(store.boots / run_id / "server.log"),
                        "serve_script": str(store.boots / run_id / "serve.sh"),
                    }
                    for run_id in cell.run_ids
                ],
            }
            for cell in cells
        ],
    }


def claims_of(cell: CellSummary) -> tuple[Claim, ...]:
    """What others published for this recipe and engine: shown beside our measurements, never among them."""
    recipe = all_recipes().get(cell.recipe_name)
    return tuple(claim for claim in recipe.claims if claim.engine == cell.engine) if recipe else ()


def drafts_of(cell: CellSummary) -> list[str]:
    """How far speculative decoding carried, per workload, in the engine's own numbers; nothing where nothing was drafted."""
    sentences: list[str] = []
    for workload, found in cell.counters.items():
        length, rate = found.get("spec_accepted_length"), found.get("spec_acceptance_rate")
        parts = [] if length is None else [f"{length:.2f} tokens per step"]
        parts += [] if rate is None else [f"{rate:.0%} of drafts accepted"]
        if parts:
            sentences.append(f"speculative decoding, {workload}: {', '.join(parts)}")
    return sentences


def overhead_s(cell: CellSummary) -> float:
    """Seconds of the last boot outside installing and the engine's own start."""
    return sum(seconds for phase, seconds in cell.phase_s.items() if phase not in _EXCLUDED)


def render(cells: Sequence[CellSummary], store: Store) -> RenderableType:
    """The table, the reasons of everything that did not pass, and where to look further."""
    table = Table(header_style="bold")
    table.add_column("engine · model · backend", overflow="fold")
    table.add_column("outcome", overflow="fold")
    for name in ("gate", "decode tok/s", "8 streams tok/s", "TTFT ms", "context", "memory"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("change", overflow="fold")
    for cell in cells:
        mark = "*" if cell.launch_bound else ""
        table.add_row(
            Text(plain(f"{cell.engine} {cell.engine_version}\n{_model(cell)} · {cell.backend_name}", 120)),
            Text(_outcome(cell), style=_STYLES.get(cell.outcome, "bold red")),
            f"{cell.gate_matched}/{cell.gate_prompts}" if cell.gate_prompts else "–",
            _decode(cell, mark),
            _rate(cell.aggregate_tok_s, mark),
            f"{cell.ttft_s.median * 1000:.0f}" if cell.ttft_s else "–",
            f"{cell.max_model_len:,}" if cell.max_model_len else "–",
            f"{cell.memory_used_bytes / 2**30:.1f} GiB" if cell.memory_used_bytes is not None else "–",
            Text(plain(_change(cell), 100)),
        )
    parts: list[RenderableType] = [table]
    if any(cell.launch_bound and cell.decode_tok_s for cell in cells):
        parts.append(Text("* launch-bound: a tiny model measures launch overhead, not kernels: not comparable with a model.", style="dim"))
    if any(cell.weights == "dummy" for cell in cells):
        parts.append(Text("dummy weights: random numbers in the shape of a model: timed, not judged, never compared with it.", style="dim"))
    parts.extend(_details(cell, store) for cell in cells)
    return Group(*parts)


def print_result(console: Console, cells: Sequence[CellSummary], store: Store) -> None:
    """Print the table to `console`."""
    console.print(render(cells, store))


def _details(cell: CellSummary, store: Store) -> Text:
    text = Text("\n")
    text.append(f"{cell.engine} {plain(cell.engine_version, 40)} · {cell.recipe_name} · {cell.backend_name}\n  ", style="bold")
    if cell.outcome != Outcome.PASS:
        text.append(plain(cell.reason or "no reason recorded", 1000), style="red")
        text.append("\n  ")
    for warning in cell.warnings:
        text.append(f"warning: {plain(warning, 500)}\n  ", style="yellow")
    text.append(f"kernels that ran: {_kernels(cell)}\n  ")
    for sentence in drafts_of(cell):
        text.append(f"{plain(sentence, 300)}\n  ")
    if cell.roofline is not None:
        text.append(f"roofline, {plain(cell.roofline.sentence, 400)}\n  ", style="bold red" if cell.roofline.alarm else "")
    for claim in claims_of(cell)[:_MOST_CLAIMS]:
        rate = f"{claim.tok_s_low:g}" if claim.tok_s_low == claim.tok_s_high else f"{claim.tok_s_low:g}–{claim.tok_s_high:g}"
        text.append(
            f"claimed elsewhere: {rate} tok/s, {claim.engine} {claim.version or '(version not said)'}, {claim.source}\n  ", style="cyan"
        )
    total = sum(cell.phase_s.values())
    split = " · ".join(f"{phase} {seconds:.1f}" for phase, seconds in cell.phase_s.items())
    text.append(f"{total:.0f} s ({split}); outside install and engine start {overhead_s(cell):.1f} s\n", style="dim")
    folder = store.boots / cell.run_ids[-1]
    kept = ((word, folder / name) for word, name in (("log", "server.log"), ("serve script", "serve.sh")))
    text.append("\n".join(f"  {word} {path}" for word, path in kept if path.exists()), style="dim")
    return text


def _outcome(cell: CellSummary) -> str:
    boots = sum(cell.outcomes.values())
    if boots == 1:
        return cell.outcome
    return cell.outcome + " (" + ", ".join(f"{n} {o}" for o, n in sorted(cell.outcomes.items())) + ")"


def _model(cell: CellSummary) -> str:
    return f"{cell.recipe_name} (dummy weights)" if cell.weights == "dummy" else cell.recipe_name


def _decode(cell: CellSummary, mark: str) -> str:
    """The rate, and its share of what the node's memory allows."""
    share = None if cell.roofline is None else cell.roofline.percent
    about = "about " if cell.roofline is not None and cell.roofline.bound == "about" else ""
    return _rate(cell.decode_tok_s, mark) + ("" if share is None else f"\n{about}{share:.0f} % roof")


def _rate(spread: Spread | None, mark: str) -> str:
    if spread is None:
        return "–"
    digits = 0 if spread.median >= 100 else 1
    text = f"{spread.median:.{digits}f}{mark}"
    return text if spread.count == 1 else f"{text}\n{spread.low:.{digits}f}–{spread.high:.{digits}f}"


def _kernels(cell: CellSummary) -> str:
    known = [f"{slot}={name}" for slot, name in sorted(cell.kernels.items()) if name != "unknown"]
    unknown = sorted(slot for slot, name in cell.kernels.items() if name == "unknown")
    return plain(", ".join(known + ([f"unknown: {', '.join(unknown)}"] if unknown else [])), 600) or "unknown"


def _change(cell: CellSummary) -> str:
    previous = cell.previous
    if previous is None:
        return "first version here"
    change = "" if previous.decode_change is None else f"{previous.decode_change:+.1%} vs {previous.last_good}"
    match previous.verdict:
        case None:
            return f"no evidence; {previous.engine_version} was {previous.outcome}"
        case Verdict.UNCHANGED:
            return f"{change or f'as {previous.engine_version}'}, unchanged"
        case Verdict.FASTER | Verdict.SLOWER | Verdict.INCONCLUSIVE:
            return f"{change}, {previous.verdict}" if change else previous.verdict
        case _:
            return f"{previous.verdict}: {previous.engine_version} was {previous.outcome}"
