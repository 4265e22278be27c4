"""Sessions, claims and ignores as files: `sessions/ID.json`, `claims/ID.json`, `ignores/ID.json` below the store's folder.

Trap: a note that only the database knows is lost by the rebuild that repairs it, and a file written half way by a power cut stops that
rebuild. Rule: each record is one small file, replaced atomically; a file that cannot be read is named, counted and left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from results.boot_folder import storable
from results.errors import FolderError, StoreError
from results.kept_records import TIMES, ClaimRecord, IgnoreRecord, KeptRecord, SessionRecord
from results.verdict.facts import BadTimeError, parse_time

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MOST_BYTES = 1_000_000
_PLACES: Mapping[type[Any], tuple[str, str]] = {
    SessionRecord: ("sessions", "session_id"),
    ClaimRecord: ("claims", "claim_id"),
    IgnoreRecord: ("ignores", "finding_id"),
}
_ADAPTERS: Mapping[type[Any], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in _PLACES}


class KeptFiles:
    """Reader and writer of the files below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @staticmethod
    def id_of(record: KeptRecord) -> str:
        """The id that names a record's file."""
        return str(getattr(record, _PLACES[type(record)][1]))

    def write(self, record: KeptRecord) -> None:
        """Write or replace the file of a record. Raises FolderError for an id that is no file name, StoreError when the disk refuses."""
        path = self._path(type(record), self.id_of(record))
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8") as f:
                f.write(json.dumps(storable(dataclasses.asdict(record)), allow_nan=False, indent=1))
                f.flush()
                os.fsync(f.fileno())
            temporary.replace(path)
        except OSError as error:
            raise StoreError(f"cannot be written: {error.strerror}", where=str(path), todo="Free space on that disk.") from error

    def remove(self, kind: type[KeptRecord], record_id: str) -> bool:
        """Remove the file of a record; False if there is none."""
        path = self._path(kind, record_id)
        existed = path.exists()
        path.unlink(missing_ok=True)
        return existed

    def read_all(self) -> tuple[list[KeptRecord], dict[str, str]]:
        """(all records by kind and id, file to the reason it was left out)."""
        records: list[KeptRecord] = []
        damaged: dict[str, str] = {}
        for kind, (folder, _) in _PLACES.items():
            for path in sorted((self._root / folder).glob("*.json")):
                try:
                    records.append(self._read(kind, path))
                except FolderError as error:
                    damaged[f"{folder}/{path.name}"] = str(error)
        return records, damaged

    def _path(self, kind: type[Any], record_id: str) -> Path:
        if not _ID.fullmatch(record_id):
            raise FolderError(f"not an id: {record_id[:60]!r}", todo="Ids have 1-64 letters, digits, - and _.")
        return self._root / _PLACES[kind][0] / f"{record_id}.json"

    def _read(self, kind: type[Any], path: Path) -> KeptRecord:
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise FolderError(f"larger than {_MOST_BYTES:,} bytes", where=str(path))
            record: KeptRecord = _ADAPTERS[kind].validate_json(path.read_bytes())
        except OSError as error:
            raise FolderError(f"cannot be read: {error.strerror}", where=str(path)) from error
        except ValidationError as error:
            first = error.errors()[0]
            raise FolderError(f"damaged: {first['msg']} at {'.'.join(map(str, first['loc']))}", where=str(path)) from error
        try:
            for moment in (getattr(record, name, None) for name in TIMES):
                if moment is not None:
                    parse_time(moment)
        except BadTimeError as error:
            raise FolderError(f"damaged: {error}", where=str(path)) from error
        if self.id_of(record) != path.stem:
            raise FolderError(f"says it is {self.id_of(record)[:60]!r}", where=str(path))
        return record
