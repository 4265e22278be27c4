"""The rows that one boot left: timed requests, scores, context depths, health, counters, messages of the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import source
from dashboard.evidence import rows_behind
from dashboard.grid import Cell, Column, grid
from dashboard.shown import number, seconds, when
from results.queries import run_page

Row = Mapping[str, Any]
_SHOWN = 200


def show_samples(run_id: str) -> None:
    """Timed requests, the first stream of each batch."""
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
        [_sample(row) for row in first[:_SHOWN]],
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


def show_more(run_id: str) -> None:
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
        grid(table, title, columns, [cells(row) for row in found[:_SHOWN]])
        rows_behind(table, question)
