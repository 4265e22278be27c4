"""`sparkproof asv`: the history for asv, its page, and a look at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import suites.asv
from results.asv.export import Exported, booted_releases
from results.asv.export import export as export_store
from results.asv.page import page_server
from results.asv.page import publish as publish_page
from results.redact import plain
from results.store import Store
from runners.cli.shell import err, errors_shown, open_store, out, print_json
from runners.envs.environment import cache_folder
from runners.envs.published import publication_dates

app = typer.Typer(name="asv", no_args_is_help=True, help="Write the history for asv (airspeed velocity), publish its page, look at it.")

SUITE = Path(suites.asv.__file__).parent

_To = Annotated[Path | None, typer.Option("--to", help="The folder; default: asv below $SPARKPROOF_HOME.")]
_Dates = Annotated[bool, typer.Option("--dates/--no-dates", help="Ask the package index when each release was published (once).")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def export(to: _To = None, dates: _Dates = True, json_: _Json = False) -> None:
    """Write a git repository with one commit per release, and asv result files: seconds per token, 0/1 for failures.

    Everything is derived from the store; a new export replaces the old one. In the folder, asv's own commands work:

      sparkproof asv export --to asv && cd asv && asv compare vllm-0.31.0 vllm-0.32.0

    `asv run` can make a boot of the canary itself, filed under a release:

      SPARKPROOF_ASV_ENGINE=vllm==0.32.0 asv --config run.conf.json run -E existing:PYTHON --set-commit-hash COMMIT

    Exit codes: 0 written, 3 nothing to export, or the store or folder cannot be used.
    """
    with errors_shown():
        store = open_store()
        with err.status("exporting ..."):
            done = _export(store, _folder(store, to), dates)
        if json_:
            print_json({"folder": str(done.folder), "releases": done.releases, "results": done.results, "left_out": done.left_out})
            return
        out.print(f"{done.results} results of {done.releases} releases written to {done.folder}", markup=False)
        if done.left_out:
            out.print(f"{done.left_out} boots of versions that are no releases are left out", markup=False)


@app.command()
def publish(to: _To = None, dates: _Dates = True, json_: _Json = False) -> None:
    """Export, then make the page, and list what asv holds for an unresolved regression.

    Example:  sparkproof asv publish --to asv

    Exit codes: 0 published (whatever it shows), 3 it could not be.
    """
    with errors_shown():
        store = open_store()
        folder = _folder(store, to)
        with err.status("exporting and publishing ..."):
            _export(store, folder, dates)
            page = publish_page(folder)
        found = _regressions(page.html)
        if json_:
            print_json({"page": str(page.html / "index.html"), "offline": page.offline, "regressions": found})
            return
        for one in found:
            out.print(plain(f"unresolved: {one['what']}  {one['where']}: {one['best']:.4g} -> {one['last']:.4g}", 400), markup=False)
        out.print(f"{len(found)} unresolved; page: {page.html / 'index.html'} (look at it: sparkproof asv preview)", markup=False)
        if not page.offline:
            out.print("asv-tachyon is not installed: this is asv's own page, which is empty without the internet", style="yellow")


@app.command()
def preview(
    to: _To = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8030,
    dates: _Dates = True,
) -> None:
    """Export, publish, and serve the page on loopback until Ctrl-C.

    Example:  sparkproof asv preview --port 0
    """
    with errors_shown():
        store = open_store()
        folder = _folder(store, to)
        with err.status("exporting and publishing ..."):
            _export(store, folder, dates)
            page = publish_page(folder)
        with page_server(page.html, port) as server:
            out.print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", markup=False)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                out.print("ended")


def _export(store: Store, folder: Path, dates: bool) -> Exported:
    known = publication_dates(booted_releases(store), cache_folder() / "publication-dates.json") if dates else {}
    return export_store(store, folder, SUITE, known)


def _folder(store: Store, to: Path | None) -> Path:
    return (to if to is not None else store.root / "asv").expanduser().absolute()


def _regressions(html: Path) -> list[dict[str, Any]]:
    """What asv lists as unresolved: benchmark, series, best and last value."""
    listed = json.loads((html / "regressions.json").read_text(encoding="utf-8"))["regressions"]
    return [
        {"what": name, "where": ", ".join(f"{key} {value}" for key, value in sorted(facets.items())), "best": best, "last": last}
        for name, _, facets, _, last, best, _ in listed
    ]
