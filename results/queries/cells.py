"""What the commands ask about cells and findings."""

from __future__ import annotations

from results.queries.query import Query, query


def cells(
    *,
    cell: str | None = None,
    engine: str | None = None,
    recipe: str | None = None,
    backend: str | None = None,
    node: str | None = None,
) -> Query:
    """Cells with evidence; `cell` is the beginning of a history's id, `node` an id or a label."""
    return query(
        """
SELECT f.*, h.exclusions, h.not_releases, h.error FROM freshness f JOIN histories h ON h.history_id = f.history_id
WHERE ($cell IS NULL OR starts_with(f.history_id, $cell)) AND ($engine IS NULL OR f.engine = $engine)
  AND ($recipe IS NULL OR f.recipe_name = $recipe) AND ($backend IS NULL OR f.backend_name = $backend)
  AND ($node IS NULL OR f.node_id = $node OR f.node_label = $node)
ORDER BY f.engine, f.distribution, f.recipe_name, f.backend_name, f.node_id
""",
        cell=cell,
        engine=engine,
        recipe=recipe,
        backend=backend,
        node=node,
    )


def numbers_of(history: str, metric: str | None) -> Query:
    """One metric or series of one cell by release, oldest first."""
    return query(
        """
SELECT release, position, series, workload, metric, launch_bound, median, low, high, n_candidate, verdict, reason, baseline, effect, p,
       boots_to_decide, warnings
FROM numbers WHERE history_id = $history AND ($metric IS NULL OR metric = $metric OR series = $metric)
ORDER BY series, position
""",
        history=history,
        metric=metric,
    )


def findings(
    *,
    engine: str | None = None,
    recipe: str | None = None,
    backend: str | None = None,
    node: str | None = None,
    all_stages: bool = False,
) -> Query:
    """Findings, open ones first; only those that are open unless `all_stages`."""
    return query(
        """
SELECT * FROM cell_findings
WHERE ($engine IS NULL OR engine = $engine) AND ($recipe IS NULL OR recipe_name = $recipe)
  AND ($backend IS NULL OR backend_name = $backend) AND ($node IS NULL OR node_id = $node OR node_label = $node)
  AND ($all_stages OR stage IN ('confirmed', 'detected'))
ORDER BY list_position(['confirmed', 'detected', 'fixed', 'ignored'], stage), kind <> 'broke', last_started_at DESC NULLS LAST, finding_id
""",
        engine=engine,
        recipe=recipe,
        backend=backend,
        node=node,
        all_stages=all_stages,
    )


def finding(beginning: str) -> Query:
    """Findings whose id begins so."""
    return query("SELECT * FROM cell_findings WHERE starts_with(finding_id, $beginning) ORDER BY finding_id", beginning=beginning)


def left_out() -> Query:
    """Over all cells, how many boots or numbers were left out of judging them, by reason."""
    return query(
        """
SELECT reason, sum((exclusions ->> reason)::BIGINT)::BIGINT AS number
FROM (SELECT exclusions, unnest(json_keys(exclusions)) AS reason FROM histories)
GROUP BY reason ORDER BY reason
"""
    )


def ignores() -> Query:
    """All notes on findings, newest first."""
    return query("SELECT * FROM ignores ORDER BY ignored_at DESC, finding_id")
