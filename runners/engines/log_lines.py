"""One log line of an engine without its prefix, and lines of any log within bounds.

Trap: the same sentence comes with a process tag, a date, a file and line number, colours, a container's name, or none of them, and all of
that changes between releases. Rule: everything reads the bare message, never the prefix (file:line least of all); a line is cut at
`MAX_LINE` characters and a log is never read as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import IO

MAX_LINE = 32_768
"""Characters of one line that are looked at. The longest useful one, the argument dump of SGLang 0.5.23, has about 19,000."""

MAX_SHAPES = 20_000
MAX_SHAPE = 600
"""Uneventful lines (digits folded) that are remembered: how many, and the longest."""

_FOLD_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_ANSI = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]")
_CONTAINER = re.compile(
    r"(?:[A-Za-z0-9_.-]{1,80} {1,20}\| |\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) |"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [A-Za-z0-9_.-]{1,80} [A-Za-z0-9_./-]{1,80}\[\d{1,10}\]: )"
)
_TAG = re.compile(
    r"\((?P<process>[A-Za-z][A-Za-z0-9_.-]{0,60}(?: [A-Za-z][A-Za-z0-9_=-]{0,20})?) pid=\d{1,10}(?:, ip=[0-9a-fA-F.:]{1,45})?\) ?"
)
_VLLM = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL) {1,4}(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})? "
    r"\[[A-Za-z0-9_./<>-]{1,160}:\d{1,6}\] ?"
)
_SGLANG = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?P<ranks>(?: [A-Z]{2,4}\d{1,4}){0,6})\] ?")
_LOGGING = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{1,6} - (?P<level>[A-Z]{4,8}) - [A-Za-z0-9_.]{1,80}:\d{1,6} - ")


@dataclass(frozen=True)
class LogLine:
    """`message` is the text after every known prefix, its own indentation kept; `process` is the vLLM tag (EngineCore, APIServer...)."""

    message: str
    process: str | None = None
    level: str | None = None
    logged: bool = False
    """True when a logger wrote it (it carried a level or a time), False for bare output such as a traceback on stderr."""


def read_line(line: str) -> LogLine:
    """Strip colours, container and logger prefixes from one line; of a line redrawn with carriage returns the last state counts."""
    text = line[:MAX_LINE].rstrip("\r\n")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "\r" in text:
        text = text.rsplit("\r", 1)[-1]
    process: str | None = None
    start = 0
    if (found := _CONTAINER.match(text)) is not None:
        start = found.end()
    while (found := _TAG.match(text, start)) is not None:
        process, start = found.group("process"), found.end()
    for pattern in (_VLLM, _SGLANG, _LOGGING):
        if (found := pattern.match(text, start)) is not None:
            level = found.groupdict().get("level")
            return LogLine(text[found.end() :], process, level, logged=True)
    return LogLine(text[start:], process)


def bounded_lines(stream: IO[bytes], chunk_bytes: int = 1 << 20) -> Iterator[str]:
    """Lines of a binary stream with bounded memory: bytes that are no UTF-8 are replaced, a line's characters beyond `MAX_LINE` are
    dropped.

    Only line feeds end a line, so that line numbers are those of an editor.
    """
    tail = b""
    skipping = False
    while chunk := stream.read(chunk_bytes):
        parts = (tail + chunk).split(b"\n")
        tail = parts.pop()
        for part in parts:
            if skipping:
                skipping = False
                continue
            yield part[: MAX_LINE * 4].decode("utf-8", "replace")[:MAX_LINE]
        if len(tail) > MAX_LINE * 4:
            if not skipping:
                yield tail[: MAX_LINE * 4].decode("utf-8", "replace")[:MAX_LINE]
            skipping, tail = True, b""
    if tail and not skipping:
        yield tail.decode("utf-8", "replace")[:MAX_LINE]


def split_lines(text: str) -> Iterable[str]:
    """Lines of a log held as text; only line feeds end a line."""
    return text.split("\n")


def scan(
    lines: Iterable[str], anchors: Collection[str], all_wanted: Callable[[], bool], batch_chars: int = 1 << 17
) -> Iterator[tuple[int, str]]:
    """(line number from 1, line) of every line that holds an anchor, and of every line while `all_wanted()` is true.

    A running server repeats a few lines for days with other numbers in them: a line that is equal to an uneventful one but for its digits
    is skipped at once (anchors are compared with digits folded too, so none is missed). The rest is looked at in batches. `anchors` may
    shrink.
    """
    uneventful: set[bytes] = set()
    batch: list[tuple[int, str, bytes]] = []
    size = 0
    for number, line in enumerate(lines, 1):
        shape = _fold(line)
        if shape in uneventful and not batch and not all_wanted():
            continue
        if shape in uneventful and not all_wanted():
            shape = b""
        batch.append((number, line, shape))
        size += len(line) + 1
        if size >= batch_chars:
            yield from _scan_batch(batch, anchors, all_wanted, uneventful)
            batch, size = [], 0
    yield from _scan_batch(batch, anchors, all_wanted, uneventful)


def _scan_batch(
    batch: Sequence[tuple[int, str, bytes]], anchors: Collection[str], all_wanted: Callable[[], bool], uneventful: set[bytes]
) -> Iterator[tuple[int, str]]:
    text = b"\n".join(dict.fromkeys(shape for _, _, shape in batch))
    words = set(text.split())
    found = [folded for folded, word in map(_folded_anchor, anchors) if (not word or word in words) and folded in text]
    if not found and not all_wanted():
        _remember(uneventful, (shape for _, _, shape in batch))
        return
    for number, line, shape in batch:
        if all_wanted() or any(anchor in shape for anchor in found):
            yield number, line
        elif shape:
            _remember(uneventful, (shape,))


def _remember(uneventful: set[bytes], shapes: Iterable[bytes]) -> None:
    if len(uneventful) < MAX_SHAPES:
        uneventful.update(shape for shape in shapes if len(shape) <= MAX_SHAPE)


@lru_cache(maxsize=4096)
def _folded_anchor(anchor: str) -> tuple[bytes, bytes]:
    """The anchor with digits folded, and its longest word that stands between blanks: a batch without that word need not be searched."""
    folded = _fold(anchor)
    return folded, max(folded.split(b" ")[1:-1], key=len, default=b"")


def _fold(text: str) -> bytes:
    """`text` with every digit as 0; bytes, as they are translated at once."""
    return text.encode("utf-8", "replace").translate(_FOLD_DIGITS)
