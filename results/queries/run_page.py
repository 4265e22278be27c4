"""What the page Run asks: everything about one boot."""

from __future__ import annotations

from results.queries.query import Query, query

_TABLES = (
    "phases",
    "coherence_results",
    "samples",
    "resources",
    "scores",
    "context_depths",
    "health",
    "engine_counters",
    "kernel_messages",
    "diagnoses",
    "rooflines",
)


def boot(run: str) -> Query:
    """The boot, one wide row."""
    return query(
        "SELECT b.*, u.wheels FROM boots b LEFT JOIN engine_builds u ON u.build_id = b.build_id WHERE b.run_id = $run",
        run=run,
    )


def table(name: str, run: str, limit: int = 20_000) -> Query:
    """Rows of one kind of this boot, in the order they were stored. Raises ValueError for a name that is no such table."""
    if name not in _TABLES:
        raise ValueError(f"no table of a boot's rows: {name!r}; known: {', '.join(_TABLES)}")
    return query(f"SELECT * EXCLUDE (run_id) FROM {name} WHERE run_id = $run LIMIT {int(limit)}", run=run)


def cell_verdict(run: str) -> Query:
    """The verdict on the release that this boot belongs to."""
    return query(
        """
SELECT m.release, m.state, m.verdict, m.headline, m.reason, m.after, m.last_good, m.boots
FROM boots b JOIN matrix m ON m.history_id = b.history_id AND m.release = b.release WHERE b.run_id = $run
""",
        run=run,
    )


def newest(limit: int = 100) -> Query:
    """The newest boots, for choosing one."""
    return query(
        f"""
SELECT r.run_id, r.started_at, r.engine, r.engine_version, r.recipe_name, r.backend_name, r.node_id, r.outcome, r.purpose, r.phase,
       r.reason, f.decode_tok_s
FROM (SELECT * FROM runs ORDER BY started_at DESC, run_id DESC LIMIT {int(limit)}) r LEFT JOIN boot_facts f ON f.run_id = r.run_id
ORDER BY r.started_at DESC, r.run_id DESC
"""
    )


def good_answers(run: str) -> Query:
    """What the newest boots of three passing releases of the same model, and this boot, answered rightly: by prompt and route."""
    return query(
        """
WITH good AS (
    SELECT v.last_run_id AS run_id
    FROM verdicts v JOIN histories h ON h.history_id = v.history_id JOIN runs me ON me.run_id = $run AND me.recipe_name = h.recipe_name
    WHERE v.state = 'pass' ORDER BY v.last_started_at DESC LIMIT 3
)
SELECT prompt_name, judge, carried_by = 'output_ids' AS by_ids, expected_ids, min_by(text, run_id <> $run) AS text
FROM coherence_results
WHERE run_id IN (SELECT run_id FROM good UNION ALL SELECT $run) AND verdict IN ('match', 'pass_structure')
GROUP BY ALL
""",
        run=run,
    )


def controls(run: str, control_of: str | None) -> Query:
    """Boots that were made because of this one, and the one it was made because of."""
    columns = "run_id, started_at, purpose, engine, engine_version, backend_name, outcome, reason"
    return query(
        f"""
SELECT {columns} FROM runs WHERE control_of = $run
UNION ALL
SELECT {columns} FROM runs WHERE run_id = $control_of
ORDER BY started_at LIMIT 100
""",
        run=run,
        control_of=control_of,
    )
