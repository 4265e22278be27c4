"""The flags, choices and environment variables of every version that was read, from `facts/<engine>/*.csv`.

Trap: a recipe of March is a list of variables that November's release no longer reads. Rule: what a version knows is looked up in tables
extracted from that version's own source, never remembered. Tables hold spans such as `0.10.2..0.23.0`; `..` at the end means "still in the
newest version read".
"""

from __future__ import annotations

import csv
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from runners.engines.versions import Position, VersionRange, position, version_range
from runners.errors import UsageError

ENGINES = ("vllm", "sglang")


class UnknownEngineError(UsageError):
    """An engine nobody wrote facts for."""


@dataclass(frozen=True)
class FlagFact:
    """One spelling of one serve flag. `takes_value` is False for switches; `deprecated` is where the engine warns about it."""

    flag: str
    canonical: str
    takes_value: bool
    recognised: VersionRange
    deprecated: VersionRange | None
    replacement: str | None


@dataclass(frozen=True)
class Note:
    """What we have to say about a flag or variable: `versions` is where it holds, `level` error, warning or info."""

    name: str
    versions: VersionRange
    level: str
    message: str
    replacement: str | None
    source: str


@dataclass(frozen=True)
class FlagRegistry:
    """Everything known about one engine's command line and environment."""

    engine: str
    versions_read: tuple[str, ...]
    flags: Mapping[str, FlagFact]
    choices: Mapping[str, Mapping[str, VersionRange]]
    environment: Mapping[str, VersionRange]
    environment_choices: Mapping[str, Mapping[str, VersionRange]]
    server_args: Mapping[str, VersionRange]
    """Fields of the argument dump that SGLang prints at start (empty for vLLM)."""
    notes: tuple[Note, ...]

    def position(self, version: str) -> Position:
        """Where `version` stands among the versions read."""
        return position(version, self.versions_read)

    def effective(self, version: str) -> str:
        """The version whose facts answer for `version`: itself, its older neighbour, or the nearest end of what was read."""
        place = self.position(version)
        return place.before or place.after or self.versions_read[-1]

    def flags_of(self, version: str) -> list[str]:
        """All spellings that `version` accepts."""
        return list(_recognised(self.engine, "flags", self.effective(version)))

    def choices_of(self, flag: str, version: str) -> list[str] | None:
        """The values `flag` accepts in `version`; None when no list of choices was read for it."""
        table = self.choices.get(flag)
        if table is None:
            return None
        at = self.effective(version)
        return [choice for choice, span in table.items() if span.contains(at)] or None

    def environment_of(self, version: str) -> list[str]:
        """All variables of this engine that `version` reads."""
        return list(_recognised(self.engine, "environment", self.effective(version)))

    def notes_for(self, name: str, version: str) -> list[Note]:
        """Our notes on a flag or variable that hold for `version`."""
        at = self.effective(version)
        return [note for note in self.notes if note.name == name and note.versions.contains(at)]


@lru_cache(maxsize=8)
def registry(engine: str) -> FlagRegistry:
    """The tables of `engine` ("vllm" or "sglang"); raises UnknownEngineError with the nearest name."""
    if engine not in ENGINES:
        near = nearest(engine, ENGINES)
        raise UnknownEngineError(
            f"no facts for engine {engine!r}; known: {', '.join(ENGINES)}" + (f". Did you mean {near[0]}?" if near else "")
        )
    folder = files("runners.engines") / "facts" / engine
    flags = {row["flag"]: _flag_fact(row) for row in _rows(folder / "flags.csv")}
    return FlagRegistry(
        engine=engine,
        versions_read=tuple(row["version"] for row in _rows(folder / "versions.csv")),
        flags=flags,
        choices=_spans(_rows(folder / "choices.csv"), "flag", "choice"),
        environment={row["name"]: version_range(row["recognised_in"]) for row in _rows(folder / "environment.csv")},
        environment_choices=_spans(_rows(folder / "environment_choices.csv"), "name", "choice"),
        server_args={row["field"]: version_range(row["present_in"]) for row in _rows(folder / "server_args.csv")},
        notes=_notes(folder / "notes.toml"),
    )


@lru_cache(maxsize=256)
def _recognised(engine: str, table: str, version: str) -> tuple[str, ...]:
    """Names of one table that a version read knows; remembered, as a lint asks for them once per flag."""
    facts = registry(engine)
    spans = {name: fact.recognised for name, fact in facts.flags.items()} if table == "flags" else facts.environment
    return tuple(name for name, span in spans.items() if span.contains(version))


def nearest(word: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` names that look like `word`, best first."""
    return difflib.get_close_matches(word, list(names), n=count, cutoff=0.7)


def _rows(path: Traversable) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def _flag_fact(row: Mapping[str, str]) -> FlagFact:
    return FlagFact(
        flag=row["flag"],
        canonical=row["alias_of"] or row["flag"],
        takes_value=row["takes"] == "value",
        recognised=version_range(row["recognised_in"]),
        deprecated=version_range(row["deprecated_in"]) if row["deprecated_in"] else None,
        replacement=row["replacement"] or None,
    )


def _spans(rows: Iterable[Mapping[str, str]], key: str, value: str) -> dict[str, dict[str, VersionRange]]:
    table: dict[str, dict[str, VersionRange]] = {}
    for row in rows:
        table.setdefault(row[key], {})[row[value]] = version_range(row["recognised_in"])
    return table


def _notes(path: Traversable) -> tuple[Note, ...]:
    if not path.is_file():
        return ()
    return tuple(
        Note(
            name=row["name"],
            versions=version_range(row.get("versions", "any")),
            level=row.get("level", "warning"),
            message=row["message"],
            replacement=row.get("replacement"),
            source=row["source"],
        )
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["note"]
    )
