"""What the page Today asks."""

from __future__ import annotations

from results.queries.query import Query, query


def cells(node: str | None = None) -> Query:
    """One row per release and cell with evidence, all engines: what the sentence of the day is made of."""
    return query(
        """
SELECT engine, distribution, release, position, recipe_name, backend_name, node_id, node_label, recipe_kind, state, verdict, headline,
       alarm, confirmed, boots, after, since, last_good, reason, decode_tok_s, decode_change, launch_bound, is_newest, last_passing,
       last_run_id
FROM matrix
WHERE position IS NOT NULL AND ($node IS NULL OR node_id = $node)
ORDER BY engine, position DESC, recipe_name, backend_name
""",
        node=node,
    )


def findings(node: str | None = None) -> Query:
    """Every finding, open ones and failures first, with the numbers on both sides and what works instead."""
    return query(
        """
SELECT f.finding_id, f.stage, f.kind, f.subject, f.engine, f.distribution, f.recipe_name, f.backend_name, f.node_id, f.node_label,
       f.after, f.release, f.fixed_in, f.reason, f.note, f.effect, f.last_run_id, f.last_started_at,
       v.state, v.boots, v.boots_needed, n.n_baseline, n.n_candidate, n.interval_low, n.interval_high, n.p, n.boots_to_decide,
       b.boots AS boots_before, d.sentence AS diagnosis, d.use_instead, w.backend_name AS other_backend,
       w.decode_tok_s AS other_decode_tok_s
FROM cell_findings f
LEFT JOIN verdicts v ON v.history_id = f.history_id AND v.release = f.release
LEFT JOIN verdicts b ON b.history_id = f.history_id AND b.release = f.after
LEFT JOIN number_verdicts n ON n.history_id = f.history_id AND n.release = f.release AND n.series = f.subject
LEFT JOIN (SELECT run_id, arg_max(sentence, concluded_at) AS sentence, arg_max(use_instead, concluded_at) AS use_instead
           FROM diagnoses GROUP BY run_id) d ON d.run_id = f.last_run_id
LEFT JOIN (SELECT engine, distribution, recipe_name, node_id, release, arg_max(backend_name, coalesce(decode_tok_s, 0)) AS backend_name,
                  max(decode_tok_s) AS decode_tok_s
           FROM matrix WHERE state = 'pass' GROUP BY ALL) w
    ON w.engine = f.engine AND w.distribution = f.distribution AND w.recipe_name = f.recipe_name AND w.node_id = f.node_id
    AND w.release = f.release AND f.kind = 'broke'
WHERE $node IS NULL OR f.node_id = $node
ORDER BY list_position(['confirmed', 'detected', 'fixed', 'ignored'], f.stage), f.kind <> 'broke', f.last_started_at DESC NULLS LAST,
         f.finding_id
LIMIT 500
""",
        node=node,
    )


def freshness(node: str | None = None) -> Query:
    """How old the evidence on each cell is, the oldest first."""
    return query(
        """
SELECT engine, distribution, recipe_name, backend_name, node_id, node_label, boots, newest_release, engine_newest_release, releases_behind,
       last_passing, state, headline, last_started_at
FROM freshness
WHERE $node IS NULL OR node_id = $node
ORDER BY releases_behind DESC NULLS LAST, last_started_at, engine, recipe_name, backend_name
""",
        node=node,
    )


def activity(node: str | None = None) -> Query:
    """One row: how much was measured, when last, and how much of it does not count."""
    return query(
        """
SELECT count(*) AS boots, max(r.started_at) AS last_started_at, arg_max(r.run_id, r.started_at) AS last_run_id,
       arg_max(coalesce(r.outcome, 'running'), r.started_at) AS last_outcome,
       count(*) FILTER (r.outcome IN ('infrastructure', 'interrupted', 'install_failed')) AS without_evidence,
       count(*) FILTER (r.outcome IS NULL) AS running, count(DISTINCT r.node_id) AS nodes,
       (SELECT count(*) FROM sessions s WHERE $node IS NULL OR s.node_id = $node) AS sessions,
       (SELECT count(*) FROM sessions s WHERE s.void AND ($node IS NULL OR s.node_id = $node)) AS void_sessions
FROM runs r
WHERE $node IS NULL OR r.node_id = $node
""",
        node=node,
    )


def nodes() -> Query:
    """Every node that has boots."""
    return query("SELECT node_id, label FROM nodes ORDER BY label, node_id")
