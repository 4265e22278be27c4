"""The recorded boot logs and what each must be read as."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "data" / "boot-logs"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "expected.toml").read_text(encoding="utf-8"))
NAMES = sorted(EXPECTED)
HEALTHY = [name for name in NAMES if EXPECTED[name]["health"] == "healthy"]
FAILED = [name for name in NAMES if EXPECTED[name]["health"] == "failed"]
SLOTS_EVERYWHERE = ("attention", "moe", "linear", "graph_mode")


def engine_of(name: str) -> str:
    return name.split("-", maxsplit=1)[0]


def version_of(name: str) -> str:
    return name.split("-")[1]


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.log"


def text_of(name: str) -> str:
    return path_of(name).read_bytes().decode("utf-8", "replace")


def lines_of(name: str) -> list[str]:
    return text_of(name).split("\n")
