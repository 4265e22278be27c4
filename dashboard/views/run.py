"""Run: one boot, from its command to the token that was wrong."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard import boot_files, charts, links, source
from dashboard.boot_rows import show_more, show_samples
from dashboard.evidence import rows_behind
from dashboard.frame import quiet
from dashboard.gate import show_gate
from dashboard.grid import Cell, Column, grid
from dashboard.sentence import engine_name
from dashboard.shown import block, gib, line, model_name, number, seconds, when
from dashboard.words import look_of_state
from results.boot_folder import checked_run_id
from results.errors import FolderError
from results.queries import run_page
from results.report.issue import issue_markdown, issue_of
from results.report.issue_rows import issue_rows
from results.report.this_machine import this_machine
from results.roofline import roofline_of

Row = Mapping[str, Any]
_TELEMETRY = {
    "memory_used_bytes": "Memory of the node, GiB",
    "gpu_power_w": "GPU power, W",
    "gpu_sm_clock_mhz": "SM clock, MHz",
    "gpu_temperature_c": "GPU temperature, °C",
    "group_cpu_percent": "CPU of the server, %",
}


def show() -> None:
    """The page."""
    st.title("Run")
    asked = str(st.query_params.get("run", ""))
    if not asked:
        _newest()
        return
    try:
        run_id = checked_run_id(asked)
    except FolderError as error:
        st.error("That is no run id.")
        st.text(block(error, 500))
        _newest()
        return
    boot = source.row(run_page.boot(run_id))
    if boot is None:
        st.error("The store holds no boot of that id.")
        st.text(line(run_id))
        _newest()
        return
    _headline(boot)
    _facts(boot)
    _phases(run_id)
    _kernels(boot)
    show_gate(run_id)
    show_samples(run_id)
    show_more(run_id)
    _telemetry(run_id)
    _to_copy(boot)
    _log(boot)
    rows_behind("run", run_page.boot(run_id))


def _newest() -> None:
    question = run_page.newest()
    quiet("The newest boots; a click opens one.", "newest")
    grid(
        "newest",
        "The newest boots",
        ["Boot", "Engine", "Model", "Backend", "Outcome", Column("Decode tok/s", right=True), "Why"],
        [
            [
                Cell(when(row["started_at"]), link=links.to("run", run=row["run_id"]), tip=row["run_id"]),
                Cell(f"{engine_name(row['engine'])} {row['engine_version']}"),
                Cell(model_name(row["recipe_name"])),
                Cell(row["backend_name"]),
                _outcome(row["outcome"]),
                Cell(number(row["decode_tok_s"])),
                Cell(row["reason"] or "", "" if row["purpose"] == "measure" else row["purpose"]),
            ]
            for row in source.rows(question)
        ],
    )
    rows_behind("newest", question)


def _outcome(word: str | None) -> Cell:
    look = look_of_state(word)
    return Cell(f"{look.sign} {(word or 'running').replace('_', ' ')}", kind=look.kind, tip=look.meaning)


def _headline(boot: Row) -> None:
    look = look_of_state(boot["counted_as"])
    word = (boot["outcome"] or f"running, in phase {boot['phase']}").replace("_", " ")
    what = f"{engine_name(boot['engine'])} {boot['engine_version']} · {model_name(boot['recipe_name'])} on {boot['backend_name']}"
    with st.container(key=f"{'good' if look.kind == 'pass' else 'bad'}_headline_run"):
        st.text(line(f"{look.sign} {word}: {what}", 400))
    if boot["reason"]:
        st.text(block(boot["reason"], 2_000))
    said = [f"started {when(boot['started_at'])} UTC on {boot['node_label'] or boot['node_id']}", boot["run_id"]]
    if boot["signature"]:
        said.append(f"signature {boot['signature']}")
    if boot["purpose"] != "measure":
        said.append(f"made as {boot['purpose']}" + (f" of {boot['control_of']}" if boot["control_of"] else ""))
    if boot["session_void"]:
        said.append("its session is void: it counts for nothing")
    quiet(" · ".join(said), "run")
    verdict = source.row(run_page.cell_verdict(boot["run_id"]))
    if verdict and verdict["reason"]:
        quiet(f"Over all {verdict['boots']} boots of {verdict['release']}: {verdict['reason']}", "verdict")
    for index, diagnosis in enumerate(source.rows(run_page.table("diagnoses", boot["run_id"]))[:5]):
        with st.container(key=f"good_diagnosis_{index}"):
            st.text(block(f"Diagnosis: {diagnosis['conclusion']}. {diagnosis['sentence']}", 2_000))
            if diagnosis["use_instead"]:
                st.code(block(" ".join(diagnosis["use_instead"]), 2_000), language=None)
    for warning in (boot["warnings"] or [])[:20]:
        st.text(block(f"⚠ {warning}", 1_000))
    where = {
        "distribution": boot["distribution"],
        "engine": boot["engine"],
        "recipe_name": boot["recipe_name"],
        "backend_name": boot["backend_name"],
        "node_id": boot["node_id"],
    }
    controls = source.rows(run_page.controls(boot["run_id"], boot["control_of"]))
    rows = [
        [
            Cell("The cell it belongs to", link=links.cell_of(where)),
            Cell(f"{boot['recipe_name']} on {boot['backend_name']}"),
            Cell(""),
            Cell(""),
        ]
    ]
    for row in controls:
        rows.append(
            [
                Cell(f"{row['purpose']} boot", link=links.to("run", run=row["run_id"])),
                Cell(f"{engine_name(row['engine'])} {row['engine_version']} on {row['backend_name']}"),
                _outcome(row["outcome"]),
                Cell(row["reason"] or ""),
            ]
        )
    grid("related", "What belongs to this boot", ["Go to", "What", "Outcome", "Why"], rows)


def _facts(boot: Row) -> None:
    st.header("What ran")
    rooflines = source.rows(run_page.table("rooflines", boot["run_id"]))
    facts: list[tuple[str, str]] = [
        ("Engine says", boot["server_version"] or "not asked"),
        (
            "Installed as",
            " ".join(
                filter(None, (boot["distribution"], boot["image_digest"], boot["python_version"] and f"Python {boot['python_version']}"))
            ),
        ),
        ("Model", " ".join(filter(None, (boot["model"], boot["recipe_revision"], boot["quantization"])))),
        (
            "Node",
            " · ".join(
                filter(None, (boot["gpu_name"], boot["compute_capability"], boot["driver_version"] and f"driver {boot['driver_version']}"))
            )
            or "no GPU",
        ),
        ("Context", f"{number(boot['max_model_len'])} tokens allowed, {_verified(boot['verified_context_tokens'])}"),
        ("KV cache", f"{number(boot['kv_cache_tokens'])} tokens, {gib(boot['kv_cache_bytes'])}"),
        (
            "Memory",
            f"{gib(boot['memory_used_bytes'])} taken, {gib(boot['memory_peak_used_bytes'])} at most, {_left(boot['memory_leak_bytes'])}",
        ),
        ("Weights", gib(boot["model_memory_bytes"])),
        ("Roofline", " ".join(roofline_of({**row, "run_id": boot["run_id"]}).sentence for row in rooflines)),
        ("Tokens counted", f"engine {number(boot['engine_token_count'])}, client {number(boot['client_token_count'])}"),
    ]
    grid("facts", "What ran", ["", " "], [[Cell(name), Cell(value or "–")] for name, value in facts])


def _left(leak: int | None) -> str:
    if leak is None:
        return "what was left behind is not known"
    return f"{gib(leak)} left behind" if leak > 0 else "nothing left behind"


def _verified(tokens: int | None) -> str:
    return "recall not tried" if tokens is None else f"{number(tokens)} verified by recall"


def _phases(run_id: str) -> None:
    question = run_page.table("phases", run_id)
    st.header("Phases")
    grid(
        "phases",
        "Phases of this boot",
        ["Phase", "Started (UTC)", Column("Took", right=True), "Ended"],
        [
            [
                Cell(row["phase"]),
                Cell(f"{row['started_at']:%H:%M:%S}"),
                Cell(seconds(row["duration_s"])),
                Cell("completed" if row["completed"] else "✗ not completed", kind="" if row["completed"] else "fail"),
            ]
            for row in source.rows(question)
        ],
        dense=True,
    )
    rows_behind("phases", question)


def _kernels(boot: Row) -> None:
    configured, actual = _mapping(boot["configured"]), _mapping(boot["actual"])
    slots = sorted({*configured, *actual})
    if not slots:
        return
    st.header("Kernels")
    rows = []
    for slot in slots:
        asked, ran = configured.get(slot), actual.get(slot, "unknown")
        said, kind = ("unknown", "notrun") if ran == "unknown" else ("as asked", "pass") if asked == ran else ("", "")
        if asked is not None and said == "" and asked.casefold() not in ran.casefold() and ran.casefold() not in asked.casefold():
            said, kind = "↷ another one ran", "fallback"
        rows.append([Cell(slot), Cell(asked or "not chosen"), Cell(ran), Cell(said, kind=kind)])
    grid("kernels", "Kernels asked for and kernels that ran", ["Kernel", "Configured", "Actual", ""], rows, dense=True)


def _mapping(text: str | None) -> dict[str, str]:
    value = json.loads(text) if text else {}
    return {str(name): str(own) for name, own in value.items()} if isinstance(value, dict) else {}


def _telemetry(run_id: str) -> None:
    question = run_page.table("resources", run_id)
    found = source.rows(question)
    if not found:
        return
    st.header("Telemetry")
    present = [name for name in _TELEMETRY if any(row[name] is not None for row in found)]
    for pair in (present[:2], present[2:4], present[4:]):
        if pair:
            for column, name in zip(st.columns(2), pair, strict=False):
                scale = 1 / 2**30 if name.endswith("_bytes") else 1.0
                chart = charts.over_time(found, name, _TELEMETRY[name], scale)
                column.vega_lite_chart(chart, key=f"telemetry_{name}", alt=_TELEMETRY[name])
    missing = [title for name, title in _TELEMETRY.items() if name not in present]
    if missing:
        quiet(f"Not told by this node: {'; '.join(missing)}.", "telemetry")
    rows_behind("telemetry", question)


def _to_copy(boot: Row) -> None:
    st.header("To copy")
    script = boot_files.read(source.store(), boot["run_id"], boot_files.SERVE_SCRIPT)
    wheels = list(boot["wheels"] if boot["wheels"] is not None else [])
    with st.expander("Serve script", icon=":material/terminal:"):
        if script is None:
            quiet("The boot's folder is not in this store; this is made from its row.", "script")
        st.code(block(script or _command(boot)), language="sh", wrap_lines=True)
    report = st.expander("Bug report", icon=":material/bug_report:", key="bug_report", on_change="rerun")
    if report.open:
        with report:
            quiet("Names, addresses and secrets are left out. Read it all the same before you send it.", "report")
            st.code(block(_bug_report(boot["run_id"]), 70_000), language=None, wrap_lines=True)
    with st.expander(f"Wheel set ({len(wheels)})", icon=":material/inventory_2:"):
        st.code(block("\n".join(wheels)) or "not recorded", language=None, height=320)


def _command(boot: Row) -> str:
    exports = [
        f"export {name}={shlex.quote(value)}" for name, value in sorted(_mapping(boot["environment"]).items()) if name.isidentifier()
    ]
    command = list(boot["command"] if boot["command"] is not None else [])
    return "\n".join(
        [*exports, " \\\n    ".join(shlex.quote(part) for part in command) or "# no command: the boot ended before one was made"]
    )


def _bug_report(run_id: str) -> str:
    rows = issue_rows(source.store(), run_id)
    return "" if rows is None else issue_markdown(issue_of(rows, this_machine()))


def _log(boot: Row) -> None:
    st.header("Server log")
    log = boot_files.read(source.store(), boot["run_id"], boot_files.LOG)
    if log is None:
        quiet("The boot's folder is not in this store; of its log only the decisive lines are kept.", "log")
        st.code(block(boot["log_excerpt"] or "none: the boot did not fail by what its log says"), language=None, wrap_lines=True)
        return
    lines = boot_files.log_lines(log, boot["log_excerpt"])
    decisive = next((own.number for own in lines if own.decisive), None)
    shown = f"lines {lines[0].number} to {lines[-1].number}" if lines else "empty"
    quiet(f"{shown}{f', the decisive ones from {decisive} on marked' if decisive else ''}.", "log")
    grid(
        "log",
        "Server log",
        [Column("#", right=True), "Line"],
        [[Cell(str(own.number)), Cell(own.text, mono=True, kind="fail" if own.decisive else "")] for own in lines],
        frozen=0,
    )


if __name__ == "__main__":
    show()
