"""Which version strings are releases, and their order.

Trap: a fork build such as `0.1.dev21830+gabc` sorts before every release and becomes "the version that broke it". Rule: only a published
PEP 440 version has a place in the order; everything else is left out by name and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from packaging.version import InvalidVersion, Version

_PLATFORM_LABEL = re.compile(r"(cu|rocm|cpu)[0-9]{0,4}")
"""Local labels that name the platform of a published wheel (`0.11.0+cu130`), not a fork."""


@dataclass(frozen=True)
class ReleaseOrder:
    """Releases oldest first, each once, and the release that each admitted version string means.

    `v0.11`, `0.11.0` and `0.11.0+cu130` are one release, spelled the longest way without label (`0.11.0`).
    """

    names: tuple[str, ...]
    name_of: Mapping[str, str]


def order_releases(texts: Iterable[str]) -> ReleaseOrder:
    """The order of the releases among `texts`; strings that are no release are missing from `name_of`."""
    versions = {text: version for text in texts if (version := _release(text)) is not None}
    spelling: dict[Version, str] = {}
    for version in versions.values():
        spelling[version] = max(spelling.get(version, ""), version.public, key=len)
    return ReleaseOrder(
        names=tuple(spelling[version] for version in sorted(spelling)),
        name_of={text: spelling[version] for text, version in versions.items()},
    )


@lru_cache(maxsize=4096)
def _release(text: str) -> Version | None:
    """The version without its platform label, or None: no PEP 440 version, a development build, or a private (fork) build."""
    try:
        version = Version(text)
    except InvalidVersion:
        return None
    if version.is_devrelease or (version.local and not _PLATFORM_LABEL.fullmatch(version.local)):
        return None
    return Version(version.public)
