"""What the page Node asks."""

from __future__ import annotations

from results.queries.query import Query, query


def node(node: str) -> Query:
    """The machine itself."""
    return query("SELECT * FROM nodes WHERE node_id = $node", node=node)


def states(node: str) -> Query:
    """What changed on the machine: each state with its first and last boot."""
    return query(
        """
SELECT t.driver_version, t.cuda_version, t.kernel, t.firmware, t.sm_clock_cap_mhz, t.power_limit_w, t.memory_total_bytes,
       min(r.started_at) AS first_started_at, max(r.started_at) AS last_started_at, count(*) AS boots
FROM runs r JOIN node_states t ON t.node_state_id = r.node_state_id WHERE r.node_id = $node
GROUP BY ALL ORDER BY first_started_at DESC LIMIT 200
""",
        node=node,
    )


def health(node: str) -> Query:
    """What the probe and the sensors said around the newest 500 boots."""
    return query(
        """
SELECT r.engine, r.engine_version, r.recipe_name, r.backend_name, h.*
FROM (SELECT * FROM runs WHERE node_id = $node ORDER BY started_at DESC LIMIT 500) r JOIN health h ON h.run_id = r.run_id
ORDER BY h.read_at
""",
        node=node,
    )


def telemetry(node: str) -> Query:
    """One row per boot of the newest 200: temperature, power, clock and memory while it was timed."""
    return query(
        """
SELECT r.run_id, r.started_at, r.engine, r.engine_version, r.recipe_name, r.backend_name, r.outcome,
       max(t.gpu_temperature_c) AS temperature_max_c, avg(t.gpu_power_w) FILTER (t.phase = 'throughput') AS power_mean_w,
       min(t.gpu_sm_clock_mhz) FILTER (t.phase = 'throughput') AS sm_clock_min_mhz,
       median(t.gpu_sm_clock_mhz) FILTER (t.phase = 'throughput') AS sm_clock_median_mhz, max(t.memory_used_bytes) AS memory_used_max_bytes
FROM (SELECT * FROM runs WHERE node_id = $node ORDER BY started_at DESC LIMIT 200) r LEFT JOIN resources t ON t.run_id = r.run_id
GROUP BY ALL ORDER BY r.started_at
""",
        node=node,
    )


def sessions(node: str) -> Query:
    """The newest visits of the runner, with the boots of each."""
    return query(
        """
SELECT s.session_id, s.kind, s.started_at, s.finished_at, s.void, s.void_reason, count(r.run_id) AS boots,
       count(*) FILTER (r.outcome = 'pass') AS passed
FROM (SELECT * FROM sessions WHERE node_id = $node ORDER BY started_at DESC LIMIT 100) s LEFT JOIN runs r ON r.session_id = s.session_id
GROUP BY ALL ORDER BY s.started_at DESC
""",
        node=node,
    )


def running(node: str) -> Query:
    """Boots that have no outcome yet."""
    return query(
        """
SELECT run_id, started_at, engine, engine_version, recipe_name, backend_name, phase, purpose FROM runs
WHERE node_id = $node AND outcome IS NULL ORDER BY started_at DESC LIMIT 20
""",
        node=node,
    )
