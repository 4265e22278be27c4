"""Weight formats that an engine cannot run on a kind of node, known before anything is started.

Trap: a sweep over all formats spends most of its time on processes that import an engine only to hear that FP4 needs a GPU; and a list that
says what *does* run goes stale with every release. Rule: only what is known not to run is listed, with its reason and where that was seen;
everything else is tried.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version
from pydantic import Field

from suites.toml_files import SuiteModel, read_toml

_FILE = Path(__file__).parent / "format_support.toml"


class Rule(SuiteModel):
    """Formats that do not run. `below`: only on GPUs of a lower compute capability."""

    engine: str
    node: Literal["cpu", "cuda"]
    formats: tuple[str, ...] = Field(min_length=1)
    reason: str
    source: str
    below: str | None = None

    def covers(self, engine: str, weight_format: str, *, has_cuda: bool, compute_capability: str | None) -> bool:
        """Whether this rule speaks against a format there. A GPU that does not say what it is is not excluded."""
        if self.engine not in ("any", engine) or weight_format not in self.formats or (self.node == "cuda") is not has_cuda:
            return False
        return self.below is None or _is_below(compute_capability, self.below)


class _Rules(SuiteModel):
    rules: tuple[Rule, ...]


def _is_below(found: str | None, limit: str) -> bool:
    try:
        return found is not None and Version(found) < Version(limit)
    except InvalidVersion:
        return False


@lru_cache(maxsize=1)
def _rules() -> tuple[Rule, ...]:
    return read_toml(_FILE, _Rules).rules


def cannot_run(engine: str, weight_format: str, *, has_cuda: bool, compute_capability: str | None) -> str | None:
    """Why this engine cannot run a weight format on such a node, as a sentence; None if nothing speaks against it."""
    for rule in _rules():
        if rule.covers(engine, weight_format, has_cuda=has_cuda, compute_capability=compute_capability):
            return f"{weight_format}: {rule.reason} ({rule.source})."
    return None
