"""Take out of a report who and where: user names, home folders, host names, addresses, besides secrets.

Trap: the command line holds `/home/anna`, the log says `anna` again elsewhere, NCCL writes the host name before every line, and a list of
patterns catches only the first. Rule: names are learned from where they are certain (a home folder, `HOSTNAME=`, NCCL's prefix, a URL) and
from the machine that makes the report, and are then removed wherever they stand as a word.

A version such as `10.3.9.90` looks like an address: after `==` and `version` it is none. Everything here is pure; lengths in all patterns
are bounded.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from results.redact import redact

USER, HOST, ADDRESS = "<user>", "<host>", "<address>"


@dataclass(frozen=True)
class Identity:
    """What is known of the machine that makes the report: its names, its users, their home folders."""

    hosts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    homes: frozenset[str] = frozenset()


_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
_HOME = re.compile(rf"(?:/data|/var|/export|/mnt)?/(?:home|Users)/(?P<name>{_NAME})|(?i:[a-z]:\\{{1,2}}Users\\{{1,2}})(?P<windows>{_NAME})")
_ROOT_HOME = re.compile(r"(?<![\w/.-])/root(?![\w.-])")
_USER_IS = re.compile(rf"\b(?:USER|LOGNAME|USERNAME|SUDO_USER)['\"]?\s{{0,2}}[=:]\s{{0,2}}['\"]?(?P<name>{_NAME})")
_HOST_IS = re.compile(rf"(?i:\b(?:HOSTNAME|HOST_NAME|NODENAME|node_name|MASTER_ADDR)['\"]?\s{{0,2}}[=:]\s{{0,2}}['\"]?)(?P<name>{_NAME})")
_NCCL = re.compile(rf"(?m)(?:^|[\s)])(?P<name>{_NAME}):[0-9]{{1,10}}:[0-9]{{1,10}} \[[0-9]{{1,3}}\] NCCL ")
_BRACKET = re.compile(rf"\[(?P<name>{_NAME})\]:[0-9]{{1,5}}\b")
_URL = re.compile(rf"(?i:\b[a-z][a-z0-9+.-]{{1,20}}://)(?P<name>{_NAME})")
_AT = re.compile(r"(?<![\w.=@:/+-])(?P<user>[A-Za-z_][A-Za-z0-9._-]{0,40})@(?P<name>[A-Za-z0-9][A-Za-z0-9.-]{0,100})")
_PRIVATE_NAME = re.compile(
    r"\b[a-z0-9-]{0,40}[0-9-][a-z0-9-]{0,40}\.(?:local|lan|internal|home|corp|intranet|localdomain)\b", re.IGNORECASE
)
_IPV4 = re.compile(r"(?<![\w.=-])(?<!version )(?P<address>[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?![\w.-]?[\w])")
_IPV6 = re.compile(r"(?<![\w:.])(?P<address>[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w:])")
_MAC = re.compile(r"(?<![\w:])[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}(?![\w:])")
_GPU_ID = re.compile(r"\bGPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_PUBLIC = frozenset(
    (
        "github.com",
        "raw.githubusercontent.com",
        "huggingface.co",
        "hf.co",
        "docs.vllm.ai",
        "docs.sglang.ai",
        "docs.sglang.io",
        "pytorch.org",
        "download.pytorch.org",
        "docs.nvidia.com",
        "developer.nvidia.com",
    )
)
_LOCAL = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "0.0.0.0"))
_DISTRIBUTIONS = frozenset(("docker", "endpoint", "venv", "sha256"))
_SYSTEM_NAMES = (
    "root",
    "user",
    "users",
    "ubuntu",
    "admin",
    "public",
    "shared",
    "runner",
    "node",
    "host",
    "home",
    "local",
    "server",
    "test",
)
_PRODUCT_NAMES = (
    "nvidia",
    "cuda",
    "docker",
    "vllm",
    "sglang",
    "torch",
    "python",
    "python3",
    "model",
    "models",
    "none",
    "null",
    "true",
    "false",
)
_NOBODY = frozenset((*_SYSTEM_NAMES, *_PRODUCT_NAMES, "default"))
"""Names that are nobody's, or words that a report needs."""


def anonymiser(identity: Identity, texts: Iterable[str]) -> Callable[[str], str]:
    """A function that cleans a text; it has learned the names that stand in `texts`, which is everything that will be cleaned."""
    users, hosts = set(identity.users), {part for host in identity.hosts for part in (host, host.partition(".")[0])}
    for text in texts:
        users |= {match.group("name") or match.group("windows") for match in _HOME.finditer(text)}
        users |= {match.group("name") for match in _USER_IS.finditer(text)}
        for pattern in (_HOST_IS, _NCCL, _BRACKET, _URL):
            hosts |= {match.group("name").rstrip(".-") for match in pattern.finditer(text)}
        for match in _AT.finditer(text):
            if match.group("name") not in _DISTRIBUTIONS:
                users.add(match.group("user"))
                hosts.add(match.group("name").rstrip(".-"))
    named_hosts = _words(hosts - {host for host in hosts if host.lower() in _PUBLIC or _is_local(host)})
    named_users = _words(users)
    homes = sorted((home.rstrip("/") for home in identity.homes if len(home.rstrip("/")) > 1), key=len, reverse=True)

    def clean(text: str) -> str:
        text = redact(text)
        for home in homes:
            text = re.sub(re.escape(home) + r"(?![\w.-])", "~", text)
        text = _ROOT_HOME.sub("~", _HOME.sub("~", text))
        text = _AT.sub(lambda m: m.group() if m.group("name") in _DISTRIBUTIONS else f"{USER}@{HOST}", text)
        text = _GPU_ID.sub("GPU-<id>", _MAC.sub(ADDRESS, text))
        text = _IPV4.sub(_address, _IPV6.sub(_address, text))
        text = _PRIVATE_NAME.sub(HOST, text)
        for pattern, instead in ((named_hosts, HOST), (named_users, USER)):
            text = pattern.sub(instead, text) if pattern else text
        return text

    return clean


def cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """`value` with every text in it cleaned, also inside lists and mappings (their keys, too)."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(key)): cleaned(item, clean) for key, item in value.items()}
    return [cleaned(item, clean) for item in value] if isinstance(value, list | tuple) else value


def texts_in(value: Any) -> Iterable[str]:
    """Every text in `value`, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"{key}={item}" if isinstance(item, str) else str(key)
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern for these names where they stand alone; names of fewer than three letters or that are words are left out."""
    kept = sorted({name for name in names if len(name) > 2 and name.lower() not in _NOBODY and not name.isdigit()}, key=len, reverse=True)
    alternatives = "|".join(re.escape(name) for name in kept)
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{alternatives})(?![A-Za-z0-9_])", re.IGNORECASE) if kept else None


def _is_local(host: str) -> bool:
    if host.lower() in _LOCAL:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _address(match: re.Match[str]) -> str:
    text = match.group("address")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return match.group()
    return text if address.is_loopback or address.is_unspecified else ADDRESS
