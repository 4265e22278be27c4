"""What the engine's own metrics say about a timed window: acceptance of drafts, tokens, latencies.

Trap: the length of an accepted draft is a counter in one release, a gauge in the next and absent in a third, and a gauge of a server that
does not speculate reads 0. Rule: which series says what is data per version (`facts/<engine>/metrics.toml`); a number is the difference of
two readings around the window (or the engine's last gauge in it), and what a page does not carry is left out, never 0.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from prometheus_client.parser import text_string_to_metric_families

from runners.engines.base import UNKNOWN
from runners.engines.versions import VersionRange, VersionTextError, version_range

KINDS = ("increase", "ratio", "mean", "gauge")
_MAX_METRICS_CHARS = 16_000_000
_MAX_SERIES = 10_000


@dataclass(frozen=True)
class CounterFact:
    """How one number is read. With d(x) the increase of series x over the window, summed over its labels:

    `increase`: d(of); `ratio`: plus + d(of) / d(per); `mean`: d(of_sum) / d(of_count), in the histogram's unit; `gauge`: `of` at the end.
    A row with `while_positive` counts only if that series is above 0 at the end.
    """

    metric: str
    versions: VersionRange
    kind: str
    of: str
    per: str | None
    plus: float
    while_positive: str | None
    source: str

    def names(self) -> tuple[str, ...]:
        """The series it needs."""
        own = (f"{self.of}_sum", f"{self.of}_count") if self.kind == "mean" else (self.of,)
        return tuple(name for name in (*own, self.per, self.while_positive) if name is not None)


@lru_cache(maxsize=8)
def counter_facts(engine: str) -> tuple[CounterFact, ...]:
    """The rows of `engine`, in the file's order; an engine without facts has none."""
    path = files("runners.engines") / "facts" / engine / "metrics.toml"
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["metric"] if path.is_file() else ()
    return tuple(
        CounterFact(
            row["name"],
            version_range(row.get("versions", "any")),
            row["kind"],
            row["of"],
            row.get("per"),
            float(row.get("plus", 0)),
            row.get("while_positive"),
            row["source"],
        )
        for row in rows
    )


def window_counters(engine: str, version: str, before: str, after: str) -> dict[str, float]:
    """Our names and values of what `engine` counted between two readings of its Prometheus page.

    Of several rows for one number the first that the page can answer speaks. A version that is not known may be any. A page that is no
    Prometheus text gives nothing; a counter that fell (the server was started anew) gives nothing either.
    """
    facts = [fact for fact in counter_facts(engine) if _holds(fact.versions, version)]
    wanted = {name for fact in facts for name in fact.names()}
    first, last = read_series(before, wanted), read_series(after, wanted)
    found: dict[str, float] = {}
    for fact in facts:
        value = None if fact.metric in found else _value(fact, first, last)
        if value is not None and math.isfinite(value):
            found[fact.metric] = value
    return found


def read_series(text: str, names: Iterable[str]) -> dict[str, float]:
    """The named series of a Prometheus page, each summed over its labels; a counter `x` is also found as `x_total`."""
    wanted = {spelling: name for name in names for spelling in (name, f"{name}_total")}
    starts = tuple(wanted)
    lines = [line for line in text[:_MAX_METRICS_CHARS].split("\n") if line.startswith(starts)][:_MAX_SERIES]
    totals: dict[str, float] = {}
    for line in lines:
        try:
            samples = [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
        except (ValueError, IndexError, KeyError):
            continue
        for sample in samples:
            name = wanted.get(sample.name)
            if name is not None:
                totals[name] = totals.get(name, 0.0) + sample.value
    return totals


def _holds(span: VersionRange, version: str) -> bool:
    if version in ("", UNKNOWN):
        return True
    try:
        return span.contains(version)
    except VersionTextError:
        return True


def _value(fact: CounterFact, before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    if fact.while_positive is not None and not after.get(fact.while_positive, 0.0) > 0:
        return None
    if fact.kind == "gauge":
        return after.get(fact.of)
    if fact.kind == "increase":
        return _increase(fact.of, before, after)
    over, under = (f"{fact.of}_sum", f"{fact.of}_count") if fact.kind == "mean" else (fact.of, fact.per or "")
    upper, lower = _increase(over, before, after), _increase(under, before, after)
    return None if upper is None or lower is None or not lower > 0 else fact.plus + upper / lower


def _increase(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> float | None:
    """A series that was not there before began at 0: engines create some with their first event."""
    end = after.get(name)
    start = before.get(name, 0.0)
    return None if end is None or not end >= start else end - start
