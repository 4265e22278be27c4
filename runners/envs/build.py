"""Which packages an environment really holds: the identity of an engine build.

Trap: `vllm==0.32.0` names a release, but torch, FlashInfer or transformers under it differ between two installs of it. Rule: a build is its
whole wheel set, read from the environment itself by its own Python; of a package found twice on its path the first one, which is imported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from results.redact import plain
from runners.envs.command import run_command
from runners.errors import InfrastructureError

_LIST = """
import importlib.metadata as metadata, json, platform, re
found = {}
for d in metadata.distributions():
    if d.metadata["Name"]:
        found.setdefault(re.sub("[-_.]+", "-", d.metadata["Name"]).lower(), d.version)
print(json.dumps({"python": platform.python_version(), "wheels": sorted(found.items())}))
"""


@dataclass(frozen=True)
class EngineBuild:
    """What is installed. `wheels` is the sorted set of `name==version`; `digest` the SHA-256 over its lines."""

    engine: str
    version: str
    distribution: str
    python_version: str
    wheels: tuple[str, ...]
    digest: str


def wheel_digest(wheels: tuple[str, ...]) -> str:
    """SHA-256 (hexadecimal) over the wheel set, one per line."""
    return hashlib.sha256("\n".join(wheels).encode()).hexdigest()


def read_build(python: Path, engine: str, version: str, distribution: str, environment: Mapping[str, str]) -> EngineBuild:
    """Ask the environment's own Python what is installed. Raises InfrastructureError if it cannot answer."""
    try:
        done = run_command([str(python), "-I", "-c", _LIST], environment=environment, folder=python.parent, timeout_s=120)
        answer = json.loads(done.output) if done.returncode == 0 else None
        wheels = tuple(sorted({f"{canonicalize_name(name)}=={found}" for name, found in answer["wheels"]})) if answer else ()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(f"its packages cannot be listed: {error}", where=str(python)) from error
    if not answer:
        raise InfrastructureError(f"its packages cannot be listed: {plain(' '.join(done.messages[-2:]), 300)}", where=str(python))
    return EngineBuild(engine, version, distribution, str(answer["python"]), wheels, wheel_digest(wheels))
