"""The folder of one boot: everything that was recorded, as plain files, written as it happens.

Trap: a crash of the database, or of us, between measuring and storing loses the boot. Rule: each record is appended to its file the
moment it exists, the summary (`run.json`) is replaced atomically, and the database is only ever filled *from* these folders, so that
`sparkproof rebuild` and an ordinary run go through the same code.

Files: `run.json` (run, node, build, recipe, backend), one `*.jsonl` per kind of row (`results.records.BOOT_ROWS`), `server.log`,
`serve.sh`, `process.json` (who runs the server).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from results.errors import FolderError
from results.records import BOOT_ROWS, BackendRecord, BootRow, EngineBuildRecord, NodeRecord, RecipeRecord, RunRecord

FOLDER_FORMAT = 1
_RUN_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**63 - 1
_Row = TypeVar("_Row", bound=BootRow)


@dataclass(frozen=True)
class BootSummary:
    """Content of `run.json`: the run and the dimension rows it refers to (those not known yet are None)."""

    run: RunRecord
    node: NodeRecord
    build: EngineBuildRecord | None = None
    recipe: RecipeRecord | None = None
    backend: BackendRecord | None = None
    format: int = FOLDER_FORMAT


@dataclass(frozen=True)
class BootContent:
    """Everything one folder holds.

    `skipped_lines` counts lines that were left out: cut off by a crash, or of another boot. `not_finite` counts numbers that were NaN or
    infinite and are null now.
    """

    summary: BootSummary
    rows: Mapping[type[Any], tuple[BootRow, ...]]
    """Kind of row to the rows of that kind; a kind that the boot left none of is present and empty."""
    skipped_lines: int = 0
    not_finite: int = 0

    def of(self, kind: type[_Row]) -> tuple[_Row, ...]:
        """The rows of one kind, in the order they were written."""
        return tuple(row for row in self.rows[kind] if isinstance(row, kind))


_SUMMARY: TypeAdapter[BootSummary] = TypeAdapter(BootSummary)
_ROWS: dict[type[Any], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in BOOT_ROWS}


def new_run_id(now: datetime | None = None) -> str:
    """A fresh id such as `20261130T130501Z-1f00ab42`: sorts by time, safe as a file name."""
    return f"{(now or datetime.now(UTC)).astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def checked_run_id(run_id: str) -> str:
    """`run_id` if it has the shape of one of ours; ids never become paths unchecked. Raises FolderError."""
    if not _RUN_ID.fullmatch(run_id):
        todo = "Run ids look like 20261130T130501Z-1f00ab42; `sparkproof runs` lists them."
        raise FolderError(f"not a run id: {run_id[:60]!r}", todo=todo)
    return run_id


class BootFolder:
    """Reader and writer of one boot's folder."""

    def __init__(self, boots_root: Path, run_id: str) -> None:
        self.run_id = checked_run_id(run_id)
        self.path = boots_root / self.run_id
        self.log = self.path / "server.log"
        self.serve_script = self.path / "serve.sh"

    def create(self) -> None:
        """Make the folder; it must not exist yet."""
        self.path.mkdir(parents=True)

    def write_summary(self, summary: BootSummary) -> None:
        """Replace `run.json` atomically (a reader sees the old or the new one, never a half)."""
        target = self.path / "run.json"
        temporary = self.path / f".run.json.{os.getpid()}"
        with temporary.open("w", encoding="utf-8") as f:
            f.write(json.dumps(storable(dataclasses.asdict(summary)), allow_nan=False, indent=1))
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(target)

    def append(self, rows: Iterable[BootRow]) -> None:
        """Append rows to their files, one JSON object a line."""
        by_file: dict[str, list[str]] = {}
        for row in rows:
            by_file.setdefault(BOOT_ROWS[type(row)].file, []).append(json.dumps(storable(dataclasses.asdict(row)), allow_nan=False))
        for name, lines in by_file.items():
            with (self.path / name).open("a", encoding="utf-8") as f:
                f.write("\n".join(lines) + "\n")

    def summary(self) -> BootSummary:
        """Read `run.json`; raises FolderError when it is missing, truncated or from a newer format."""
        path = self.path / "run.json"
        try:
            summary = _SUMMARY.validate_json(path.read_bytes())
        except OSError as error:
            raise FolderError(f"no run.json: {error.strerror}", where=str(path)) from error
        except ValidationError as error:
            first = error.errors()[0]
            raise FolderError(f"run.json is damaged: {first['msg']} at {'.'.join(map(str, first['loc']))}", where=str(path)) from error
        if summary.format > FOLDER_FORMAT:
            raise FolderError(f"written by a newer Sparkproof (format {summary.format})", where=str(path), todo="Update Sparkproof.")
        if summary.run.run_id != self.run_id:
            raise FolderError(f"run.json says {summary.run.run_id!r}", where=str(path))
        return summary

    def read(self) -> BootContent:
        """Read everything back. What cannot be used is left out and counted; raises FolderError without a usable run.json."""
        summary = self.summary()
        present = {path.name for path in self.path.iterdir()}
        rows: dict[type[Any], tuple[BootRow, ...]] = {}
        skipped = not_finite = 0
        for kind, place in BOOT_ROWS.items():
            rows[kind], cut, odd = self._rows(kind) if place.file in present else ((), 0, 0)
            skipped, not_finite = skipped + cut, not_finite + odd
        return BootContent(summary, rows, skipped, not_finite)

    def _rows(self, kind: type[_Row]) -> tuple[tuple[_Row, ...], int, int]:
        """(rows, lines left out, numbers that are not finite)."""
        path = self.path / BOOT_ROWS[kind].file
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise FolderError(f"cannot be read: {error.strerror}", where=str(path)) from error
        validate = _ROWS[kind].validator.validate_json
        rows: list[_Row] = []
        not_finite = 0
        for line in lines:
            try:
                row = validate(line)
            except ValidationError:
                continue
            if row.run_id != self.run_id:
                continue
            rows.append(row)
            if b"NaN" in line or b"Infinity" in line:  # JSON has neither: not written by us
                not_finite += sum(isinstance(value, float) and not math.isfinite(value) for value in vars(row).values())
        return tuple(rows), len(lines) - len(rows), not_finite


def all_folders(boots_root: Path) -> list[BootFolder]:
    """Every boot folder below `boots_root`, oldest first; anything that does not look like one of ours is not touched."""
    if not boots_root.is_dir():
        return []
    return [BootFolder(boots_root, p.name) for p in sorted(boots_root.iterdir()) if p.is_dir() and _RUN_ID.fullmatch(p.name)]


def storable(value: Any) -> Any:
    """`value` as JSON and the database can hold it, whatever a server sent.

    JSON has no NaN or infinity (M17: they are findings, written as text in the reason) and the database no integer beyond 64 bits: null.
    Half a surrogate pair, which is valid in a server's JSON and in no UTF-8 text, becomes a question mark.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if _LEAST_INTEGER <= value <= _MOST_INTEGER else None
    if isinstance(value, dict):
        return {storable(k): storable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(v) for v in value]
    return value
