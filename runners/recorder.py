"""Writes one boot's records as they happen, and the row that every boot leaves whatever happens.

Trap: a runner that dies or meets a locked database loses what it measured. Rule: the folder is written first and always; the database is
filled from it at the beginning and at the end, and if it cannot be, the boot says so and the next start catches up. A folder that cannot be
written ends the boot (OSError) until its outcome is known; after that nothing may stop the cleaning up, and `finish` says what is missing.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from results.boot_folder import BootFolder, BootSummary
from results.errors import StoreError
from results.records import BootRow, PhaseRecord, ResourceRecord, RunRecord
from results.redact import redact
from results.store import Store
from results.vocabulary import Outcome, Phase
from runners.node.memory import MemInfo, read_memory, used_memory_bytes

_REASON_LIMIT = 2_000
_EXCERPT_LIMIT = 8_000


def utc_now() -> str:
    """The present moment as the records write it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Recorder:
    """The one writer of a boot's folder. Thread-safe: telemetry appends while phases run.

    `conceal` takes a secret out of a text; everything that a server may have said passes it before it is kept.
    """

    def __init__(
        self,
        store: Store,
        summary: BootSummary,
        *,
        on_phase: Callable[[Phase], None] = lambda _: None,
        conceal: Callable[[str], str] = lambda text: text,
        memory: Callable[[], MemInfo] = read_memory,
    ) -> None:
        self._store = store
        self._summary = summary
        self._on_phase = on_phase
        self._conceal = conceal
        self._memory = memory
        self._lock = threading.Lock()
        self.folder = BootFolder(store.boots, summary.run.run_id)
        self._memory_peak: int | None = None
        self._swap_at_peak: int | None = None
        self._refused: OSError | None = None
        self.unstored: str | None = None
        """Why the database does not hold this boot yet; None when it does."""

    @property
    def store_root(self) -> Path:
        """The folder of the store that this boot belongs to."""
        return self._store.root

    @property
    def run(self) -> RunRecord:
        """The run row as it stands."""
        return self._summary.run

    def begin(self) -> None:
        """Make the folder and the row of a running boot."""
        self.folder.create()
        self._write()
        self._store_now()

    def update(self, **fields: Any) -> None:
        """Change fields of the run row (or `build`, `recipe`, `backend`, `node` of the summary) and write the folder."""
        dimensions = {k: fields.pop(k) for k in ("node", "build", "recipe", "backend") if k in fields}
        run = dataclasses.replace(self._summary.run, **{name: _cleaned(value, self._conceal) for name, value in fields.items()})
        self._summary = dataclasses.replace(self._summary, run=run, **dimensions)
        self._write()

    def append(self, rows: Iterable[BootRow]) -> None:
        """Append rows to the folder at once."""
        rows = tuple(rows)
        for row in rows:
            if isinstance(row, ResourceRecord) and row.memory_used_bytes is not None:
                self._note_peak(row.memory_used_bytes)
        with self._lock, self._tolerant():
            self.folder.append(_without_secrets(row, self._conceal) for row in rows)

    def warn(self, text: str) -> None:
        """Add a warning that belongs to this boot's result."""
        if text not in self.run.warnings:
            self.update(warnings=(*self.run.warnings, redact(text)[:_REASON_LIMIT]))

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Time one phase; a phase that ends by an exception is recorded as not completed."""
        self.update(phase=phase) if self.run.outcome is None else None
        self._on_phase(phase)
        started_at, started = utc_now(), time.monotonic()
        completed = False
        try:
            yield
            completed = True
        finally:
            duration = time.monotonic() - started
            self.append([PhaseRecord(self.run.run_id, phase, started_at, duration, completed)])

    def conclude(self, outcome: Outcome, reason: str | None, *, signature: str | None = None, excerpt: str | None = None) -> None:
        """Set how the boot ended. The first conclusion stands: what happens while cleaning up is a warning."""
        if self.run.outcome is not None:
            self.warn(f"after the outcome {self.run.outcome} was known: {reason}")
            return
        self.update(
            outcome=outcome,
            reason=redact(reason)[:_REASON_LIMIT] if reason else None,
            signature=signature,
            log_excerpt=redact(excerpt)[:_EXCERPT_LIMIT] if excerpt else None,
        )

    def note_memory_after_load(self) -> None:
        """Keep what the node's memory is once the model is loaded."""
        self.update(memory_after_load_bytes=used_memory_bytes())

    def note_memory_after_teardown(self, used_bytes: int | None) -> None:
        """Keep what the node's memory is once the server is gone, and the highest value seen while it lived."""
        self.update(memory_after_teardown_bytes=used_bytes, memory_peak_bytes=self._memory_peak, swap_used_bytes=self._swap_at_peak)

    def _note_peak(self, used_bytes: int) -> None:
        if used_bytes > (self._memory_peak or 0):
            self._memory_peak = used_bytes
            self._swap_at_peak = self._memory().swap_used_bytes

    def finish(self) -> None:
        """Write the final row and store the folder. A disk that takes nothing more is said in `unstored`."""
        if self._refused is not None:
            self.warn(f"not everything that followed the outcome could be written: {self._refused}")
        self._refused = None
        self.update(finished_at=utc_now())
        if self._refused is not None:
            self.unstored = f"the boot's folder could not be completed: {self._refused}"
            return
        self._store_now()

    def _write(self) -> None:
        with self._lock, self._tolerant():
            self.folder.write_summary(self._summary)

    @contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Once the outcome is known, a write that the disk refuses is noted in place of raised."""
        try:
            yield
        except OSError as error:
            if self.run.outcome is None:
                raise
            self._refused = error

    def _store_now(self) -> None:
        try:
            self._store.ingest(self.folder)
            self.unstored = None
        except StoreError as error:
            self.unstored = str(error)


def _without_secrets(row: BootRow, conceal: Callable[[str], str]) -> BootRow:
    texts = {f.name: value for f in dataclasses.fields(row) if isinstance(value := getattr(row, f.name), str)}
    changed = {name: clean for name, value in texts.items() if (clean := _cleaned(value, conceal)) != value}
    return dataclasses.replace(row, **changed) if changed else row


def _cleaned(value: Any, conceal: Callable[[str], str]) -> Any:
    """`value` with every text in it (also inside lists and mappings) concealed."""
    if isinstance(value, StrEnum):
        return value
    if isinstance(value, str):
        return conceal(value)
    if isinstance(value, dict):
        return {conceal(k) if isinstance(k, str) else k: _cleaned(v, conceal) for k, v in value.items()}
    return tuple(_cleaned(item, conceal) for item in value) if isinstance(value, tuple) else value
