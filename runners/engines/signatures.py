"""What ended a server, in one line: the first cause, not the cascade that follows it.

Trap: vLLM's last line is always "Engine core initialization failed. See root cause above", an ordinary SIGTERM prints EngineDeadError,
and a log holds tracebacks of single requests and sentences that users sent. Rule: the catalogue (`facts/signatures.toml`) is read against
messages only, never against text that quotes a request; reading ends where the server was told to stop; a cause beats the symptom just
before it, and both beat a line that merely says something failed above. What no row knows gets a fingerprint, never a guess.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from results.vocabulary import Outcome
from runners.engines.fingerprint import TRACEBACK, TracebackBlock
from runners.engines.log_lines import LogLine, read_line, scan
from runners.engines.versions import VersionRange, VersionTextError, version_range

LOG_SCOPE = "server_log"
CAUSE, SYMPTOM, GENERIC = 0, 1, 2
LOOK_AHEAD = 400
"""Lines after a symptom within which a named cause replaces it."""

MAX_EVENTS = 500
"""Fatal lines of one server that are kept in mind; the first ones decide."""

MAX_OPEN_LINES = 5_000
"""Lines after which a traceback whose process says nothing more is taken as complete."""

EXCERPT = 600


@dataclass(frozen=True)
class Diagnosis:
    """One finding. `signature` is a catalogue id or, for a failure nobody catalogued, a fingerprint (`known` is False then).

    `outcome` is what a boot that ends on it is; None for findings that end nothing. `line_no` counts from 1.
    """

    signature: str
    known: bool
    failure_class: str
    outcome: Outcome | None
    level: str
    meaning: str
    advice: str
    source: str
    line_no: int
    excerpt: str


@dataclass(frozen=True)
class SignatureRow:
    """One row of the catalogue; `pattern` is None where a row describes something that no log shows."""

    id: str
    scope: str
    engine: str
    versions: VersionRange
    seen_in: str
    failure_class: str
    outcome: Outcome | None
    level: str
    rank: int
    fragment: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str] | None
    before_ready: bool
    meaning: str
    advice: str
    source: str

    def matches(self, message: str) -> bool:
        """Whether `message` is a case of this row."""
        return self.pattern is not None and any(anchor in message for anchor in self.anchors) and self.pattern.search(message) is not None

    def at(self, line_no: int, excerpt: str) -> Diagnosis:
        """This row as a finding at one line."""
        return Diagnosis(
            self.id, True, self.failure_class, self.outcome, self.level, self.meaning, self.advice, self.source, line_no, excerpt[:EXCERPT]
        )


@dataclass(frozen=True)
class Markers:
    """Literal texts that say where in its life a server is. An engine that is not known has the texts of all engines."""

    ready: tuple[str, ...]
    stop: tuple[str, ...]
    start: tuple[str, ...]
    fatal_header: tuple[str, ...]
    terminal: tuple[str, ...]
    request_header: tuple[str, ...]
    quoted_starts: tuple[str, ...]


@dataclass(frozen=True)
class Catalogue:
    """All rows, in the order in which they are tried, and the markers."""

    rows: tuple[SignatureRow, ...]
    markers: Mapping[str, Mapping[str, tuple[str, ...]]]
    refusal_types: frozenset[str]
    refusal: re.Pattern[str]

    def log_rows(self, engine: str | None, version: str | None) -> tuple[SignatureRow, ...]:
        """Rows that apply to a log of `engine`: causes first, and among equals those known to occur in `version`."""
        rows = [
            row
            for row in self.rows
            if row.scope == LOG_SCOPE and row.pattern is not None and (engine is None or row.engine in (engine, "any"))
        ]
        return tuple(sorted(rows, key=lambda row: (row.rank, not _covers(row.versions, version))))

    def markers_of(self, engine: str | None) -> Markers:
        """The markers of `engine` (None: of every engine)."""

        def texts(name: str) -> tuple[str, ...]:
            table = self.markers[name]
            return tuple(text for key, values in table.items() if engine is None or key in (engine, "any") for text in values)

        return Markers(*(texts(name) for name in Markers.__dataclass_fields__))


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    """The catalogue, read once."""
    data = tomllib.loads((files("runners.engines") / "facts" / "signatures.toml").read_text(encoding="utf-8"))
    markers = {name: {engine: tuple(texts) for engine, texts in table.items()} for name, table in data["markers"].items()}
    return Catalogue(
        rows=tuple(_row(entry) for entry in data["signature"]),
        markers=markers,
        refusal_types=frozenset(data["refusal"]["types"]),
        refusal=re.compile(data["refusal"]["pattern"]),
    )


def _row(entry: Mapping[str, Any]) -> SignatureRow:
    return SignatureRow(
        id=entry["id"],
        scope=entry["scope"],
        engine=entry["engine"],
        versions=version_range(entry["versions"]),
        seen_in=entry.get("seen_in", ""),
        failure_class=entry["class"],
        outcome=Outcome(entry["outcome"]) if "outcome" in entry else None,
        level=entry["level"],
        rank=entry.get("rank", CAUSE),
        fragment=entry["fragment"],
        anchors=tuple(entry["anchors"]),
        pattern=re.compile(entry["pattern"]) if entry.get("pattern") else None,
        before_ready=entry.get("before_ready", False),
        meaning=entry["meaning"],
        advice=entry["advice"],
        source=entry["source"],
    )


def _covers(versions: VersionRange, version: str | None) -> bool:
    try:
        return version is None or versions.contains(version)
    except VersionTextError:
        return True


@dataclass(frozen=True)
class _Event:
    rank: int
    line_no: int
    diagnosis: Diagnosis


@dataclass
class SignatureReader:
    """Reads one log from start to end; feed it the lines that `scan` yields for `anchors()` and `wants_all`, then ask for `failure`."""

    engine: str | None
    version: str | None = None
    stop_at: int | None = None
    ready_line: int | None = None
    stop_line: int | None = None
    findings: dict[str, Diagnosis] = field(default_factory=dict)
    """First occurrence of each warning and information row, by id."""
    _events: list[_Event] = field(default_factory=list)
    _bare: list[_Event] = field(default_factory=list)
    _blocks: dict[str | None, tuple[TracebackBlock, bool, int]] = field(default_factory=dict)
    _header: dict[str | None, tuple[int, bool]] = field(default_factory=dict)
    _terminal_line: int | None = None
    _active: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._rows = catalogue().log_rows(self.engine, self.version)
        self._markers = catalogue().markers_of(self.engine)
        self._active |= {anchor for row in self._rows for anchor in row.anchors} | {TRACEBACK}
        for texts in (self._markers.ready, self._markers.stop, self._markers.start, self._markers.fatal_header, self._markers.terminal):
            self._active |= set(texts)
        self._active |= set(self._markers.request_header)

    def anchors(self) -> set[str]:
        """Literals of which a line must hold one; the set shrinks while reading, as a warning is kept once."""
        return self._active

    def wants_all(self) -> bool:
        """True while a traceback is open: its lines carry no anchor."""
        return bool(self._blocks)

    def feed(self, line_no: int, raw: str) -> None:
        """Take one line (`line_no` from 1, ascending)."""
        if self.stop_at is not None and line_no > self.stop_at:
            return
        line = read_line(raw)
        message = line.message
        if self.stop_line is not None:
            if not any(text in message for text in self._markers.start):
                return
            self._restart()
        if message.startswith(self._markers.quoted_starts):
            return
        self._feed_blocks(line_no, line)
        if self._feed_markers(line_no, line):
            return
        self._match(line_no, message)

    def finish(self) -> None:
        """Close what is still open at the end of the log."""
        for process in list(self._blocks):
            self._close(process)

    def failure(self) -> Diagnosis | None:
        """The first cause of the failure this log ends on; None when it shows none."""
        self.finish()
        named = sorted((event for event in self._events if event.rank < GENERIC), key=lambda event: event.line_no)
        if named:
            first = named[0]
            until = min(first.line_no + LOOK_AHEAD, self._terminal_line or first.line_no + LOOK_AHEAD)
            return next((event for event in named if event.rank == CAUSE and event.line_no <= until), first).diagnosis
        if self._bare and self.ready_line is None:
            return self._bare[0].diagnosis
        return min(self._events, key=lambda event: event.line_no).diagnosis if self._events else None

    def only_generic(self) -> bool:
        """True when lines say that something failed and none says what: an ordinary stop prints the same."""
        return bool(self._events) and all(event.rank == GENERIC for event in self._events) and not (self._bare and self.ready_line is None)

    def _restart(self) -> None:
        """A new start after a stop: earlier findings concern an earlier server."""
        self.stop_line = self.ready_line = self._terminal_line = None
        self._events.clear()
        self._bare.clear()
        self._blocks.clear()
        self._header.clear()

    def _feed_markers(self, line_no: int, line: LogLine) -> bool:
        """Note what the line says about the server's life; True when nothing else should be read in it."""
        message, marks = line.message, self._markers
        if any(text in message for text in marks.stop):
            self.finish()
            self.stop_line = line_no
            return True
        if any(text in message for text in marks.ready):
            self.finish()
            self.ready_line = line_no
            self._events.clear()
            self._bare.clear()
            return True
        if any(text in message for text in marks.terminal) and self._terminal_line is None and self._events:
            self._terminal_line = line_no
        if any(text in message for text in marks.request_header):
            self._header[line.process] = (line_no, False)
        elif any(text in message for text in marks.fatal_header):
            self._header[line.process] = (line_no, True)
        if TRACEBACK in message and line.process not in self._blocks:
            header_no, fatal = self._header.pop(line.process, (0, False))
            near = header_no and line_no - header_no <= 3
            if not (near and not fatal):
                self._blocks[line.process] = (TracebackBlock(), bool(near and fatal), line_no)
        return False

    def _feed_blocks(self, line_no: int, line: LogLine) -> None:
        for process in [name for name, (_, _, first) in self._blocks.items() if line_no - first > MAX_OPEN_LINES]:
            self._close(process)
        entry = self._blocks.get(line.process)
        if entry is None:
            return
        block = entry[0]
        block.feed(line_no, line.message)
        if not block.open:
            self._close(line.process)

    def _close(self, process: str | None) -> None:
        block, fatal, first_line = self._blocks.pop(process)
        if not block.exception or any(event.line_no >= first_line and event.rank < GENERIC for event in self._events):
            return
        if any(row.rank == GENERIC and row.matches(block.exception) for row in self._rows):
            return
        kept = self._events if fatal else self._bare
        if len(kept) < MAX_EVENTS:
            kept.append(_Event(SYMPTOM, block.line_no, _unknown(block)))

    def _match(self, line_no: int, message: str) -> None:
        for row in self._rows:
            if row.level != "fatal" and row.id in self.findings:
                continue
            if not row.matches(message) or (row.before_ready and self.ready_line is not None):
                continue
            if row.level == "fatal":
                if len(self._events) < MAX_EVENTS:
                    self._events.append(_Event(row.rank, line_no, row.at(line_no, message)))
                return
            self.findings[row.id] = row.at(line_no, message)
            self._retire(row)

    def _retire(self, row: SignatureRow) -> None:
        """A finding is kept once; its anchors need not be looked for again unless another row still needs them."""
        needed = {anchor for other in self._rows if other.level == "fatal" or other.id not in self.findings for anchor in other.anchors}
        marks = self._markers
        needed |= {
            text
            for texts in (marks.ready, marks.stop, marks.start, marks.fatal_header, marks.terminal, marks.request_header)
            for text in texts
        }
        self._active -= {anchor for anchor in row.anchors if anchor not in needed}


