"""What `sparkproof run --confirm` asks for between boots, and the verdicts that it shows in the end."""

from __future__ import annotations

from typing import Any

from results.errors import StoreError
from results.store import Store
from results.verdict.cell import CellVerdict, ReleaseVerdict
from results.verdict.facts import VerdictInputError
from results.verdict.words import Verdict
from runners.cli.shell import err, out, shown
from runners.confirm_boots import asked_cells, confirming_boots, release_in, verdict_on
from runners.node.facts import has_cuda
from runners.plan import Cell
from runners.session import FollowUp, Plan

_QUIET = frozenset({Verdict.UNCHANGED, Verdict.NEW})


def confirming(plan: Plan, store: Store) -> FollowUp:
    """The follow-up of a visit that confirms what its boots left open."""

    def say(text: str) -> None:
        err.print(shown(text, 1_000), markup=False)

    return lambda made: confirming_boots(store, plan.boots, made, node_id=plan.node.node_id, has_cuda=has_cuda(plan.node), say=say)


def verdicts_on(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """The verdict on every release of the plan, oldest first within a cell."""
    rows: list[dict[str, Any]] = []
    for cells in asked_cells(plan.boots):
        try:
            verdict = verdict_on(store, cells[0], plan.node.node_id)
        except (StoreError, VerdictInputError) as error:
            err.print(shown(f"no verdict on {cells[0].recipe.name}, {cells[0].backend.name}: {error}", 1_000), markup=False)
            continue
        rows.extend(_row(cell, one) for cell in cells if verdict is not None and (one := _judged(verdict, cell)) is not None)
    return rows


def print_verdicts(rows: list[dict[str, Any]]) -> None:
    """One line for each verdict, and one for each number that is not simply unchanged."""
    for row in rows:
        out.print(f"\nverdict on {row['engine']} {row['release']}, {row['model']}, {row['backend']}: ", end="", markup=False)
        out.print(shown(f"{row['verdict'] or 'no evidence'}: {row['reason']}", 1_000), markup=False, style="red" if row["alarm"] else "")
        for number in row["numbers"]:
            if number["verdict"] not in _QUIET:
                out.print(shown(f"  {number['verdict']}: {number['reason']}", 1_000), markup=False)


def _judged(verdict: CellVerdict, cell: Cell) -> ReleaseVerdict | None:
    release = release_in(verdict, cell)
    return next((one for one in verdict.releases if one.release == release), None)


def _row(cell: Cell, one: ReleaseVerdict) -> dict[str, Any]:
    return {
        "engine": cell.spec.name,
        "release": one.release,
        "model": cell.recipe.name,
        "backend": cell.backend.name,
        "verdict": one.headline,
        "alarm": one.alarm,
        "state": str(one.outcome.state),
        "confirmed": one.outcome.confirmed,
        "reason": one.outcome.reason,
        "differs": list(one.differs),
        "numbers": [
            {
                "series": name,
                "verdict": str(number.verdict),
                "reason": number.reason,
                "baseline": number.baseline,
                "effect": number.effect,
                "interval": list(number.interval) if number.interval else None,
                "p": number.p,
                "boots": [number.n_baseline, number.n_candidate],
                "boots_to_decide": number.boots_to_decide,
                "warnings": list(number.warnings),
            }
            for name, number in one.numbers.items()
        ],
    }
