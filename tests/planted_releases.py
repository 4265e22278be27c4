"""Several planted releases of vLLM, each with a behaviour of its own: a history in which something breaks at a known release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.planted import Planted, plant


def plant_releases(root: Path, behaviours: Mapping[str, Mapping[str, str]]) -> Planted:
    """Plant every release of `behaviours`; the server of each is started with its variables (`SCRIPTED_AS`, `SCRIPTED_BOOT`)."""
    for version, variables in behaviours.items():
        plant(root, version)
        behave(root, version, variables)
    return Planted(root, max(behaviours))


def behave(root: Path, version: str, variables: Mapping[str, str]) -> None:
    """Give one planted release its behaviour: its `python` exports the variables before it starts the server."""
    (python,) = (root / "cache" / "environments").glob(f"vllm-{version}-*/bin/python")
    kept = [line for line in python.read_text().splitlines() if not line.startswith("export SCRIPTED_")]
    exports = [f"export {name}='{value}'" for name, value in {"SCRIPTED_VERSION": version, **variables}.items()]
    python.write_text("\n".join([kept[0], *exports, *kept[1:]]) + "\n")
