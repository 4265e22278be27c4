"""The coherence gate of one boot: every judged answer, and one of them beside the answer it should have been.

Trap: "3 of 89 wrong" without the token where it went wrong sends a maintainer to guess. Rule: wrong answers come first, and the chosen one
is marked from the first character and the first token that differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import links, source
from dashboard.evidence import rows_behind
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.shown import block, number
from results.queries import run_page

Row = Mapping[str, Any]
_RIGHT = ("match", "tie", "pass_structure")
_SHOWN = 200


def show_gate(run_id: str) -> None:
    """The gate's part of the page Run."""
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
    ordered = [*wrong, *(row for row in found if row["verdict"] in _RIGHT)][:_SHOWN]
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
