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


def cells(engine: str, node: str | None = None) -> Query:
    """One row per release and cell of one engine."""
    return query(
        """
SELECT distribution, recipe_name, model, quantization, recipe_kind, backend_name, node_id, node_label, release, position, state, verdict,
       headline, confirmed, alarm, boots, boots_needed, after, since, last_good, reason, suppressed, decode_tok_s, decode_tok_s_low,
       decode_tok_s_high, decode_change, ttft_s, aggregate_tok_s, launch_bound, last_run_id, last_started_at
FROM matrix
WHERE engine = $engine AND ($node IS NULL OR node_id = $node) AND position IS NOT NULL
ORDER BY recipe_name, backend_name, node_label, node_id, distribution, position DESC
""",
        engine=engine,
        node=node,
    )
