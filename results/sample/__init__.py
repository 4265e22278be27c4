"""The sample: real boots of this project, as Parquet, from which a store is made that behaves like any other.

Trap: a demonstration with invented numbers teaches what nobody measured. Rule: every row here was measured; each carries the machine and
the date; the rows go through boot folders and the ordinary `rebuild`, so that what is shown is computed like everything else.

Files: `runs.parquet` (one row per boot, with what it refers to as JSON), one file per kind of row (`results.records.BOOT_ROWS`), and
`files.parquet` (logs and serve scripts). `machine` and `measured_at` are in every row. README.md says where they come from.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from results.boot_folder import BootContent, BootFolder, BootSummary
from results.records import BOOT_ROWS, RunRecord
from results.store import Store

SAMPLE = Path(__file__).parent
_DATA_MODEL = SAMPLE.parent
_RUNS, _FILES = "runs.parquet", "files.parquet"
_REFERRED = ("node", "build", "recipe", "backend")
_ADDED = {"machine", "measured_at"}
_SUMMARY: TypeAdapter[BootSummary] = TypeAdapter(BootSummary)
_ROWS: dict[type[Any], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in BOOT_ROWS}


def sample_store(root: Path, sample: Path = SAMPLE) -> Store:
    """A store below `root` that holds the sample; made on first use and whenever the sample or the data model changes."""
    store = Store(root)
    stamp = root / "sample-digest"
    digest = _digest(sample)
    if store.database.exists() and stamp.exists() and stamp.read_text() == digest:
        return store
    shutil.rmtree(store.boots, ignore_errors=True)
    stamp.unlink(missing_ok=True)
    for folder, content, files in _boots(store.boots, sample):
        folder.create()
        folder.write_summary(content.summary)
        folder.append(row for rows in content.rows.values() for row in rows)
        for name, text in files.items():
            (folder.path / name).write_text(text, encoding="utf-8")
    store.rebuild()
    stamp.write_text(digest)
    return store


def write_sample(boots: Iterable[tuple[BootContent, Mapping[str, str]]], into: Path = SAMPLE) -> dict[str, int]:
    """Write boots (what their folders hold, and the texts of files by name) as Parquet; returns rows by file."""
    tables: dict[str, list[dict[str, Any]]] = {_RUNS: [], _FILES: []}
    for content, files in boots:
        summary = content.summary
        added = {"machine": summary.node.label, "measured_at": summary.run.started_at}
        referred = {name: json.dumps(_plain(getattr(summary, name))) for name in _REFERRED}
        tables[_RUNS].append({**_flat(summary.run), **referred, **added})
        tables[_FILES] += [{"run_id": summary.run.run_id, "name": name, "text": text, **added} for name, text in sorted(files.items())]
        for kind, rows in content.rows.items():
            tables.setdefault(_file_of(kind), []).extend({**_flat(row), **added} for row in rows)
    for old in into.glob("*.parquet"):
        old.unlink()
    for name, found in tables.items():
        if found:
            pq.write_table(pa.Table.from_pylist(found), into / name, compression="zstd", compression_level=19)
    return {name: len(found) for name, found in tables.items() if found}


def _boots(root: Path, sample: Path) -> Iterable[tuple[BootFolder, BootContent, dict[str, str]]]:
    rows = {kind: _by_run(_read(sample / _file_of(kind))) for kind in BOOT_ROWS}
    files = _by_run(_read(sample / _FILES))
    for row in _read(sample / _RUNS):
        run_id = row["run_id"]
        referred = {name: json.loads(row.pop(name)) for name in _REFERRED}
        summary = _SUMMARY.validate_python({"run": _unflat(row, RunRecord), **referred})
        own = {kind: tuple(_ROWS[kind].validate_python(_unflat(one, kind)) for one in rows[kind].get(run_id, ())) for kind in BOOT_ROWS}
        texts = {one["name"]: one["text"] for one in files.get(run_id, ())}
        yield (
            BootFolder(root, run_id),
            BootContent(summary, own),
            {name: texts[name] for name in ("server.log", "serve.sh") if name in texts},
        )


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [{key: value for key, value in row.items() if key not in _ADDED} for row in pq.read_table(path).to_pylist()]


def _by_run(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["run_id"], []).append(row)
    return found


def _file_of(kind: type[Any]) -> str:
    return f"{BOOT_ROWS[kind].table}.parquet"


def _plain(record: Any) -> dict[str, Any] | None:
    return None if record is None else dataclasses.asdict(record)


def _flat(record: Any) -> dict[str, Any]:
    """The fields, mappings as JSON: Parquet has no mapping whose keys differ from row to row."""
    return {
        name: f"json:{json.dumps(value)}" if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(record).items()
    }


def _unflat(row: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
    """The fields of a record; null for what the sample's data model did not have is left to the record's own default, if it has one."""
    needed = {own.name for own in dataclasses.fields(kind) if own.default is own.default_factory is dataclasses.MISSING}
    return {
        name: json.loads(value.removeprefix("json:")) if isinstance(value, str) and value.startswith("json:{") else value
        for name, value in row.items()
        if value is not None or name in needed
    }


def _digest(sample: Path) -> str:
    """Of the sample and of the files that say what a database looks like."""
    digest = sha256()
    own = sorted(sample.glob("*.parquet"))
    for path in [*own, *(_DATA_MODEL / name for name in ("schema.sql", "views.sql"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
