"""Run: one boot, from its command to the token that was wrong."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import boot_files, charts, links, source
from dashboard.evidence import rows_behind
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.sentence import engine_name
from dashboard.shown import block, gib, line, number, seconds, when
from dashboard.words import look_of_state
from results.boot_folder import checked_run_id
from results.errors import FolderError
from results.queries import run_page
from results.report.issue import issue_markdown, issue_of
from results.report.issue_rows import issue_rows
from results.report.this_machine import this_machine

Row = Mapping[str, Any]
_RIGHT = ("match", "tie", "pass_structure")
_SHOWN_ANSWERS = 200
_SHOWN_SAMPLES = 200
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
    _gate(run_id)
    _samples(run_id)
    _more(run_id)
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
                Cell(row["recipe_name"]),
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
    what = f"{engine_name(boot['engine'])} {boot['engine_version']} · {boot['recipe_name']} on {boot['backend_name']}"
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
    controls = source.rows(run_page.controls(boot["run_id"]))
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
        ("Context", f"{number(boot['max_model_len'])} tokens allowed, {number(boot['verified_context_tokens'])} verified"),
        ("KV cache", f"{number(boot['kv_cache_tokens'])} tokens, {gib(boot['kv_cache_bytes'])}"),
        (
            "Memory",
            f"{gib(boot['memory_used_bytes'])} taken, {gib(boot['memory_peak_used_bytes'])} at most,"
            f" {gib(boot['memory_leak_bytes'])} left behind",
        ),
        ("Weights", gib(boot["model_memory_bytes"])),
        ("Tokens counted", f"engine {number(boot['engine_token_count'])}, client {number(boot['client_token_count'])}"),
    ]
    grid("facts", "What ran", ["", " "], [[Cell(name), Cell(value or "–")] for name, value in facts])


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


def _gate(run_id: str) -> None:
    question = run_page.table("coherence_results", run_id)
    found = source.rows(question)
    st.header("Coherence gate")
    if not found:
        quiet("No answer was judged: the boot ended before its gate.", "gate")
        return
    wrong = [row for row in found if row["verdict"] not in _RIGHT]
    steps = {row["step"]: 0 for row in found}
    for row in found:
        steps[row["step"]] += 1
    told = ", ".join(f"{step} {count}" for step, count in steps.items())
    quiet(f"{len(found) - len(wrong)} of {len(found)} answers right ({told}). Wrong ones first; a click shows the answer.", "gate")
    ordered = [*wrong, *(row for row in found if row["verdict"] in _RIGHT)][:_SHOWN_ANSWERS]
    grid(
        "answers",
        "Judged answers, wrong ones first",
        ["Prompt", "Step", "Verdict", Column("First wrong token", right=True), Column("Least margin", right=True), "Why"],
        [_answer(run_id, row) for row in ordered],
    )
    chosen = str(st.query_params.get("prompt", ""))
    picked = next((row for row in found if _answer_key(row) == chosen), ordered[0])
    _side_by_side(run_id, picked)
    rows_behind("gate", question)


def _answer_key(row: Row) -> str:
    return f"{row['step']}/{row['prompt_name']}"


def _answer(run_id: str, row: Row) -> list[Cell]:
    right = row["verdict"] in _RIGHT
    margin = "" if row["min_margin_position"] is None else f"at token {row['min_margin_position']}"
    return [
        Cell(row["prompt_name"], link=links.to("run", run=run_id, prompt=_answer_key(row))),
        Cell(row["step"], row["judge"]),
        Cell(f"{'✓' if right else '✗'} {row['verdict'].replace('_', ' ')}", kind="pass" if right else "fail"),
        Cell(number(row["first_divergence"])),
        Cell(number(row["min_margin"]), margin),
        Cell(row["reason"]),
    ]


def _side_by_side(run_id: str, row: Row) -> None:
    """The answer beside the one it should have been, marked from the first character and the first token that differ."""
    good = [
        other
        for other in source.rows(run_page.good_answers(run_id))
        if other["prompt_name"] == row["prompt_name"]
        and other["by_ids"] == (row["carried_by"] == "output_ids")
        and (other["expected_ids"] or []) == (row["expected_ids"] or [])
    ]
    right = row["verdict"] in _RIGHT
    expected = row["text"] if right and row["judge"] == "golden" else good[0]["text"] if good else None
    got, want = block(row["text"], 12_000), None if expected is None else block(expected, 12_000)
    exact = row["judge"] == "golden" or bool(row["expected_ids"])
    mark = None if right or want is None or not exact else _first_difference(got, want)
    rows = []
    heading = "Expected" if exact else "What a boot that passed said"
    shown = want if want is not None else "not known: no boot has answered this prompt rightly yet"
    rows.append([Cell("Text"), Cell(got or "(empty)", mono=True, mark_from=mark), Cell(shown, mono=True, mark_from=mark)])
    if row["expected_ids"]:
        at = None if right else row["first_divergence"]
        rows.append([Cell("Token ids"), _ids(row["token_ids"] or [], at), _ids(row["expected_ids"], at)])
    quiet(f"{row['step']} · {row['prompt_name']}: {row['reason']}", "answer")
    grid("side_by_side", "The answer beside the expected one", ["", "Answer", heading], rows)


def _ids(ids: Sequence[int], divergence: int | None) -> Cell:
    mark = None if divergence is None else len(" ".join(map(str, ids[:divergence]))) + (1 if divergence else 0)
    return Cell(" ".join(map(str, ids)), mono=True, mark_from=mark)


def _first_difference(got: str, want: str) -> int:
    return next((index for index, (one, other) in enumerate(zip(got, want, strict=False)) if one != other), min(len(got), len(want)))


def _samples(run_id: str) -> None:
    question = run_page.table("samples", run_id)
    found = source.rows(question)
    if not found:
        return
    st.header("Samples")
    first = [row for row in found if row["stream"] == 0]
    grid(
        "samples",
        "Timed requests, the first stream of each batch",
        [
            "Workload",
            Column("Repeat", right=True),
            Column("Streams", right=True),
            Column("Tokens", right=True),
            Column("TTFT", right=True),
            Column("Decode tok/s", right=True),
            Column("ITL p50 / p99", right=True),
            Column("All streams tok/s", right=True),
            "Counts",
        ],
        [_sample(row) for row in first[:_SHOWN_SAMPLES]],
        dense=True,
    )
    rows_behind("samples", question)


def _sample(row: Row) -> list[Cell]:
    counts = "✓" if row["valid"] and not row["cold"] else "warm-up" if row["valid"] else "✗ invalid"
    return [
        Cell(row["workload"]),
        Cell(number(row["repeat"])),
        Cell(number(row["concurrency"])),
        Cell(f"{number(row['prompt_tokens'])} → {number(row['completion_tokens'])}"),
        Cell(seconds(row["ttft_s"])),
        Cell(number(row["decode_tok_s"])),
        Cell(f"{seconds(row['itl_p50_s'])} / {seconds(row['itl_p99_s'])}"),
        Cell(number(row["aggregate_tok_s"])),
        Cell(counts, row["invalid_reason"] or row["null_reason"] or "", kind="" if row["valid"] else "fail"),
    ]


def _more(run_id: str) -> None:
    """The kinds of rows that only some boots have."""
    _small(
        "scores",
        "Scores and margins",
        run_id,
        ["Metric", "Of", Column("Value", right=True), Column("Threshold", right=True), "Verdict", "Against"],
        lambda row: [
            Cell(row["metric"]),
            Cell(row["subject"], row["step"]),
            Cell(number(row["value"], 4)),
            Cell(number(row["threshold"], 4)),
            Cell(row["verdict"] or "–", kind="fail" if row["verdict"] in ("wrong", "drift", "fail") else ""),
            Cell(row["reference"] or "–", row["reason"] or ""),
        ],
    )
    _small(
        "context_depths",
        "Context",
        run_id,
        [Column("Depth, tokens", right=True), "Probe", "Recalled", Column("TTFT", right=True), Column("Decode tok/s", right=True), "Why"],
        lambda row: [
            Cell(number(row["depth_tokens"])),
            Cell(row["probe"]),
            Cell(
                *(
                    ("✓ yes", "", "pass")
                    if row["recalled"]
                    else ("✗ no", "", "fail")
                    if row["recalled"] is False
                    else ("? not answered", "", "notrun")
                )
            ),
            Cell(seconds(row["ttft_s"])),
            Cell(number(row["decode_tok_s"])),
            Cell(row["reason"], row["text"]),
        ],
    )
    _small(
        "health",
        "Node before and after",
        run_id,
        [
            "Moment",
            "Verdict",
            Column("Bandwidth GB/s", right=True),
            Column("Power", right=True),
            Column("SM clock", right=True),
            Column("Temperature", right=True),
            "Why",
        ],
        lambda row: [
            Cell(row["moment"], when(row["read_at"])),
            Cell(row["verdict"], kind={"ok": "pass", "suspect": "flaky", "void": "fail"}.get(row["verdict"], "notrun")),
            Cell(
                number(row["bandwidth_gb_s"]),
                "" if row["percent_of_history"] is None else f"{row['percent_of_history']:.0f} % of its history",
            ),
            Cell(number(row["gpu_power_w"], unit="W")),
            Cell(number(row["gpu_sm_clock_mhz"], 4, "MHz")),
            Cell(number(row["gpu_temperature_c"], unit="°C")),
            Cell("; ".join(row["reasons"] or ()), "; ".join(row["throttle_reasons"] or ())),
        ],
    )
    _small(
        "engine_counters",
        "The engine's own counters",
        run_id,
        ["Metric", "Workload", Column("Value", right=True)],
        lambda row: [Cell(row["metric"]), Cell(row["workload"]), Cell(number(row["value"], 4))],
    )
    _small(
        "kernel_messages",
        "Messages of the kernel",
        run_id,
        [Column("After", right=True), "Line"],
        lambda row: [Cell(seconds(row["elapsed_s"])), Cell(row["line"], mono=True)],
    )


def _small(table: str, title: str, run_id: str, columns: Sequence[Column | str], cells: Callable[[Row], list[Cell]]) -> None:
    question = run_page.table(table, run_id)
    found = source.rows(question)
    if found:
        st.header(title)
        grid(table, title, columns, [cells(row) for row in found[:_SHOWN_SAMPLES]])
        rows_behind(table, question)


def _telemetry(run_id: str) -> None:
    question = run_page.table("resources", run_id)
    frame = source.frame(question)
    if frame.empty:
        return
    st.header("Telemetry")
    frame = frame.assign(memory_used_bytes=pd.to_numeric(frame["memory_used_bytes"]) / 2**30)
    present = [name for name in _TELEMETRY if frame[name].notna().any()]
    for pair in (present[:2], present[2:4], present[4:]):
        if pair:
            for column, name in zip(st.columns(2), pair, strict=False):
                column.altair_chart(charts.over_time(frame, name, _TELEMETRY[name]), key=f"telemetry_{name}")
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
