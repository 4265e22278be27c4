"""`sparkproof show RUN`: everything about one boot."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from results.boot_folder import checked_run_id
from results.redact import plain
from results.roofline import rooflines_of
from results.store import Store
from runners.cli.runs import FIRST
from runners.cli.shell import cell, errors_shown, open_store, out, print_json
from runners.errors import UsageError

_PARTS = ("phases", "coherence_results", "samples", "engine_counters", "diagnoses")
COUNTERS = ("generation_tokens", "ttft_mean_s", "itl_mean_s", "spec_acceptance_rate", "spec_accepted_length")
"""Numbers of the engine's own metrics over the timed repeats, in the order shown."""
_HIDDEN = {"command", "environment", "configured", "actual", "log_excerpt", "warnings", "reason", "dropped_request_fields", "in_process"}


def show(
    run: Annotated[str, typer.Argument(help="A run id, as `sparkproof runs` lists them; its last characters are enough if unique.")],
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show one boot: phases, gate, samples, the engine's own counters, kernels, command, and where its log lies.

    Example:  sparkproof show 20261130T130501Z-1f00ab42

    Exit codes: 0 shown, 2 no such run.
    """
    with errors_shown():
        store = open_store()
        detail = _detail(store, full_run_id(store, run))
        if json_:
            print_json(detail)
        else:
            out.print(_render(store, detail))


def full_run_id(store: Store, run: str) -> str:
    """The id of the one boot whose id ends with `run`. Raises UsageError."""
    if not store.database.exists():
        raise UsageError(f"no such run: {run[:64]!r}, there are no results yet.", where=str(store.root), todo=FIRST)
    rows = store.query("SELECT run_id FROM runs WHERE ends_with(run_id, ?) LIMIT 3", [run[:64]])
    if len(rows) != 1 or not run:
        what = "several runs end so" if rows else "no such run"
        raise UsageError(f"{what}: {run[:64]!r}", todo="`sparkproof runs` lists them.")
    return checked_run_id(rows[0]["run_id"])


def _detail(store: Store, run_id: str) -> dict[str, Any]:
    detail = store.query("SELECT * FROM runs WHERE run_id = ?", [run_id])[0]
    for name in ("environment", "configured", "actual"):
        detail[name] = json.loads(detail[name] or "{}")
    for table in _PARTS:
        detail[table] = store.query(f"SELECT * EXCLUDE (run_id) FROM {table} WHERE run_id = ?", [run_id])
    builds = store.query("SELECT * FROM engine_builds WHERE build_id = ?", [detail["build_id"]])
    detail["build"] = builds[0] if builds else None
    detail["rooflines"] = [{**asdict(one), "sentence": one.sentence} for one in rooflines_of(store, [run_id])]
    detail["folder"] = str(store.boots / run_id)
    return detail


def _render(store: Store, detail: dict[str, Any]) -> RenderableType:
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in detail.items():
        if name not in _HIDDEN and name not in (*_PARTS, "build", "rooflines") and value is not None:
            facts.add_row(Text(name, style="dim"), cell(str(value)))
    parts: list[RenderableType] = [facts]
    if detail["reason"]:
        parts.append(Text(f"reason: {plain(detail['reason'], 2000)}", style="red"))
    parts.extend(Text(f"warning: {plain(w, 500)}", style="yellow") for w in detail["warnings"] or ())
    for why in detail["diagnoses"]:
        what = f"{why['conclusion']} ({why['detail']})" if why["detail"] else why["conclusion"]
        parts.append(Text(f"diagnosis: {plain(what, 200)}: {plain(why['sentence'], 1000)}", style="bold"))
    parts.append(_slots(detail))
    parts.append(_plain_table("phases", detail["phases"], ("phase", "duration_s", "completed")))
    broken = [r for r in detail["coherence_results"] if r["verdict"] not in ("match", "tie", "pass_structure")]
    parts.append(Text(f"\ngate: {len(detail['coherence_results'])} answers judged, {len(broken)} not right"))
    if broken:
        parts.append(_plain_table("", broken[:20], ("step", "prompt_name", "judge", "verdict", "first_divergence", "reason", "text")))
    shown = ("workload", "repeat", "stream", "cold", "prompt_tokens", "completion_tokens", "ttft_s", "decode_tok_s", "invalid_reason")
    parts.append(_plain_table("samples", [s for s in detail["samples"] if s["stream"] == 0], shown))
    for one in detail["rooflines"]:
        parts.append(Text(f"roofline, {plain(one['sentence'], 400)}", style="bold red" if one["alarm"] else ""))
    if detail["engine_counters"]:
        parts.append(_plain_table("the engine's own counters", _by_workload(detail["engine_counters"]), ("workload", *COUNTERS)))
    if detail["log_excerpt"]:
        parts.append(Text("\nlog excerpt\n" + plain(detail["log_excerpt"], 6000), style="dim"))
    folder = store.boots / detail["run_id"]
    parts.append(Text(f"\nlog {folder / 'server.log'}\nserve script {folder / 'serve.sh'}", style="dim"))
    return Group(*parts)


def _by_workload(counters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per workload, in the order of the workloads' names; a number that the engine does not give stays empty."""
    rows: dict[str, dict[str, Any]] = {}
    for item in sorted(counters, key=lambda item: str(item["workload"])):
        rows.setdefault(item["workload"], {"workload": item["workload"]})[item["metric"]] = item["value"]
    return list(rows.values())


def _slots(detail: dict[str, Any]) -> Table:
    rows = [
        {"kernel": slot, "configured": detail["configured"].get(slot, "–"), "actual": detail["actual"].get(slot, "unknown")}
        for slot in sorted({*detail["configured"], *detail["actual"]})
    ]
    return _plain_table("kernels", rows, ("kernel", "configured", "actual"))


def _plain_table(title: str, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Table:
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def _cell(value: Any) -> Text:
    if value is None:
        return Text("–")
    if isinstance(value, float):
        return Text(f"{value:.4g}" if value < 1 else f"{value:.2f}")
    return cell(str(value), 200)
