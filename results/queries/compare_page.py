"""What the page Compare asks. Both sides are one row per cell, so that what exists on one side only is a row, too."""

from __future__ import annotations

from results.queries.query import Query, query

AXES = ("release", "node", "backend")


def side(axis: str, engine: str, value: str, release: str | None = None, node: str | None = None) -> Query:
    """Cells of one side. `axis` says what `value` is; on the axes node and backend both are at `release`. ValueError for another axis."""
    if axis not in AXES:
        raise ValueError(f"no axis {axis!r}; known: {', '.join(AXES)}")
    column = {"release": "release", "node": "node_id", "backend": "backend_name"}[axis]
    return query(
        f"""
SELECT history_id, distribution, recipe_name, backend_name, node_id, node_label, release, position, state, verdict, headline, boots, reason,
       differs, decode_tok_s, decode_tok_s_low, decode_tok_s_high, ttft_s, aggregate_tok_s, launch_bound, last_run_id
FROM matrix
WHERE engine = $engine AND {column} = $value AND ($release IS NULL OR release = $release) AND ($node IS NULL OR node_id = $node)
ORDER BY recipe_name, backend_name, node_id LIMIT 2000
""",
        engine=engine,
        value=value,
        release=release,
        node=node,
    )


def numbers(engine: str, release: str, baseline: str) -> Query:
    """Stored verdicts on numbers of `release` against `baseline`."""
    return query(
        """
SELECT history_id, recipe_name, backend_name, node_id, series, metric, verdict, reason, n_baseline, n_candidate, n_rerun, effect,
       interval_low, interval_high, interval_level, p, boots_to_decide, differs, warnings, median
FROM numbers WHERE engine = $engine AND release = $release AND baseline = $baseline ORDER BY recipe_name, backend_name, series
""",
        engine=engine,
        release=release,
        baseline=baseline,
    )


def wheels(engine: str, release: str) -> Query:
    """The wheel set last booted as this release."""
    return query(
        """
SELECT e.build_id, e.distribution, e.image_digest, e.python_version, e.wheels
FROM engine_builds e JOIN (
    SELECT build_id, max(started_at) AS last FROM runs r JOIN engine_versions v ON v.engine = r.engine AND v.version = r.engine_version
    WHERE r.engine = $engine AND v.release = $release AND build_id IS NOT NULL GROUP BY build_id
) r ON r.build_id = e.build_id ORDER BY r.last DESC LIMIT 1
""",
        engine=engine,
        release=release,
    )


def backends(engine: str) -> Query:
    """Backends of this engine that were ever booted."""
    return query("SELECT DISTINCT backend_name FROM histories WHERE engine = $engine ORDER BY backend_name", engine=engine)


def distributions(engine: str) -> Query:
    """How this engine was ever installed, the usual one first."""
    return query(
        "SELECT distribution FROM histories WHERE engine = $engine GROUP BY distribution ORDER BY sum(boots) DESC, distribution",
        engine=engine,
    )
