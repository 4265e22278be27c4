"""Ranges of engine versions, and where a version stands among the ones that were read.

Trap: "0.9 is older than 0.10" is false for strings, a fork's `0.1.dev21830+g1a2b` is no release at all, and a fact read in 0.24.0 and
0.25.1 says nothing for certain about 0.25.0. Rule: versions are compared by `packaging` only, ranges are inclusive and written
`0.17.0..0.23.0` or `0.17.0..` (still so in the newest version read), and every answer about a version nobody read says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from packaging.version import InvalidVersion, Version

from runners.errors import UsageError

ANY = ("any", "all", "-", "")


class VersionTextError(UsageError):
    """A version or range that cannot be read; the message shows the text and what was expected."""


@lru_cache(maxsize=4096)
def parse_version(text: str) -> Version:
    """`text` as a PEP 440 version (a leading "v" is accepted); raises VersionTextError otherwise."""
    try:
        return Version(text.strip())
    except InvalidVersion as error:
        raise VersionTextError(f"{text!r} is no version; expected something like 0.17.1 or 0.5.12.post1") from error


@lru_cache(maxsize=4096)
def release_of(version: Version) -> Version:
    """The release a version leads to or comes from: `0.19.2rc1.dev3+g12` gives `0.19.2`; `0.5.12.post1` is a release itself."""
    base = Version(version.base_version)
    return Version(f"{version.base_version}.post{version.post}") if version.post is not None else base


@dataclass(frozen=True)
class VersionRange:
    """Closed spans of versions; an empty `spans` contains every version. A bound of None is open."""

    spans: tuple[tuple[Version | None, Version | None], ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read `0.10.2..0.23.0; 0.31.0..`, `..0.16.0`, `0.28.0` or `any`; raises VersionTextError with the offending part."""
        if text.strip().lower() in ANY:
            return cls((), "any")
        return cls(tuple(_span(part.strip()) for part in text.split(";")), text.strip())

    def contains(self, version: str | Version) -> bool:
        """Whether the range covers `version` (release candidates and dev builds count as the release they lead to)."""
        if not self.spans:
            return True
        release = release_of(parse_version(version) if isinstance(version, str) else version)
        return any((low is None or low <= release) and (high is None or release <= high) for low, high in self.spans)

    def first(self) -> Version | None:
        """The oldest version of the range; None if it is open below."""
        return min((low for low, _ in self.spans if low is not None), default=None)

    def last(self) -> Version | None:
        """The newest version of the range; None if it is open above."""
        highs = [high for _, high in self.spans]
        return None if not highs or None in highs else max(high for high in highs if high is not None)


@lru_cache(maxsize=8192)
def version_range(text: str) -> VersionRange:
    """`VersionRange.parse`, remembered: the facts hold thousands of ranges and few distinct ones."""
    return VersionRange.parse(text)


def _span(part: str) -> tuple[Version | None, Version | None]:
    low, dots, high = part.partition("..")
    if not dots:
        return parse_version(part), parse_version(part)
    if not low.strip() and not high.strip():
        raise VersionTextError(f"range {part!r} has no bound; expected a..b, a.., ..b or any")
    low_version = parse_version(low) if low.strip() else None
    high_version = parse_version(high) if high.strip() else None
    if low_version is not None and high_version is not None and low_version > high_version:
        raise VersionTextError(f"range {part!r} runs backwards")
    return low_version, high_version


class Standing(StrEnum):
    """Where a version stands among the versions whose source was read."""

    READ = "read"
    BETWEEN = "between"
    NEWER = "newer"
    OLDER = "older"
    NO_RELEASE = "no_release"


@dataclass(frozen=True)
class Position:
    """`version` among the versions read; `before` and `after` are its neighbours."""

    version: str
    standing: Standing
    before: str | None
    after: str | None

    def sentence(self, engine: str) -> str | None:
        """What a reader must be told about facts for this version; None for a version that was read."""
        name = f"{engine} {self.version}"
        match self.standing:
            case Standing.READ:
                return None
            case Standing.BETWEEN:
                return f"{name} lies between versions read ({self.before} and {self.after}): its flags and variables are inferred from both"
            case Standing.NEWER:
                return f"{name} is newer than the newest version read ({self.before}): facts of {self.before} are assumed"
            case Standing.OLDER:
                return f"{name} is older than the oldest version read ({self.after}): facts of {self.after} are assumed"
            case Standing.NO_RELEASE:
                return f"{name} is not a release of {engine} (a fork or local build): the facts of releases may not hold"


def position(version: str, read: tuple[str, ...]) -> Position:
    """Where `version` stands among the versions `read` (ascending, not empty)."""
    parsed = parse_version(version)
    if _is_fork(parsed):
        return Position(version, Standing.NO_RELEASE, None, None)
    release = release_of(parsed)
    known = [parse_version(item) for item in read]
    before = max((item for item in known if item <= release), default=None)
    after = min((item for item in known if item >= release), default=None)
    if release in known and parsed.pre is None and parsed.dev is None:
        return Position(version, Standing.READ, str(before), str(after))
    if before is None:
        return Position(version, Standing.OLDER, None, str(after))
    if after is None:
        return Position(version, Standing.NEWER, str(before), None)
    return Position(version, Standing.BETWEEN, str(before), str(after))


def _is_fork(version: Version) -> bool:
    """Setuptools-scm counts a checkout without tags as 0.1.devN: no release, and not to be sorted among them."""
    return version.dev is not None and version.release[:2] in ((0, 1), (0, 0)) and version.pre is None
