"""`sparkproof findings` and `sparkproof ignore`: what broke or slowed down, and notes on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from results.kept_records import IgnoreRecord
from results.queries.cells import finding as finding_query
from results.queries.cells import findings as findings_query
from results.queries.cells import ignores
from results.series import series_key
from results.store import Store
from results.verdict.findings import Stage
from results.vocabulary import ExitCode
from runners.cli.runs import FIRST
from runners.cli.shell import cell, errors_shown, open_store, out, print_json, shown
from runners.errors import UsageError

_LIST = "`sparkproof findings --all` lists them."
_STYLES: dict[str, str] = {Stage.CONFIRMED: "bold red", Stage.DETECTED: "yellow", Stage.FIXED: "green", Stage.IGNORED: "dim"}


def findings(
    engine: Annotated[str | None, typer.Option(help="Only this engine, such as vllm.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this recipe.")] = None,
    backend: Annotated[str | None, typer.Option(help="Only this backend.")] = None,
    node: Annotated[str | None, typer.Option(help="Only this node: its label or id.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also what was fixed, and what is ignored.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what broke or got slower: detected (seen once), confirmed, fixed in a later release, ignored with a note.

    Examples:  sparkproof findings   ·   sparkproof findings --engine vllm --all --json

    Exit codes: 0 nothing confirmed is open, 1 something is, 3 the store.
    """
    with errors_shown():
        store = open_store()
        question = findings_query(engine=engine, recipe=model, backend=backend, node=node, all_stages=all_)
        rows = question.rows(store) if store.database.exists() else []
        exit_code = ExitCode.BROKEN_OR_SLOWER if any(row["stage"] == Stage.CONFIRMED for row in rows) else ExitCode.OK
        if json_:
            print_json({"exit_code": exit_code, "findings": rows})
        else:
            _print(rows)
        raise SystemExit(exit_code)


def ignore(
    finding_id: Annotated[str, typer.Argument(help="The finding's id, or its beginning.", metavar="ID")],
    why: Annotated[str | None, typer.Option(help="Why it is to raise no alarm.")] = None,
    take_back: Annotated[bool, typer.Option("--take-back", help="Remove the note again.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Note that a finding is to raise no alarm, and why; it stays in the record, and so does the note.

    The note holds for findings of the same kind within the range of releases it was written on, also when a bisect narrows that range.

    Examples:  sparkproof ignore 3f2a91 --why "known upstream, vllm-project/vllm#12345"   ·   sparkproof ignore 3f2a91 --take-back

    Exit codes: 0 done, 2 usage or no such finding, 3 the store.
    """
    with errors_shown():
        if (why is None) != take_back or (why is not None and not why.strip()):
            raise UsageError(
                "say why, or take a note back.", todo='sparkproof ignore ID --why "..."   or   sparkproof ignore ID --take-back'
            )
        store = open_store()
        if not store.database.exists():
            raise UsageError("there are no results yet, so there is no finding.", where=str(store.root), todo=FIRST)
        done = _take_back(store, finding_id) if why is None else _note(store, finding_id, why)
        if json_:
            print_json(done)
        else:
            out.print(shown(done["sentence"], 600), markup=False)


def _note(store: Store, beginning: str, why: str) -> dict[str, Any]:
    row = _one(finding_query(beginning).rows(store), beginning, "finding")
    key = series_key(row["engine"], row["distribution"], row["recipe_name"], row["backend_name"], row["node_id"])
    note = IgnoreRecord(
        finding_id=row["finding_id"],
        engine=key.engine,
        recipe_name=key.recipe,
        backend_name=key.backend,
        node_id=key.node_id,
        subject=row["subject"],
        kind=row["kind"],
        after=row["after"],
        release=row["release"],
        why=shown(why, 2_000),
        ignored_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    store.keep(note)
    return {"finding_id": note.finding_id, "ignored": True, "why": note.why, "sentence": f"{note.finding_id} is ignored: {note.why}"}


def _take_back(store: Store, beginning: str) -> dict[str, Any]:
    notes = [row for row in ignores().rows(store) if row["finding_id"].startswith(beginning)]
    note = _one(notes, beginning, "note")
    store.take_back(IgnoreRecord, note["finding_id"])
    sentence = f"the note on {note['finding_id']} is taken back; it said: {note['why']}"
    return {"finding_id": note["finding_id"], "ignored": False, "why": note["why"], "sentence": sentence}


def _one(rows: list[dict[str, Any]], beginning: str, what: str) -> dict[str, Any]:
    if len(rows) == 1 and beginning:
        return rows[0]
    if not rows:
        raise UsageError(f"there is no {what} with an id that begins with {beginning[:20]!r}.", todo=_LIST)
    several = ", ".join(row["finding_id"] for row in rows[:5])
    raise UsageError(f"{len(rows)} of them begin with {beginning[:20]!r}: {several}.", todo="Give more of the id.")


def _print(rows: list[dict[str, Any]]) -> None:
    if not rows:
        out.print("No open finding.", markup=False)
        return
    table = Table(header_style="bold")
    for name in ("id", "stage", "what", "engine · model · backend · node", "since", "why"):
        table.add_column(name, overflow="fold", no_wrap=name == "id")
    for row in rows:
        where = f"{row['engine']} · {row['recipe_name']} · {row['backend_name']} · {row['node_label'] or row['node_id']}"
        table.add_row(
            row["finding_id"],
            Text(row["stage"], style=_STYLES.get(row["stage"], "")),
            cell(row["kind"] if row["subject"] == "outcome" else f"{row['kind']}: {row['subject']}", 120),
            cell(where, 200),
            cell(_since(row), 120),
            cell(row["reason"] + (f" (note: {row['note']})" if row["note"] else ""), 400),
        )
    out.print(table)


def _since(row: dict[str, Any]) -> str:
    since = row["release"] if row["after"] is None else f"{row['release']} (was good in {row['after']})"
    return since if row["fixed_in"] is None else f"{since}, fixed in {row['fixed_in']}"
