"""What the page Today asks."""

from __future__ import annotations

from results.queries.query import Query, query

_JUDGED = """
WITH judged AS MATERIALIZED (
    SELECT v.history_id, h.engine, h.distribution, h.recipe_name, h.backend_name, h.node_id, n.label AS node_label, v.release, o.position,
           v.state, v.headline, v.confirmed, v.boots, v.decode_change, v.last_run_id,
           min(o.position) FILTER (v.state = 'pass') OVER (PARTITION BY v.history_id) AS first_pass,
           max(o.position) OVER (PARTITION BY v.history_id) AS last_position
    FROM verdicts v JOIN histories h ON h.history_id = v.history_id
    JOIN (SELECT engine, release, any_value(position) AS position FROM engine_versions WHERE position IS NOT NULL GROUP BY ALL) o
        ON o.engine = h.engine AND o.release = v.release
    LEFT JOIN nodes n ON n.node_id = h.node_id
    WHERE v.state <> 'not_run' AND ($node IS NULL OR h.node_id = $node)
), releases_of AS (
    SELECT engine, release, position, count(*) AS cells, count(*) FILTER (state = 'pass') AS passing,
           count(*) FILTER (state NOT IN ('pass', 'unsupported') AND first_pass < position) AS worse
    FROM judged GROUP BY ALL
), good AS (
    SELECT engine, max(position) FILTER (passing > 0 AND worse = 0) AS good_position, max(position) AS newest_position
    FROM releases_of GROUP BY engine
)
"""
"""A release is good if it passes somewhere and fails nowhere where an earlier one passed."""


def good_releases(node: str | None = None) -> Query:
    """One row per engine: its newest release with evidence, its newest good one (null: none), and the backend that passes most."""
    return query(
        _JUDGED
        + """
, backends_of AS (
    SELECT *, row_number() OVER (PARTITION BY engine ORDER BY cells DESC, backend_name) AS place
    FROM (
        SELECT j.engine, j.backend_name, count(*) AS cells, count(DISTINCT j.recipe_name) AS models
        FROM judged j JOIN good g ON g.engine = j.engine AND j.position = g.good_position WHERE j.state = 'pass' GROUP BY ALL
    )
)
SELECT g.engine, n.release AS newest, n.cells, n.passing, r.release AS good, b.backend_name, b.models, m.good_models, m.good_backends,
       m.nodes
FROM good g
JOIN (
    SELECT j.engine, count(DISTINCT j.recipe_name) FILTER (j.state = 'pass' AND j.position = g.good_position) AS good_models,
           count(DISTINCT j.backend_name) FILTER (j.state = 'pass' AND j.position = g.good_position) AS good_backends,
           count(DISTINCT j.node_id) AS nodes
    FROM judged j JOIN good g ON g.engine = j.engine GROUP BY j.engine
) m ON m.engine = g.engine
JOIN releases_of n ON n.engine = g.engine AND n.position = g.newest_position
LEFT JOIN releases_of r ON r.engine = g.engine AND r.position = g.good_position
LEFT JOIN backends_of b ON b.engine = g.engine AND b.place = 1
ORDER BY g.engine
""",
        node=node,
    )


def news(node: str | None = None) -> Query:
    """Cells that the newest good release or a later one changed, and those that never passed (`never`); 500 of each engine."""
    return query(
        _JUDGED
        + """
SELECT j.* EXCLUDE (history_id), j.first_pass IS NULL AND j.position = j.last_position AND j.state <> 'unsupported' AS never
FROM judged j JOIN good g ON g.engine = j.engine
WHERE (j.position >= coalesce(g.good_position, g.newest_position)
       AND j.headline IN ('broke', 'still_broken', 'slower', 'confounded', 'gone', 'fixed', 'faster'))
   OR (j.first_pass IS NULL AND j.position = j.last_position AND j.state <> 'unsupported')
QUALIFY row_number() OVER (PARTITION BY j.engine ORDER BY j.position DESC, j.recipe_name, j.backend_name, j.node_id) <= 500
ORDER BY j.engine, j.position DESC, j.recipe_name, j.backend_name, j.node_id
""",
        node=node,
    )


