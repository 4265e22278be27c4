"""The rows that a bug report is made of."""

from __future__ import annotations

import json
from typing import Any

from results.queries.query import query
from results.queries.run_page import boot as boot_query
from results.report.issue import IssueRows
from results.store import Store

_RIGHT = "('match', 'tie', 'pass_structure')"
_MOST_ANSWERS = 1_000


def issue_rows(store: Store, run_id: str) -> IssueRows | None:
    """Everything about one boot; None if the store has no such run. Raises StoreError."""
    boot = _boot(store, run_id)
    if boot is None:
        return None
    good = query(_LAST_GOOD, run=run_id).rows(store)
    return IssueRows(
        boot=boot,
        good=_boot(store, good[0]["run_id"]) if good else None,
        answers=query(_WRONG, run=run_id).rows(store),
        diagnoses=query("SELECT * EXCLUDE (run_id) FROM diagnoses WHERE run_id = $run ORDER BY concluded_at", run=run_id).rows(store),
        history=query(_HISTORY, run=run_id).rows(store),
        same_signature=[f"{row['engine']} {row['engine_version']}" for row in query(_SAME, run=run_id).rows(store)],
        backend_environment=_backend_environment(store, boot["backend_id"]),
    )


def _boot(store: Store, run_id: str) -> dict[str, Any] | None:
    rows = boot_query(run_id).rows(store)
    if not rows:
        return None
    mappings = {name: json.loads(rows[0][name] or "{}") for name in ("environment", "configured", "actual")}
    return {**rows[0], **mappings}


def _backend_environment(store: Store, backend_id: str | None) -> dict[str, str]:
    rows = query("SELECT environment FROM backends WHERE backend_id = $backend", backend=backend_id).rows(store)
    found: dict[str, str] = json.loads(rows[0]["environment"] or "{}") if rows else {}
    return found


_WRONG = f"""
SELECT * EXCLUDE (run_id) FROM coherence_results WHERE run_id = $run AND verdict NOT IN {_RIGHT} LIMIT {_MOST_ANSWERS}
"""
_LAST_GOOD = """
SELECT g.run_id FROM boots g JOIN boots b ON b.run_id = $run AND g.history_id = b.history_id
WHERE g.run_id <> b.run_id AND g.outcome = 'pass' AND g.is_evidence AND g.build_id IS NOT NULL
  AND (g.position IS NULL OR b.position IS NULL OR g.position <= b.position)
ORDER BY g.position = b.position, g.position DESC NULLS LAST, g.started_at DESC LIMIT 1
"""
_HISTORY = """
SELECT m.release, m.state, m.boots FROM matrix m JOIN runs r ON r.run_id = $run AND m.history_id = r.history_id
WHERE m.boots > 0 ORDER BY m.position DESC NULLS LAST LIMIT 12
"""
_SAME = """
SELECT DISTINCT o.engine, o.engine_version FROM runs o JOIN runs b ON b.run_id = $run AND o.signature = b.signature
WHERE o.engine_version <> b.engine_version OR o.engine <> b.engine ORDER BY ALL LIMIT 20
"""
