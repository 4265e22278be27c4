"""Which container image serves a release when none was named. The knowledge is data, in `runners/engines/facts/images.toml`.

Trap: a moving tag ("latest", "nightly", "spark") is taken for a release, and its numbers are filed under the wrong version. Rule: a default
image comes from a row that covers the version, says how well it is known, and the server's own version decides in the end (M24).
"""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator

from runners.errors import UsageError
from suites.toml_files import SuiteModel, read_toml

_FACTS = Path(__file__).parents[1] / "engines" / "facts" / "images.toml"


class ImageFact(SuiteModel):
    """One row: `image` may hold `{version}`. `machines` are as `platform.machine()` names them; empty: any."""

    engine: str
    versions: str
    image: str = Field(pattern=r"^[a-z0-9][a-z0-9._/-]{1,200}:[A-Za-z0-9{}._-]{1,100}$")
    evidence: Literal["seen", "reported", "unverified"]
    source: str
    note: str = ""
    seen_for: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    @field_validator("versions")
    @classmethod
    def _is_specifier(cls, text: str) -> str:
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            raise ValueError(f'{text!r} is no range of versions; expected something like ">=0.20.0"') from None
        return text

    def covers(self, engine: str, version: Version, machine: str) -> bool:
        """Whether the row is for this release on this kind of machine."""
        return engine == self.engine and version in SpecifierSet(self.versions) and (not self.machines or machine in self.machines)


class _Images(SuiteModel):
    images: tuple[ImageFact, ...] = Field(min_length=1)


@lru_cache(maxsize=1)
def image_facts() -> tuple[ImageFact, ...]:
    """Every row, in the file's order. Raises SuiteError with file and line if the facts cannot be read."""
    return read_toml(_FACTS, _Images).images


def default_image(engine: str, version: str | None, machine: str | None = None) -> tuple[str, ImageFact]:
    """The image of a release and the fact it comes from. Raises UsageError where none is known: then the user must name one."""
    todo = f"Name one: {engine}=={version or 'VERSION'}@docker:IMAGE."
    if version is None:
        raise UsageError(f"a default image of {engine} needs a version.", todo=todo)
    try:
        wanted = Version(version)
    except InvalidVersion:
        raise UsageError(f"{version!r} is no release, so no default image of {engine} is known for it.", todo=todo) from None
    here = machine or platform.machine()
    for fact in image_facts():
        if wanted.local is None and not wanted.is_devrelease and fact.covers(engine, wanted, here):
            return fact.image.replace("{version}", version), fact
    raise UsageError(f"no image of {engine} {version} is known for {here}.", todo=todo)
