"""What the user's pip is told about indexes, proxies and certificates, translated for uv.

Trap: uv does not read pip's configuration, so an install that works with pip on an air-gapped node fails with uv, or quietly goes to
another index. Rule: pip itself lists its configuration (every file and `PIP_*` variable), pip's own precedence is applied, and each
setting becomes the variable of uv 0.13.9 that means the same. A `UV_*` variable that the user has set is never replaced.

Index URLs may hold credentials: they travel in the environment, never in an argument list, and nothing here is fit to be shown.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from runners.envs.command import run_command
from runners.errors import InfrastructureError

_SECTIONS = ("global", "install", ":env:")
"""Sections that count for `pip install`, the later winning (pip's own order; within a section pip has merged its files already)."""

_ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url", "constraints": "constraint"}
_LISTS = frozenset({"extra-index-url", "find-links", "constraint", "trusted-host"})
_TRUE = frozenset({"1", "true", "yes", "on", "y", "t"})


@dataclass(frozen=True)
class PipSettings:
    """The settings of `pip install` that decide where packages come from. None or empty: not set."""

    index_url: str | None = None
    extra_index_url: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    constraint: tuple[str, ...] = ()
    trusted_host: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: str | None = None
    no_index: bool = False


@dataclass(frozen=True)
class UvSettings:
    """How uv must be started to see what pip sees: extra environment variables and command-line options."""

    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


def parse_pip_config(listing: str) -> PipSettings:
    """Read the output of `pip config list`: lines `section.key='value'`, values as Python literals. Other lines are ignored."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.splitlines():
        name, equals, literal = line.strip().partition("=")
        section, dot, key = name.rpartition(".")
        if not (equals and dot) or section not in found:
            continue
        key = key.strip().lower().replace("_", "-")
        found[section][_ALIASES.get(key, key)] = _literal(literal)
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged.update(found[section])
    values: dict[str, str | bool | tuple[str, ...]] = {}
    for setting in fields(PipSettings):
        key = setting.name.replace("_", "-")
        if key not in merged:
            continue
        text = merged[key].strip()
        if key in _LISTS:
            values[setting.name] = tuple(text.split())
        elif key == "no-index":
            values[setting.name] = text.lower() in _TRUE
        elif text:
            values[setting.name] = text
    return PipSettings(**values)  # type: ignore[arg-type]


def _literal(text: str) -> str:
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, str) else text


def for_uv(pip: PipSettings, environ: Mapping[str, str], exists: Callable[[Path], bool] = Path.exists) -> UvSettings:
    """The same settings for uv. Variables already in `environ` win.

    pip merges all its indexes and takes the best version of any of them; uv does so only with `unsafe-best-match`. pip passes over a local
    find-links folder that is not there; uv stops, so such a folder is left out.
    """
    links = [_location(place) for place in pip.find_links]
    wanted = {
        "UV_DEFAULT_INDEX": pip.index_url,
        "UV_INDEX": " ".join(pip.extra_index_url),
        "UV_FIND_LINKS": ",".join(place for place in links if "://" in place or exists(Path(place))),
        "UV_CONSTRAINT": " ".join(_location(place) for place in pip.constraint),
        "UV_INSECURE_HOST": " ".join(pip.trusted_host),
        "UV_HTTP_TIMEOUT": _whole_seconds(pip.timeout),
        "UV_INDEX_STRATEGY": "unsafe-best-match" if pip.extra_index_url else None,
        "SSL_CERT_FILE": _location(pip.cert) if pip.cert else None,
        "SSL_CLIENT_CERT": _location(pip.client_cert) if pip.client_cert else None,
        **_proxies(pip.proxy, environ),
    }
    same_meaning = {"UV_DEFAULT_INDEX": ("UV_INDEX_URL",), "UV_INDEX": ("UV_EXTRA_INDEX_URL",), "UV_HTTP_TIMEOUT": ("UV_REQUEST_TIMEOUT",)}
    taken = {name for name in wanted if any(environ.get(n) for n in (name, *same_meaning.get(name, ())))}
    return UvSettings(
        environment={name: value for name, value in wanted.items() if value and name not in taken},
        options=("--no-index",) if pip.no_index else (),
    )


def _location(place: str) -> str:
    """A URL as it is, a path as an absolute one: uv runs in another folder and does not expand `~`."""
    return place if "://" in place else str(Path(place).expanduser().absolute())


def _whole_seconds(text: str | None) -> str | None:
    try:
        return None if text is None else str(max(1, round(float(text))))
    except (ValueError, OverflowError):
        return None


def _proxies(proxy: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    names = ("HTTPS_PROXY", "HTTP_PROXY")
    if not proxy or any(environ.get(n) or environ.get(n.lower()) for n in (*names, "ALL_PROXY")):
        return {}
    return dict.fromkeys(names, proxy if "://" in proxy else f"http://{proxy}")


def pip_command(*arguments: str) -> list[str]:
    """The argument list that runs pip of our own environment."""
    return [sys.executable, "-m", "pip", *arguments]


def list_pip_config() -> str:
    """The output of `pip config list`. Raises InfrastructureError if pip cannot be run."""
    done = run_command(pip_command("config", "list"), environment=os.environ, folder=Path.cwd(), timeout_s=60)
    if done.returncode != 0:
        raise InfrastructureError(
            f"pip cannot be run: {done.messages[-1] if done.messages else 'no message'}",
            where=f"{sys.executable} -m pip",
            todo="Remove the .venv folder of the checkout and start again.",
        )
    return done.output


def read_pip_settings(reader: Callable[[], str] = list_pip_config) -> PipSettings:
    """The settings in force now, through pip itself."""
    return parse_pip_config(reader())
