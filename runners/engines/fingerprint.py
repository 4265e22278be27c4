"""A stable name for a failure that no catalogue row knows.

Trap: the same crash never has the same text twice: addresses, process ids, paths, shapes, ports and times differ in every log, so a hash
of the text tells nothing. Rule: only what decides is hashed (the exception's type and words, and the innermost frames as file name and
function) after everything that varies from run to run has been replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from runners.engines.log_lines import MAX_LINE, read_line

FRAMES = 3
"""Innermost frames that take part in the hash."""

MAX_BLOCK_LINES = 2_000
"""Lines of one traceback that are kept in mind."""

TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(r' {0,40}File "(?P<path>[^"\n]{1,600})", line \d{1,9}(?:, in (?P<function>.{1,160}))?$')
_EXCEPTION = re.compile(
    r"(?P<type>[A-Za-z_][A-Za-z0-9_.]{0,160}?"
    r"(?:Error|Exception|Interrupt|Exit|Warning|Failure|Failed|Timeout|NotFound|Unavailable))(?::(?: |$)(?P<text>.{0,4000})|$)"
)
_CAUSED = "The above exception was the direct cause of the following exception:"
_HANDLED = "During handling of the above exception, another exception occurred:"
_ERROR_WORDS = re.compile(r"(?i)\b(?:error|fatal|exception|abort(?:ed)?|assert(?:ion)?|segfault|fault|failed|killed)\b")

_REPLACEMENTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s'\"<>]{1,400}"), "<address>"),
    (re.compile(r"\b0[xX][0-9a-fA-F]{1,32}\b"), "<address>"),
    (re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"), "<address>"),
    (re.compile(r"\b(?:\d{4}-)?\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"), "<time>"),
    (re.compile(r"\b\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"), "<time>"),
    (re.compile(r"(?<![\w<])(?:[A-Za-z]:)?(?:[~.\w@+-]{0,80}[/\\]){1,40}[\w.@+-]{1,160}(?::\d{1,7}){0,2}"), "<path>"),
    (re.compile(r"\b(?=[0-9a-f]{0,63}\d)[0-9a-f]{12,64}\b"), "<hex>"),
    (re.compile(r"(?<![\w.<-])-?\d{1,24}(?:[,_]\d{1,24}){0,8}(?:\.\d{1,24})?(?:[eE][+-]?\d{1,4})?(?![\w.])"), "#"),
    (re.compile(r"(?<![\w.<-])-?\d{1,24}(?:[,_]\d{1,24}){0,8}(?:\.\d{1,24})?(?=\s?(?:[KMGT]i?B|ms|us|s|MHz|GHz|W|%)(?!\w))"), "#"),
    (re.compile(r"[\[(]#(?:, ?#){0,60},?[\])]"), "<shape>"),
    (re.compile(r"[ \t]{2,80}"), " "),
)


@dataclass
class TracebackBlock:
    """One traceback with everything chained to it, without log prefixes. `line_no` is the decisive exception line's number in the log.

    Of exceptions that caused each other the first decides. One that was being handled when the next was raised was an attempt that may fail
    (an optional import): there the one that got out decides.
    """

    line_no: int = 0
    exception: str = ""
    exception_type: str = ""
    text: str = ""
    frames: list[str] = field(default_factory=list)
    open: bool = True
    lines: int = 0
    _in_frames: bool = True

    def feed(self, line_no: int, message: str) -> None:
        """Take the next message of the same process; closes the block when it belongs to something else."""
        self.lines += 1
        if self.lines > MAX_BLOCK_LINES:
            self.open = False
            return
        if (frame := _FRAME.match(message)) is not None:
            if not self.exception:
                self.frames.append(f"{frame['path'].replace(chr(92), '/').rsplit('/', 1)[-1]}:{frame['function'] or ''}")
            self._in_frames = True
        elif message.startswith(_HANDLED):
            self.exception, self.frames, self._in_frames = "", [], True
        elif message.startswith((TRACEBACK, _CAUSED)):
            self._in_frames = True
        elif self._in_frames:
            self._maybe_exception(line_no, message)
        elif message.strip() and not message.startswith((" ", "\t")):
            self.open = False

    def _maybe_exception(self, line_no: int, message: str) -> None:
        if not message.strip() or message.startswith((" ", "\t")):
            return
        self._in_frames = False
        found = _EXCEPTION.match(message)
        if self.exception:
            return
        if found is None:
            self.open = False
            return
        self.line_no, self.exception = line_no, message[:MAX_LINE]
        self.exception_type, self.text = found["type"].rsplit(".", 1)[-1], found["text"] or ""

    def fingerprint(self) -> str:
        """`AttributeError-1a2b3c4d5e6f`: the exception's type and a hash of type, words and innermost frames."""
        return _name(self.exception_type or "failure", [*self.frames[-FRAMES:], self.exception_type, normalise(self.text)])


def normalise(text: str) -> str:
    """`text` without addresses, ids, paths, times, numbers and shapes (kernel names such as sm_121 or fp8 stay)."""
    text = text[:MAX_LINE]
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text.strip()


def fingerprint(lines: Iterable[str]) -> str:
    """Stable name of the failure that `lines` of a log show: its first complete traceback, else its first line that names an error.

    The result is the exception's type (or "failure") and 12 hexadecimal digits; it does not change with addresses, process ids, paths,
    shapes, times and line numbers. Lines that say nothing of an error give "unknown".
    """
    block: TracebackBlock | None = None
    first_error: str | None = None
    for number, raw in enumerate(lines, 1):
        message = read_line(raw).message
        if block is None and TRACEBACK in message:
            block = TracebackBlock()
            continue
        if block is not None and block.open:
            block.feed(number, message)
            continue
        if block is not None and block.exception:
            break
        if first_error is None and _ERROR_WORDS.search(message):
            first_error = message
    if block is not None and block.exception:
        return block.fingerprint()
    return name_line(first_error) if first_error is not None else "unknown"


def name_line(message: str) -> str:
    """Stable name of one decisive message that comes without a traceback."""
    found = _EXCEPTION.match(message)
    kind = found["type"].rsplit(".", 1)[-1] if found is not None else "failure"
    return _name(kind, [normalise(message)])


def _name(kind: str, parts: Sequence[str]) -> str:
    return f"{kind[:60]}-{hashlib.sha256(chr(10).join(parts).encode('utf-8', 'replace')).hexdigest()[:12]}"
