"""`sparkproof doctor`: is this node, and this installation, fit to measure?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from results.records import HealthRecord
from results.vocabulary import ExitCode
from runners.cli.shell import cell, err, errors_shown, open_store, out, print_json
from runners.envs.environment import cache_folder
from runners.envs.maker import STAMP
from runners.node import doctor as checks
from runners.node.checkup import BEFORE, Checkup
from runners.node.facts import has_cuda, read_node
from runners.recorder import utc_now

_STYLE = {"ok": "green", "warning": "yellow", "error": "red", "unknown": "dim"}


def doctor(
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the package index.")] = False,
    probe: Annotated[bool, typer.Option(help="Run the memory probe (seconds).")] = True,
    python: Annotated[
        Path | None, typer.Option(help="Python whose torch probes a GPU's memory; default: that of the newest engine environment.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="What you call this node.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check node, health, installation and store, with advice for what is wrong.

    Examples:

      sparkproof doctor

      sparkproof doctor --offline --json

    Exit codes: 0 nothing stops a measurement, 3 something does.
    """
    with errors_shown():
        store = open_store()
        with err.status("looking at the node ..."):
            node = read_node(label)
            checkup = Checkup.of(store, node, has_cuda=has_cuda(node), now=utc_now)
            health = checkup.look("", BEFORE, python or _some_python(cache_folder() / "environments"), probe=probe)
            found = [
                *checks.check_node(node),
                *checks.check_health(health),
                checks.check_python(),
                checks.check_uv(),
                checks.check_pip(),
                *(() if offline else (checks.check_index(),)),
                checks.check_docker(),
                checks.check_folder("store", store.root),
                checks.check_folder("cache", cache_folder()),
                *checks.check_store(store),
            ]
        found = [checks.harmless(check) for check in found]
        failed = any(check.state == "error" for check in found)
        if json_:
            print_json(
                {"node": asdict(node), "health": _without_run(health), "checks": [asdict(check) for check in found], "fit": not failed}
            )
        else:
            _print(found)
        raise SystemExit(ExitCode.INFRASTRUCTURE if failed else ExitCode.OK)


def _some_python(environments: Path) -> Path | None:
    """The newest engine environment's Python, for a probe with the torch of an engine."""
    stamps = sorted(environments.glob(f"*/{STAMP}"), key=lambda stamp: stamp.stat().st_mtime)
    return stamps[-1].parent / "bin" / "python" if stamps else None


def _without_run(record: HealthRecord) -> dict[str, object]:
    return {name: value for name, value in asdict(record).items() if name not in ("run_id", "moment")}


def _print(found: list[checks.Check]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in found:
        table.add_row(cell(check.name), f"[{_STYLE[check.state]}]{check.state}[/]", cell(check.found, 600))
        if check.advice:
            table.add_row("", "", cell(f"next: {check.advice}", 600))
    out.print(table)
