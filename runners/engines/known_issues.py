"""Public issues that concern a version, a kernel and a failure, from `facts/history.csv`.

Trap: "there is an issue about Marlin" is no help when it was fixed three releases ago. Rule: an issue is shown for a log only if the
catalogue row that the log ended on cites it, or if it names a kernel that ran and its span of versions holds this one; an issue whose
span is not known is shown only when it is cited.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from runners.engines.kernels import family
from runners.engines.versions import VersionRange, VersionTextError, version_range

_CITED = re.compile(r"(?P<repo>[A-Za-z0-9_.-]{1,60})#(?P<first>\d{1,7})(?P<more>(?: #\d{1,7}){0,6})")
_NOT_CONCERNED = "-"


@dataclass(frozen=True, eq=False)
class KnownIssue:
    """One public issue, pull request or report in our own words. `spans` maps an engine to the versions concerned."""

    repo: str
    number: str
    state: str
    title: str
    date: str
    arch: str
    affected: str
    symptom: str
    kernels: tuple[str, ...]
    workaround: str
    fixed_in: str
    url: str
    spans: Mapping[str, VersionRange]

    def concerns(self, engine: str, versions: Sequence[str]) -> bool:
        """Whether all of `versions` lie in the known span; an unknown span ("any") concerns no version in particular."""
        span = self.spans.get(engine)
        if span is None or not span.spans or not versions:
            return False
        try:
            return all(span.contains(version) for version in versions)
        except VersionTextError:
            return False


@lru_cache(maxsize=1)
def all_issues() -> tuple[KnownIssue, ...]:
    """Every row of the history."""
    text = (files("runners.engines") / "facts" / "history.csv").read_text(encoding="utf-8")
    return tuple(_issue(row) for row in csv.DictReader(text.splitlines()))


def _issue(row: Mapping[str, str]) -> KnownIssue:
    spans = {engine: version_range(row[engine]) for engine in ("vllm", "sglang") if row[engine] != _NOT_CONCERNED}
    kernels = tuple(name for name in row["kernels"].split(";") if name)
    return KnownIssue(
        row["repo"],
        row["number"],
        row["state"],
        row["title"],
        row["date"],
        row["arch"],
        row["affected"],
        row["symptom"],
        kernels,
        row["workaround"],
        row["fixed_in"],
        row["url"],
        spans,
    )


def cited(sources: Iterable[str]) -> list[KnownIssue]:
    """The issues that catalogue rows name as their source ("vllm#43435 #52300"), in order."""
    found: dict[KnownIssue, None] = {}
    for source in sources:
        for match in _CITED.finditer(source):
            numbers = [match["first"], *re.findall(r"\d{1,7}", match["more"])]
            for issue in all_issues():
                if issue.number in numbers and issue.repo.rsplit("/", 1)[-1].casefold() == match["repo"].rsplit("/", 1)[-1].casefold():
                    found[issue] = None
    return list(found)


def touching(engine: str, versions: Sequence[str], kernels: Mapping[str, str], limit: int = 6) -> list[KnownIssue]:
    """Issues about kernels that ran whose span holds all of `versions` (those the log may be of); at most `limit`, wrong output first."""
    ran = {family(engine, slot, name) for slot, value in kernels.items() for name in value.split("+")}
    if "fp8" in kernels.get("kv_cache_dtype", ""):
        ran.add("kv_fp8")
    hits = [issue for issue in all_issues() if ran.intersection(issue.kernels) and issue.concerns(engine, versions)]
    return sorted(hits, key=lambda issue: not re.search(r"garbage|wrong|NaN|repeated", issue.symptom))[:limit]


def of_failure(engine: str, versions: Sequence[str], failure_class: str, limit: int = 4) -> list[KnownIssue]:
    """Issues of these versions with the same kind of symptom as a failure (memory, hang, unsupported architecture)."""
    words = {"memory": "OOM", "hang": "hang", "unsupported arch": "unsupported arch"}.get(failure_class)
    if words is None:
        return []
    return [issue for issue in all_issues() if words in issue.symptom and issue.concerns(engine, versions)][:limit]
