"""What the page Matrix asks."""

from __future__ import annotations

from results.queries.query import Query, query


def engines() -> Query:
    """Engines with their number of cells, the one booted last first."""
    return query("SELECT engine, count(*) AS cells FROM histories GROUP BY engine ORDER BY max(last_started_at) DESC NULLS LAST, engine")


def releases(engine: str) -> Query:
    """Releases of one engine, newest first, with what each did."""
    return query(
        "SELECT release, position, cells, boots, passing, failing, broke, fixed, slower, faster FROM releases WHERE engine = $engine"
        " AND position IS NOT NULL ORDER BY position DESC",
        engine=engine,
    )


def lines(engine: str, node: str | None = None) -> Query:
    """One row per cell of one engine: its name, how it is on its newest release with evidence, and whether any release changed it."""
    return query(
        """
SELECT h.history_id, h.distribution, h.recipe_name, e.model, e.quantization, h.backend_name, h.node_id, n.label AS node_label,
       v.newest_state, v.changed
FROM histories h
LEFT JOIN (
    SELECT v.history_id, max_by(v.state, o.position) FILTER (v.state <> 'not_run') AS newest_state,
           bool_or(v.headline NOT IN ('unchanged', 'new')) AS changed
    FROM verdicts v JOIN histories h ON h.history_id = v.history_id AND h.engine = $engine
    JOIN (SELECT release, any_value(position) AS position FROM engine_versions WHERE engine = $engine GROUP BY release) o
        ON o.release = v.release
    GROUP BY v.history_id
) v ON v.history_id = h.history_id
LEFT JOIN recipes e ON e.recipe_id = h.recipe_id
LEFT JOIN nodes n ON n.node_id = h.node_id
WHERE h.engine = $engine AND ($node IS NULL OR h.node_id = $node)
ORDER BY h.recipe_name, h.backend_name, n.label, h.node_id, h.distribution
""",
        engine=engine,
        node=node,
    )


def cells(histories: tuple[str, ...]) -> Query:
    """One row per release of these cells."""
    return query(
        """
SELECT history_id, distribution, recipe_name, model, quantization, backend_name, node_id, node_label, release, position, state, verdict,
       headline, confirmed, alarm, boots, boots_needed, after, since, last_good, reason, suppressed, decode_tok_s, decode_tok_s_low,
       decode_tok_s_high, decode_change, ttft_s, aggregate_tok_s, launch_bound, last_run_id, last_started_at
FROM matrix
WHERE history_id IN (SELECT unnest($histories)) AND position IS NOT NULL
ORDER BY recipe_name, backend_name, node_label, node_id, distribution, position DESC
""",
        histories=histories,
    )
