"""Read TOML suite files into models, with errors that name file, line and expectation.

Trap: a typo in a suite file is silently ignored and the wrong thing is measured for a night. Rule: unknown keys are errors, and every
error points at the line.
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from suites.errors import SuiteError
from suites.regular_file import not_regular

SOURCE = r"^\S.{2,200}$"
"""Pattern of a source: where a number comes from, in words."""

_MAX_BYTES = 1_000_000
_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_WORDS = re.compile(r"""\n|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[\[\]{},]|[^\S\n]+|[^\s\[\]{},"'#]+|["']""")
"""The words of a TOML value: line ends, strings, comments, brackets and commas, blanks, everything else."""
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-\"'.]+)\s*=")


class SuiteModel(BaseModel):
    """Base of everything read from a suite file: immutable, and a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)


def read_toml(path: Path, model: type[Model]) -> Model:
    """Read `path` as `model`. Raises SuiteError with `file:line`, what is wrong and what was expected."""
    try:
        if (what := not_regular(path)) is not None:
            raise SuiteError(f"{what}; a TOML file was expected", where=str(path))
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise SuiteError(f"is {size:,} bytes; a suite file has at most {_MAX_BYTES:,}", where=str(path))
        raw = path.read_bytes()
    except OSError as error:
        raise SuiteError(f"cannot be read: {error.strerror}", where=str(path)) from error
    try:
        text = raw.decode("utf-8")
        data = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise SuiteError(f"is not UTF-8 text (byte {error.start})", where=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        raise SuiteError(f"not valid TOML: {error}", where=f"{path}:{at.group(1)}" if at else str(path)) from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors = error.errors()
        first = next((e for e in errors if e["type"] in _UNKNOWN_KEY), errors[0])  # a typo also leaves its field missing
        location = tuple(first["loc"])
        line = line_of(text, location)
        raise SuiteError(_sentence(model, location, first["type"], first["msg"]), where=f"{path}:{line}" if line else str(path)) from error


def line_of(text: str, location: tuple[int | str, ...]) -> int | None:
    """The 1-based line of the value at `location` (table names, array indices, key), or of what is nearest to it; None if nowhere.

    An array that is written over several lines is looked into, because its inline tables are items of one line each.
    """
    names = [part for part in location if isinstance(part, str)]
    indices = [part for part in location if isinstance(part, int)]
    best: int | None = None
    table: list[str] = []
    seen: dict[str, int] = {}
    wanted_index = indices[0] if indices else 0
    in_scope = True
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            table = [part.strip().strip("\"'") for part in header.group(2).split(".")]
            if header.group(1) == "[[":
                seen[header.group(2)] = seen.get(header.group(2), -1) + 1
            in_scope = table == names[: len(table)] and seen.get(header.group(2), wanted_index) == wanted_index
            if in_scope:
                best = number
            continue
        key = _KEY.match(line)
        if key and in_scope:
            path = table + [part.strip("\"'") for part in key.group(1).split(".")]
            if path == names[: len(path)] and len(path) > len(table):
                return _item_line(text, number, _index_after(location, len(path))) or number
    return best


def _index_after(location: tuple[int | str, ...], names: int) -> int | None:
    """The array index that directly follows the first `names` names of a location."""
    position = [at for at, part in enumerate(location) if isinstance(part, str)][names - 1] + 1
    following = location[position] if position < len(location) else None
    return following if isinstance(following, int) else None


def _item_line(text: str, key_line: int, index: int | None) -> int | None:
    """The line on which item `index` of the array at `key_line` begins; None where this is no array that is easily read."""
    value = "\n".join(text.splitlines()[key_line - 1 :]).partition("=")[2]
    if index is None or not value.lstrip().startswith("["):
        return None
    line, depth, item, begun = key_line, 0, 0, False
    for word in _WORDS.findall(value):
        if word == "\n":
            line += 1
        elif word in "])}" or word == ",":
            depth -= word != ","
            if depth == 0:
                return None
            if word == "," and depth == 1:
                item, begun = item + 1, False
        elif not word.isspace() and not word.startswith("#"):
            if depth == 1 and not begun and item == index:
                return line
            begun = begun or depth == 1
            depth += word in "[{"
    return None


def _sentence(model: type[BaseModel], location: tuple[int | str, ...], kind: str, message: str) -> str:
    name = ".".join(str(part) for part in location) or "the file"
    if kind in _UNKNOWN_KEY:
        close = get_close_matches(str(location[-1]), _keys(model), n=1)
        return f"unknown key {name!r}." + (f" Did you mean {close[0]!r}?" if close else "")
    return f"{name}: {message.removeprefix('Value error, ')}"


def _keys(model: type[BaseModel]) -> list[str]:
    """Every key that `model` knows at any depth; its types may be nested (`dict[str, tuple[Inner, ...]]`)."""
    keys: dict[str, None] = {}
    waiting: list[Any] = [model]
    seen: list[Any] = []
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.append(kind)
        waiting += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, info in kind.model_fields.items():
                keys[name] = None
                waiting.append(info.annotation)
    return list(keys)
