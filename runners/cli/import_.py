"""`sparkproof import`: results of other nodes, and other tools' numbers as claims."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from results.imports.boots import ImportReport, import_boots
from results.imports.claims import ClaimedCell, claims_of
from results.imports.exported import is_export, restore
from results.store import Store
from results.vocabulary import ExitCode
from runners.cli.left_out import unusable_in_words
from runners.cli.shell import err, errors_shown, open_store, out, print_json, shown
from runners.errors import UsageError
from runners.spec import EngineSpec


def import_results(
    path: Annotated[Path, typer.Argument(help="A store, its boots folder, one boot, a Parquet export, or a JSON file of another tool.")],
    label: Annotated[str | None, typer.Option(help="Call the imported node so.")] = None,
    engine: Annotated[str | None, typer.Option(help="For another tool's file: the engine that answered, such as vllm==0.32.0.")] = None,
    model: Annotated[str | None, typer.Option(help="For another tool's file: the recipe.")] = None,
    backend: Annotated[str | None, typer.Option(help="For another tool's file: the backend.")] = None,
    node: Annotated[str | None, typer.Option(help="For another tool's file: where it ran.")] = None,
    source: Annotated[str | None, typer.Option(help="For another tool's file: whose numbers they are; default: the file's name.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Bring in the boots of another node, each run id once, or the numbers of llama-benchy or `vllm bench serve` as claims.

    Claims are shown beside measurements; no verdict reads them. Importing twice changes nothing.

    Examples:

      sparkproof import /media/usb/other-spark/boots

      sparkproof import /tmp/export --label spark-2

      sparkproof import benchy.json --engine vllm==0.32.0 --model gpt-oss-120b --source "a colleague"

    Exit codes: 0 done, 2 nothing that can be imported, 3 two machines under one name, a conflict, or the disk.
    """
    with errors_shown():
        path = path.expanduser()
        claimed = {"engine": engine, "model": model, "backend": backend, "node": node, "source": source}
        if path.is_file():
            if label is not None:
                raise UsageError("--label is for boots; for another tool's file say --node.")
            done = _claims(open_store(), path, claimed)
            print_json(done) if json_ else out.print(shown(done["sentence"], 600), markup=False)
            return
        if given := [name for name, value in claimed.items() if value is not None]:
            raise UsageError(f"--{given[0]} is for another tool's file; boots say it themselves.")
        with err.status("reading, comparing and copying boots ..."):
            report = _boots(open_store(), path, label)
        exit_code = ExitCode.INFRASTRUCTURE if report.conflicting else ExitCode.OK
        print_json({"exit_code": exit_code, **asdict(report)}) if json_ else _print(report)
        raise SystemExit(exit_code)


def _claims(store: Store, path: Path, claimed: dict[str, str | None]) -> dict[str, Any]:
    spec = EngineSpec.parse(claimed["engine"]) if claimed["engine"] else None
    cell = ClaimedCell(
        source=shown(claimed["source"] or path.name, 200),
        engine=spec.name if spec else None,
        engine_version=spec.version if spec else None,
        recipe_name=claimed["model"],
        backend_name=claimed["backend"],
        node=claimed["node"],
    )
    claims = claims_of(path, cell)
    known = {row["claim_id"] for row in store.query("SELECT claim_id FROM claims")} if store.database.exists() else set()
    for claim in claims:
        store.keep(claim)
    new = sum(claim.claim_id not in known for claim in claims)
    return {
        "claims": [asdict(claim) for claim in claims],
        "new": new,
        "sentence": f"{new} claims of {claims[0].tool} stored, {len(claims) - new} were here already; no verdict reads them.",
    }


def _boots(store: Store, path: Path, label: str | None) -> ImportReport:
    if not is_export(path):
        return import_boots(store, path, label=label)
    with tempfile.TemporaryDirectory(prefix="sparkproof-import-") as folder:
        return import_boots(store, restore(path, Path(folder)), label=label)


def _print(report: ImportReport) -> None:
    for name, why in {**report.conflicting, **report.skipped}.items():
        err.print(f"left out {name}: {shown(why, 500)}", markup=False)
    out.print(
        f"{len(report.imported)} boots imported, {len(report.already_here)} were here already, {len(report.unfinished)} unfinished and "
        f"left out, {len(report.conflicting)} in conflict, {len(report.skipped)} unreadable, "
        f"{unusable_in_words(report.cut_lines, report.not_finite)}; {report.kept} sessions, claims and notes",
        markup=False,
    )
