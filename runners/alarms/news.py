"""Which findings are news, and in which words. Pure.

Trap: an alarm for every suspicion is switched off within a week, and one that repeats itself every night is not read. Rule: only confirmed
findings that nobody has ignored are told, each at each of its stages once; a failure of the night itself is told too, once a day.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from results.redact import plain, redact
from results.roofline import ABOVE

Kind = Literal["broke", "slower", "fixed", "above_roofline", "nightly_failed"]

FINDINGS = """
SELECT f.finding_id, f.subject, f.kind, f.after, f.release, f.stage, f.reason, f.fixed_in, f.effect, f.last_run_id,
       h.engine, h.distribution, h.recipe_name, h.backend_name, coalesce(n.label, h.node_id) AS node
FROM findings f JOIN histories h ON h.history_id = f.history_id LEFT JOIN nodes n ON n.node_id = h.node_id
WHERE f.stage IN ('confirmed', 'fixed')
ORDER BY f.last_started_at, f.finding_id
"""
FIXED = """
SELECT v.history_id, v.release, v.after, v.reason, v.last_run_id,
       h.engine, h.distribution, h.recipe_name, h.backend_name, coalesce(n.label, h.node_id) AS node
FROM verdicts v JOIN histories h ON h.history_id = v.history_id LEFT JOIN nodes n ON n.node_id = h.node_id
WHERE v.verdict = 'fixed' AND v.confirmed
ORDER BY v.last_started_at, v.history_id
"""
"""A repair of what was already broken when it was first measured is no finding, but it is news."""

ROOFLINES = """
SELECT f.history_id, coalesce(e.release, r.engine_version) AS release, f.run_id, f.decode_tok_s, f.percent, f.percent_of_nominal,
       f.bandwidth_gb_s, f.bytes_per_token, h.engine, h.distribution, h.recipe_name, h.backend_name, coalesce(n.label, h.node_id) AS node
FROM rooflines f JOIN runs r ON r.run_id = f.run_id JOIN histories h ON h.history_id = f.history_id
LEFT JOIN engine_versions e ON e.engine = r.engine AND e.version = r.engine_version LEFT JOIN nodes n ON n.node_id = h.node_id
WHERE f.alarm AND f.started_at > now() - INTERVAL 30 DAY
ORDER BY f.started_at, f.run_id
"""
"""Boots of the last month whose decode rate no memory of their node could deliver."""

_TEXT = 600


@dataclass(frozen=True)
class Alarm:
    """One piece of news. `key` is what it is never told twice under; texts are harmless and bounded."""

    key: str
    kind: Kind
    title: str
    reason: str
    cell: str = ""
    release: str | None = None
    after: str | None = None
    subject: str = "outcome"
    effect: float | None = None
    run_id: str | None = None
    node: str | None = None


def alarms_of(findings: Sequence[Mapping[str, Any]], fixed: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """All alarms that rows of `FINDINGS` and `FIXED` amount to, old ones too."""
    alarms = [alarm for row in findings if (alarm := _of_finding(row)) is not None]
    return [*alarms, *(_of_repair(row) for row in fixed)]


def above_roofline(rows: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    """One alarm for each cell and release that rows of `ROOFLINES` are about."""
    return [_above(row) for row in rows]


def untold(alarms: Sequence[Alarm], told: Collection[str]) -> list[Alarm]:
    """Those that were not told before, each key once."""
    new = {alarm.key: alarm for alarm in alarms if alarm.key not in told}
    return list(new.values())


def of_failure(reason: str, day: str, node: str | None = None) -> Alarm:
    """The night itself failed: told once for each day and reason."""
    said = _clean(reason)
    return Alarm(f"nightly_failed:{day}:{said[:120]}", "nightly_failed", "the nightly run failed", said, node=node)


def is_bad(alarm: Alarm) -> bool:
    """Whether it is bad news."""
    return alarm.kind != "fixed"


def _of_finding(row: Mapping[str, Any]) -> Alarm | None:
    slower = row["kind"] == "slower"
    if row["stage"] == "fixed":
        if not slower:
            return None  # told as a repair, from the verdict
        return _alarm(row, f"{row['finding_id']}:fixed", "fixed", f"{row['subject']} is back", row["fixed_in"])
    what = f"{row['subject']} got worse" if slower else "broke"
    return _alarm(row, f"{row['finding_id']}:confirmed", "slower" if slower else "broke", what, row["release"])


def _above(row: Mapping[str, Any]) -> Alarm:
    share = row["percent"] if row["percent"] is not None else row["percent_of_nominal"]
    reason = (
        f"{row['decode_tok_s']:.4g} tok/s x {row['bytes_per_token'] / 1e9:.3g} GB a token is {share:.0f} % of the memory's bandwidth,"
        f" without speculation: {ABOVE}"
    )
    full = {**row, "subject": "decode_tok_s", "effect": None, "after": None, "reason": reason, "last_run_id": row["run_id"]}
    return _alarm(full, f"{row['history_id']}:{row['release']}:above_roofline", "above_roofline", "above the roofline", row["release"])


def _of_repair(row: Mapping[str, Any]) -> Alarm:
    full = {**row, "subject": "outcome", "effect": None}
    return _alarm(full, f"{row['history_id']}:{row['release']}:fixed", "fixed", "works again", row["release"])


def _alarm(row: Mapping[str, Any], key: str, kind: Kind, what: str, release: str | None) -> Alarm:
    origin = "" if row["distribution"] == "venv" else f"@{row['distribution']}"
    cell = _clean(f"{row['engine']}{origin} {row['recipe_name']} {row['backend_name']}")
    return Alarm(
        key=key,
        kind=kind,
        title=_clean(f"{row['engine']} {release}: {row['recipe_name']}, {row['backend_name']}: {what}"),
        reason=_clean(row["reason"]),
        cell=cell,
        release=release,
        after=row["after"],
        subject=_clean(row["subject"]),
        effect=row["effect"],
        run_id=row["last_run_id"],
        node=_clean(row["node"]),
    )


def _clean(text: str) -> str:
    return " ".join(plain(redact(text), _TEXT).split())