def findings(node: str | None = None) -> Query:
    """Findings, open ones and failures first, with the numbers on both sides and what works instead; 200 at most."""
    return query(
        """
WITH f AS MATERIALIZED (
    SELECT * FROM cell_findings WHERE $node IS NULL OR node_id = $node
    ORDER BY list_position(['confirmed', 'detected', 'fixed', 'ignored'], stage), kind <> 'broke', last_started_at DESC NULLS LAST,
             finding_id
    LIMIT 200
), passing AS (
    SELECT h.engine, h.distribution, h.recipe_name, h.node_id, v.release,
           arg_max(h.backend_name, (coalesce(v.decode_tok_s, 0), h.backend_name)) AS backend_name, max(v.decode_tok_s) AS decode_tok_s
    FROM verdicts v JOIN histories h ON h.history_id = v.history_id
    WHERE v.state = 'pass' AND v.release IN (SELECT release FROM f) AND h.recipe_name IN (SELECT recipe_name FROM f)
    GROUP BY ALL
)
SELECT f.finding_id, f.stage, f.kind, f.subject, f.engine, f.distribution, f.recipe_name, f.backend_name, f.node_id, f.node_label,
       f.after, f.release, f.fixed_in, f.reason, f.note, f.effect, f.last_run_id, f.last_started_at,
       v.state, v.boots, v.boots_needed, n.n_baseline, n.n_candidate, n.interval_low, n.interval_high, n.p, n.boots_to_decide,
       b.boots AS boots_before, d.sentence AS diagnosis, d.use_instead, w.backend_name AS other_backend,
       w.decode_tok_s AS other_decode_tok_s
FROM f
LEFT JOIN verdicts v ON v.history_id = f.history_id AND v.release = f.release
LEFT JOIN verdicts b ON b.history_id = f.history_id AND b.release = f.after
LEFT JOIN (
    SELECT * FROM number_verdicts WHERE history_id IN (SELECT history_id FROM f) AND release IN (SELECT release FROM f)
) n ON n.history_id = f.history_id AND n.release = f.release AND n.series = f.subject
LEFT JOIN (
    SELECT run_id, arg_max(sentence, concluded_at) AS sentence, arg_max(use_instead, concluded_at) AS use_instead
    FROM diagnoses WHERE run_id IN (SELECT last_run_id FROM f) GROUP BY run_id
) d ON d.run_id = f.last_run_id
LEFT JOIN passing w
    ON w.engine = f.engine AND w.distribution = f.distribution AND w.recipe_name = f.recipe_name AND w.node_id = f.node_id
    AND w.release = f.release AND f.kind = 'broke'
ORDER BY list_position(['confirmed', 'detected', 'fixed', 'ignored'], f.stage), f.kind <> 'broke', f.last_started_at DESC NULLS LAST,
         f.finding_id
""",
        node=node,
    )


def freshness(node: str | None = None) -> Query:
    """How old the evidence on each cell is, the oldest first; 1,000 at most."""
    return query(
        """
SELECT engine, distribution, recipe_name, backend_name, node_id, node_label, boots, newest_release, engine_newest_release, releases_behind,
       last_passing, state, headline, last_started_at
FROM freshness
WHERE $node IS NULL OR node_id = $node
ORDER BY releases_behind DESC NULLS LAST, last_started_at, engine, recipe_name, backend_name
LIMIT 1000
""",
        node=node,
    )


def activity(node: str | None = None) -> Query:
    """One row: how much was measured, when last, and how much of it does not count."""
    return query(
        """
SELECT a.boots, a.without_evidence, a.running, l.run_id AS last_run_id, l.started_at AS last_started_at,
       coalesce(l.outcome, 'running') AS last_outcome,
       (SELECT count(*) FROM nodes n WHERE $node IS NULL OR n.node_id = $node) AS nodes,
       (SELECT count(*) FROM sessions s WHERE $node IS NULL OR s.node_id = $node) AS sessions,
       (SELECT count(*) FROM sessions s WHERE s.void AND ($node IS NULL OR s.node_id = $node)) AS void_sessions
FROM (
    SELECT count(*) AS boots, count(*) FILTER (outcome IN ('infrastructure', 'interrupted', 'install_failed')) AS without_evidence,
           count(*) FILTER (outcome IS NULL) AS running
    FROM runs WHERE $node IS NULL OR node_id = $node
) a
LEFT JOIN (
    SELECT run_id, started_at, outcome FROM runs WHERE $node IS NULL OR node_id = $node ORDER BY started_at DESC, run_id DESC LIMIT 1
) l ON true
""",
        node=node,
    )


def nodes() -> Query:
    """Every node that has boots."""
    return query("SELECT node_id, label FROM nodes ORDER BY label, node_id")
