"""`python -m results.sample STORE... --replace FROM=TO`: make the sample anew from real stores; `--tables`: write tables from it.

Texts lose their secrets and the paths of the machine they come from: give each path that must not be seen with what to write instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from results.boot_folder import BootContent, all_folders
from results.redact import plain, redact
from results.report.anonymous import anonymiser
from results.report.this_machine import this_machine
from results.sample import sample_store, write_sample
from results.sample.tables import write_tables

_MOST_LOG = 200_000


def main() -> None:
    """Read the boots of every store named, clean them, write the sample; write the tables if asked."""
    parser = argparse.ArgumentParser(prog="python -m results.sample", description=__doc__)
    parser.add_argument("store", type=Path, nargs="*", help="A store's folder; its boots/ are read, the first store's of two alike.")
    parser.add_argument("--replace", action="append", default=[], metavar="FROM=TO", help="May be given several times; applied in order.")
    parser.add_argument("--leave-out", action="append", default=[], metavar="RUN", help="A boot that is no measurement, such as a trial.")
    parser.add_argument("--tables", action="store_true", help="Write the tables of README.md and docs/findings.md from the sample.")
    asked = parser.parse_args()
    if asked.store:
        _make(asked)
    if asked.tables:
        with tempfile.TemporaryDirectory() as folder:
            for written in write_tables(sample_store(Path(folder))):
                sys.stdout.write(f"{written}\n")


def _make(asked: argparse.Namespace) -> None:
    replacements = [tuple(pair.split("=", 1)) for pair in asked.replace]
    found = {folder.run_id: folder for store in reversed(asked.store) for folder in all_folders(store / "boots")}
    read = [(found[run_id].read(), found[run_id].path) for run_id in sorted(found) if run_id not in asked.leave_out]
    boots = [_clean(content, _files(path), replacements) for content, path in read if content.summary.run.outcome is not None]
    for name, rows in write_sample(boots).items():
        sys.stdout.write(f"{rows:8,} {name}\n")


def _files(folder: Path) -> dict[str, str]:
    found = {name: folder / name for name in ("server.log", "serve.sh") if (folder / name).is_file()}
    return {name: path.read_text(encoding="utf-8", errors="replace")[-_MOST_LOG:] for name, path in found.items()}


def _clean(content: BootContent, files: Mapping[str, str], replacements: Sequence[tuple[str, ...]]) -> tuple[BootContent, dict[str, str]]:
    summary = dataclasses.replace(
        content.summary,
        **{name: _cleaned_record(getattr(content.summary, name), replacements) for name in ("run", "node", "build", "recipe", "backend")},
    )
    rows = {kind: tuple(_cleaned_record(row, replacements) for row in own) for kind, own in content.rows.items()}
    texts = {name: _text(plain(text), replacements) for name, text in files.items()}
    anonymous = anonymiser(this_machine(), texts.values())
    return BootContent(summary, rows), {name: anonymous(text) for name, text in texts.items()}


def _cleaned_record(record: Any, replacements: Sequence[tuple[str, ...]]) -> Any:
    if record is None:
        return None
    fields = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return dataclasses.replace(record, **{name: _cleaned(value, replacements) for name, value in fields.items()})


def _cleaned(value: Any, replacements: Sequence[tuple[str, ...]]) -> Any:
    if type(value) is str:
        return _text(value, replacements)
    if isinstance(value, dict):
        return {name: _cleaned(own, replacements) for name, own in value.items()}
    return tuple(_cleaned(own, replacements) for own in value) if isinstance(value, tuple) else value


def _text(text: str, replacements: Iterable[tuple[str, ...]]) -> str:
    text = redact(text)
    for old, new in replacements:
        text = text.replace(old, new)
    return text


if __name__ == "__main__":
    main()