def _unknown(block: TracebackBlock) -> Diagnosis:
    """A failure that no row knows; it is a refusal when the engine's own words say so."""
    known = catalogue()
    refused = block.exception_type in known.refusal_types and known.refusal.search(block.text) is not None
    return Diagnosis(
        signature=block.fingerprint(),
        known=False,
        failure_class="refusal" if refused else "unknown crash",
        outcome=Outcome.UNSUPPORTED if refused else Outcome.CRASH,
        level="fatal",
        meaning=(
            "The engine refused this configuration; no row of the catalogue describes the case."
            if refused
            else "The engine ended on an exception that no row of the catalogue describes."
        ),
        advice=(
            "Read the reason in the line itself and take another backend, format or version."
            if refused
            else "Search the engine's tracker for the exception; the fingerprint finds the same crash in other versions' boots."
        ),
        source="this log",
        line_no=block.line_no,
        excerpt=block.exception[:EXCERPT],
    )


def read_signatures(engine: str | None, version: str | None, lines: Iterable[str], stop_at: int | None = None) -> SignatureReader:
    """Read a whole log; the reader then knows `failure()`, `findings`, `ready_line` and `stop_line`."""
    reader = SignatureReader(engine, version, stop_at)
    for number, line in scan(lines, reader.anchors(), reader.wants_all):
        reader.feed(number, line)
    reader.finish()
    return reader


def classify(engine: str | None, version: str | None, lines: Iterable[str], *, stop_at: int | None = None) -> Diagnosis | None:
    """The failure that `lines` end on, or None when they show none.

    `stop_at` is the number of lines that were in the log when the stop signal was sent: later ones are not read. A stop that the log itself
    announces ends the reading too. `version` decides between rows that match one line: those known to occur in it come first.
    """
    return read_signatures(engine, version, lines, stop_at).failure()
