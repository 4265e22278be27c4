"""What the page Cell asks."""

from __future__ import annotations

from results.queries.query import Query, query


def histories() -> Query:
    """Every cell that was ever booted: the choices of the page."""
    return query(
        """
SELECT h.history_id, h.engine, h.distribution, h.recipe_name, h.backend_name, h.node_id, n.label AS node_label, h.boots, h.newest_release,
       h.last_passing, h.last_started_at, h.error, h.recipe_id
FROM histories h LEFT JOIN nodes n ON n.node_id = h.node_id
ORDER BY h.last_started_at DESC NULLS LAST, h.history_id
"""
    )


def boots(history: str) -> Query:
    """Every boot of one cell, oldest first; 5,000 newest at most."""
    return query(
        """
SELECT * FROM (
SELECT run_id, session_id, started_at, engine_version, release, position, outcome, counted_as, is_evidence, purpose, session_void, reason,
       signature, health, throttled, launch_bound, weights, samples, decode_tok_s, decode_tok_s_min, decode_tok_s_max, ttft_s,
       prefill_tok_s, itl_p50_s, itl_p99_s, streams, aggregate_tok_s, memory_used_bytes, memory_peak_used_bytes, kv_cache_tokens,
       model_memory_bytes,
       verified_context_tokens, nll_drift_rms, margin_drift_rms, flip_rate, gate_prompts, gate_matched, driver_version, kernel_version,
       firmware, sm_clock_cap_mhz, gpu_name, compute_capability, startup_s
FROM boots WHERE history_id = $history ORDER BY started_at DESC LIMIT 5000
) ORDER BY started_at, run_id
""",
        history=history,
    )


def verdicts(history: str) -> Query:
    """One row per release of one cell, oldest first."""
    return query(
        """
SELECT release, position, state, verdict, headline, confirmed, alarm, boots, counts, boots_needed, after, since, last_good, reason, differs,
       suppressed, decode_tok_s, decode_change, last_run_id
FROM matrix WHERE history_id = $history ORDER BY position
""",
        history=history,
    )


def numbers(history: str) -> Query:
    """Verdicts on every number of one cell, newest release first."""
    return query("SELECT * FROM numbers WHERE history_id = $history ORDER BY position DESC, series", history=history)


def claims(engine: str, recipe: str) -> Query:
    """What others published for this engine and recipe: imported, or named by the recipe itself (both ends of a range)."""
    return query(
        """
SELECT source, tool, metric, value, engine_version, backend_name, node, concurrency, claimed_at, note
FROM claims WHERE (engine IS NULL OR engine = $engine) AND recipe_name = $recipe
UNION ALL
SELECT source, 'named by the recipe', 'decode_tok_s', value, engine_version, NULL, NULL, 1, claimed_at, note
FROM (
    SELECT claim ->> 'source' AS source, claim ->> 'version' AS engine_version, claim ->> 'date' AS claimed_at, claim ->> 'note' AS note,
           unnest(list_distinct([TRY_CAST(claim ->> name AS DOUBLE) FOR name IN ['tok_s_low', 'tok_s_high']])) AS value
    FROM (
        SELECT unnest(from_json(arg_max(definition, last_run_id) -> 'claims', '["JSON"]')) AS claim FROM recipes WHERE name = $recipe
    )
    WHERE claim ->> 'engine' = $engine
)
WHERE source IS NOT NULL AND value IS NOT NULL
ORDER BY claimed_at, source, value LIMIT 500
""",
        engine=engine,
        recipe=recipe,
    )


def recipe(recipe_id: str) -> Query:
    """What the cell serves; `definition` holds the sizes that a roofline is made of."""
    return query("SELECT * EXCLUDE (last_run_id) FROM recipes WHERE recipe_id = $recipe_id", recipe_id=recipe_id)
