"""What is kept besides boots: visits of the runner, other people's numbers, and notes on findings.

Trap: what only the database knows is lost with it. Rule: each of these is one JSON file below the store's folder (`sessions/`, `claims/`,
`ignores/`), and the tables are filled from the files, as they are for boots.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SessionRecord:
    """One visit of the runner to a node. A void session's boots are treated as `infrastructure` by every verdict."""

    session_id: str
    node_id: str
    kind: str
    """`run`, `nightly`, `bisect`, `diagnose` or `sweep`."""
    started_at: str
    finished_at: str | None = None
    void: bool = False
    void_reason: str | None = None
    anchor_run_id: str | None = None


@dataclass(frozen=True)
class ClaimRecord:
    """A number that somebody else published or measured with another tool. Shown beside measurements, never mixed with them."""

    claim_id: str
    source: str
    tool: str
    metric: str
    value: float
    engine: str | None = None
    engine_version: str | None = None
    recipe_name: str | None = None
    model: str | None = None
    backend_name: str | None = None
    node: str | None = None
    concurrency: int | None = None
    claimed_at: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class IgnoreRecord:
    """A person's note that a finding is to raise no alarm, and why."""

    finding_id: str
    engine: str
    recipe_name: str
    backend_name: str
    node_id: str
    subject: str
    kind: str
    after: str | None
    release: str
    why: str
    ignored_at: str


TIMES = ("started_at", "finished_at", "ignored_at")
"""Fields that are moments: UTC, ISO 8601. `claimed_at` is what the source wrote."""

KeptRecord = SessionRecord | ClaimRecord | IgnoreRecord
