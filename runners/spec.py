"""`vllm==0.32.0@docker:IMAGE`: which engine, which version, and where it comes from.

Trap: a fork's build number (`0.1.dev21830+g...`) is sorted between releases and looks like a very old vLLM. Rule: one parser, versions are
PEP 440 (at an endpoint also a build number such as `b6123`) or refused, and only a plain release has a place in the order of releases.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from runners.errors import UsageError
from runners.launchers.images import default_image

Distribution = Literal["venv", "docker", "endpoint"]

_MOST_CHARACTERS = 1000
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,500}")
_BUILD_NUMBER = re.compile(r"b\d{1,9}")
_FORM = "Write NAME==VERSION, optionally followed by @venv, @venv:FOLDER, @docker, @docker:IMAGE or @endpoint:URL."


@dataclass(frozen=True)
class EngineSpec:
    """An engine as asked for. `version` None means the newest that this node can run (venv) or whatever the server reports (otherwise).

    `target` is the image of a docker distribution, the URL of an endpoint, or the folder of a virtual environment that is there already;
    empty for a venv that we make.
    """

    name: str
    version: str | None = None
    distribution: Distribution = "venv"
    target: str = ""

    @classmethod
    def parse(cls, text: str) -> EngineSpec:
        """Read `name[==version][@venv[:FOLDER]|@docker[:IMAGE]|@endpoint:URL]`; `str()` is the inverse. Raises UsageError.

        `@docker` without an image takes the default image of that release, if one is known.
        """
        if len(text) > _MOST_CHARACTERS:
            raise UsageError(f"an engine spec has at most {_MOST_CHARACTERS} characters, this one has {len(text):,}.", todo=_FORM)
        wanted, at, origin = text.strip().partition("@")
        distribution, target = _origin(origin, text) if at else ("venv", "")
        name, equals, version = (part.strip() for part in wanted.partition("=="))
        try:
            name = canonicalize_name(name, validate=True)
        except InvalidName:
            raise UsageError(f"{name!r} in {text!r} is not the name of an engine.", todo=_FORM) from None
        wanted_version = _version(version, text, distribution, target) if equals else None
        if distribution == "docker" and not target:
            target = default_image(name, wanted_version)[0]
        if distribution == "venv" and target and wanted_version is None:
            raise UsageError(f"{text!r} does not say which release is in that folder.", todo=f"Write {name}==VERSION@venv:FOLDER.")
        return cls(name, wanted_version, distribution, target)

    def __str__(self) -> str:
        version = f"=={self.version}" if self.version is not None else ""
        return self.name + version + ("" if self.distribution == "venv" and not self.target else f"@{self.distribution}:{self.target}")

    @property
    def release(self) -> Version | None:
        """The version as something that can be ordered among releases; None without a version and for fork, nightly or numbered builds."""
        return None if self.version is None or is_fork_build(self.version) else Version(self.version)


def is_fork_build(version: str) -> bool:
    """Whether a version names a commit (`.dev`, `+g1a2b3c`, `b6123`) instead of a release; such a version is not comparable with any."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return True
    return parsed.is_devrelease or parsed.local is not None


def _version(version: str, text: str, distribution: Distribution, target: str) -> str:
    if distribution == "endpoint" and _BUILD_NUMBER.fullmatch(version):
        return version
    if _BUILD_NUMBER.fullmatch(version):
        raise UsageError(
            f"{version} in {text!r} is the number of a build, which only a server that runs already can be asked for.",
            todo=f"Write {text.strip().partition('@')[0]}@endpoint:URL.",
        )
    try:
        normal = str(Version(version))
    except InvalidVersion:
        raise UsageError(f"{version!r} in {text!r} is not a version.", todo=_FORM) from None
    if distribution == "venv" and not target and is_fork_build(normal):
        raise UsageError(
            f"{normal} is a development or fork build, which cannot be installed from an index.",
            todo=f"Say where it comes from: {text.strip().partition('@')[0]}@venv:FOLDER, @docker:IMAGE or @endpoint:URL.",
        )
    return normal


def _origin(origin: str, text: str) -> tuple[Distribution, str]:
    kind, _, target = origin.partition(":")
    if origin == "venv":
        return "venv", ""
    if kind == "venv":
        if not target or not target.isprintable():
            raise UsageError(f"{target!r} in {text!r} is not the folder of a virtual environment.", todo=_FORM)
        return "venv", str(Path(target).expanduser().absolute())
    if origin == "docker":
        return "docker", ""
    if kind == "docker":
        if not _IMAGE.fullmatch(target):
            raise UsageError(f"{target!r} in {text!r} is not the name of an image.", todo=_FORM)
        return "docker", target
    if kind == "endpoint":
        return "endpoint", _url(target, text)
    raise UsageError(f"{origin!r} in {text!r} is not a distribution.", todo=_FORM)


def _url(target: str, text: str) -> str:
    try:
        parts = urlsplit(target)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if "@" in target or "?" in target or "#" in target:  # said before anything of it is shown
        raise UsageError("an endpoint URL must not hold a user name, password or query: an engine spec is stored and shown.", todo=_FORM)
    if not usable or any(c.isspace() or not c.isprintable() for c in target):
        raise UsageError(f"the endpoint in {text!r} is not an http:// or https:// URL.", todo=_FORM)
    if parts.path.rstrip("/").endswith("/v1"):
        raise UsageError("an endpoint URL is the server's address, without /v1.", todo=_FORM)
    return target
