"""What the page What broke when asks."""

from __future__ import annotations

from results.queries.query import Query, query


def transitions(engine: str | None = None, node: str | None = None) -> Query:
    """Releases that did something to a cell, newest release first, failures before the rest; 400 at most."""
    return query(
        """
SELECT engine, distribution, release, position, recipe_name, backend_name, node_id, node_label, headline, verdict, state, confirmed, alarm,
       boots, after, since, last_good, reason, decode_tok_s, decode_change, last_run_id, last_started_at
FROM matrix
WHERE headline IN ('broke', 'still_broken', 'slower', 'confounded', 'fixed', 'faster', 'gone', 'new')
  AND ($engine IS NULL OR engine = $engine) AND ($node IS NULL OR node_id = $node) AND position IS NOT NULL
ORDER BY engine, position DESC, list_position(['broke', 'still_broken', 'slower', 'gone', 'confounded', 'fixed', 'faster', 'new'],
         headline), recipe_name, backend_name
LIMIT 400
""",
        engine=engine,
        node=node,
    )


def signatures(engine: str | None = None, node: str | None = None) -> Query:
    """The ledger: each failure's signature with the releases it was seen in, and the first later release of the same cells without it."""
    return query(
        """
WITH failed AS MATERIALIZED (
    SELECT r.engine, r.signature, r.outcome, r.history_id, v.release, v.position, count(*) AS boots,
           arg_max(r.run_id, r.started_at) AS last_run_id, max(r.started_at) AS last_started_at
    FROM runs r JOIN engine_versions v ON v.engine = r.engine AND v.version = r.engine_version
    WHERE r.signature IS NOT NULL AND v.position IS NOT NULL
      AND ($engine IS NULL OR r.engine = $engine) AND ($node IS NULL OR r.node_id = $node)
    GROUP BY ALL
), seen AS MATERIALIZED (
    SELECT engine, signature, arg_max(outcome, last_started_at) AS outcome, max(position) AS last_position,
           arg_min(release, position) AS first_release, arg_max(release, position) AS last_release,
           count(DISTINCT history_id) AS cells, sum(boots)::BIGINT AS boots, arg_max(last_run_id, last_started_at) AS last_run_id,
           max(last_started_at) AS last_started_at
    FROM failed GROUP BY engine, signature
), releases_of AS (
    SELECT engine, signature, list(release ORDER BY position) AS releases
    FROM (SELECT DISTINCT engine, signature, release, position FROM failed) GROUP BY engine, signature
), gone AS (
    SELECT t.engine, t.signature, arg_min(v.release, o.position) AS gone_in
    FROM (SELECT DISTINCT engine, signature, history_id FROM failed) t
    JOIN seen s ON s.engine = t.engine AND s.signature = t.signature
    JOIN verdicts v ON v.history_id = t.history_id AND v.state = 'pass'
    JOIN (SELECT engine, release, any_value(position) AS position FROM engine_versions GROUP BY ALL) o
        ON o.engine = t.engine AND o.release = v.release AND o.position > s.last_position
    GROUP BY t.engine, t.signature
), listed AS MATERIALIZED (
    SELECT s.*, o.releases, g.gone_in
    FROM seen s JOIN releases_of o USING (engine, signature) LEFT JOIN gone g USING (engine, signature)
    ORDER BY g.gone_in IS NOT NULL, s.last_started_at DESC LIMIT 500
)
SELECT s.engine, s.signature, s.outcome, s.releases, s.first_release, s.last_release, s.gone_in, s.cells, s.boots, r.reason, s.last_run_id,
       s.last_started_at
FROM listed s LEFT JOIN runs r ON r.run_id = s.last_run_id
ORDER BY s.gone_in IS NOT NULL, s.last_started_at DESC
""",
        engine=engine,
        node=node,
    )


def timeline(engine: str | None = None, node: str | None = None) -> Query:
    """Cells by release and what it did to them, the newest 60 releases of each engine."""
    return query(
        """
SELECT *
FROM (
SELECT engine, release, position, headline, count(*) AS cells
FROM matrix
WHERE headline IN ('broke', 'still_broken', 'slower', 'fixed', 'faster') AND ($engine IS NULL OR engine = $engine)
  AND ($node IS NULL OR node_id = $node) AND position IS NOT NULL
GROUP BY ALL
)
QUALIFY dense_rank() OVER (PARTITION BY engine ORDER BY position DESC) <= 60
ORDER BY engine, position, headline
""",
        engine=engine,
        node=node,
    )
