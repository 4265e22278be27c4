"""Judge outputs that somebody saved, without any server.

Trap: a transcript that is half readable is judged as if it were whole, or a judge without a reference calls a fluent answer wrong. Rule: a
file is refused with line and expectation before anything is judged, and only a golden text can make an answer `wrong`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from runners.coherence.golden import GoldenKind
from runners.coherence.structural import judge_text
from runners.coherence.units import shown
from runners.errors import UsageError

MOST_BYTES = 256 << 20
EXPECTED = 'Give a JSON list of {"name": ..., "text": ...}, or plain text in UTF-8.'
_LIST_OF_OBJECTS = re.compile(r"\s*\[\s*[{\]]")
_BETWEEN = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class SavedOutput:
    """One saved answer. `finish_reason` "stop" says that it ended by itself; None: not known."""

    name: str
    text: str
    finish_reason: str | None = None


@dataclass(frozen=True)
class SavedVerdict:
    """What one saved answer is. `kind` is a structural kind, or `match` or `wrong` where a golden text exists.

    `position` is the character where the broken part begins, or the first one that differs from the nearest golden text.
    """

    name: str
    kind: str
    reason: str
    position: int | None
    numbers: Mapping[str, float] = field(default_factory=dict)
    broken: bool = False

    @property
    def bad(self) -> bool:
        """Broken, or not the golden text."""
        return self.broken or self.kind == GoldenKind.WRONG


def read_outputs(raw: bytes, where: str) -> tuple[SavedOutput, ...]:
    """The outputs of a file: a JSON list, or else plain text as one output called `text`. Raises UsageError with `where` and line."""
    if len(raw) > MOST_BYTES:
        raise UsageError(f"is {len(raw):,} bytes; at most {MOST_BYTES:,} are judged at once.", where=where, todo="Split the file.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"is not UTF-8 text (byte {error.start}).", where=f"{where}:{line}", todo=EXPECTED) from error
    if where.lower().endswith(".json") or _LIST_OF_OBJECTS.match(text):
        return _outputs_of_list(text, where)
    return (SavedOutput("text", text),)


def read_golden(raw: bytes, where: str) -> dict[str, tuple[str, ...]]:
    """Golden texts by name; several entries of one name are alternatives. Raises UsageError."""
    golden: dict[str, tuple[str, ...]] = {}
    for output in read_outputs(raw, where):
        golden[output.name] = (*golden.get(output.name, ()), output.text)
    return golden


def judge_saved(outputs: Sequence[SavedOutput], golden: Mapping[str, Sequence[str]] | None = None) -> list[SavedVerdict]:
    """Judge every output, in order. Without a golden text of its name an output is never `wrong`."""
    return [_judged(output, (golden or {}).get(output.name, ())) for output in outputs]


def _judged(output: SavedOutput, golden: Sequence[str]) -> SavedVerdict:
    if output.text in golden:
        return SavedVerdict(output.name, GoldenKind.MATCH, "The text is the golden one.", None, {"chars": len(output.text)})
    verdict = judge_text(output.text, finish_reason=output.finish_reason)
    if verdict.broken or not golden:
        return SavedVerdict(output.name, verdict.kind, verdict.reason, verdict.position, verdict.numbers, verdict.broken)
    position, nearest = max(((_same(output.text, text), text) for text in golden), key=lambda pair: pair[0])
    reason = f"Character {position} is {_at(output.text, position)} and should be {_at(nearest, position)}."
    return SavedVerdict(output.name, GoldenKind.WRONG, reason, position, {"chars": len(output.text)})


def _same(text: str, other: str) -> int:
    """How many characters from the beginning are the same."""
    return next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))


def _at(text: str, position: int) -> str:
    return shown(text[position : position + 12]) if position < len(text) else "the end"


def _outputs_of_list(text: str, where: str) -> tuple[SavedOutput, ...]:
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise _refused(text, at, where, f"a list should begin here, found {_found(text, at)}")
    outputs: list[SavedOutput] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        if outputs:
            if text[at : at + 1] != ",":
                raise _refused(text, at, where, f"item {len(outputs)} should be followed by a comma or ], found {_found(text, at)}")
            at = _skip(text, at + 1)
        item, end = _decoded(text, at, where)
        outputs.append(_output(item, len(outputs), partial(_refused, text, at, where)))
        at = _skip(text, end)
    rest = _skip(text, at + 1)
    if rest < len(text):
        raise _refused(text, rest, where, f"nothing should follow the list, found {_found(text, rest)}")
    if not outputs:
        raise UsageError("the list holds no output to judge.", where=where, todo=EXPECTED)
    return tuple(outputs)


def _decoded(text: str, at: int, where: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _refused(text, error.pos, where, f"not valid JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise _refused(text, at, where, f"JSON that cannot be read: {type(error).__name__}") from error


def _output(item: Any, number: int, refused: Callable[[str], UsageError]) -> SavedOutput:
    if not isinstance(item, dict):
        raise refused(f"item {number + 1} is {_kind(item)} and should be an object with name and text")
    name, text, finish = item.get("name"), item.get("text", 0), item.get("finish_reason")
    if not isinstance(name, str):
        raise refused(f"item {number + 1}: name is {_kind(name) if 'name' in item else 'missing'} and should be a text")
    if text is not None and not isinstance(text, str):
        raise refused(f"item {number + 1}: text is {_kind(text) if 'text' in item else 'missing'} and should be a text or null")
    printable = name.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate can be written in JSON, but not printed
    return SavedOutput(printable, text or "", finish if isinstance(finish, str) else None)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _skip(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _found(text: str, at: int) -> str:
    return shown(text[at : at + 20]) if at < len(text) else "the end of the file"


def _refused(text: str, at: int, where: str, what: str) -> UsageError:
    return UsageError(f"{what}.", where=f"{where}:{text.count(chr(10), 0, at) + 1}", todo=EXPECTED)
