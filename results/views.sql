-- The views of Sparkproof. They are made anew by every migration, so a changed view needs no migration of its own.

-- Median inside each boot (the boot is the unit of evidence), warm valid samples only. The formula; stored in stored_medians at ingest.
CREATE OR REPLACE VIEW sample_medians AS
SELECT
    run_id,
    workload,
    concurrency,
    launch_bound,
    count(decode_tok_s) AS samples,
    median(decode_tok_s) AS decode_tok_s,
    min(decode_tok_s) AS decode_tok_s_min,
    max(decode_tok_s) AS decode_tok_s_max,
    median(ttft_s) AS ttft_s,
    min(ttft_s) AS ttft_s_min,
    max(ttft_s) AS ttft_s_max,
    median(prefill_tok_s) AS prefill_tok_s,
    median(itl_p50_s) AS itl_p50_s,
    median(itl_p99_s) AS itl_p99_s,
    median(aggregate_tok_s) AS aggregate_tok_s,
    max(prompt_tokens) AS prompt_tokens,
    max(completion_tokens) AS completion_tokens
FROM samples
WHERE valid AND NOT cold
GROUP BY run_id, workload, concurrency, launch_bound;

-- The same, read from where they are stored.
CREATE OR REPLACE VIEW boot_medians AS SELECT * FROM stored_medians;

-- The workload whose numbers stand for a boot: decode_c1 if it was run, else the first one by name with one stream.
CREATE OR REPLACE VIEW main_medians AS
SELECT * FROM stored_medians WHERE concurrency = 1
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY workload <> 'decode_c1', workload, launch_bound) = 1;

-- The workload with several streams that stands for a boot: decode_c8 if it was run, else the first one by name.
CREATE OR REPLACE VIEW stream_medians AS
SELECT * FROM stored_medians WHERE concurrency > 1
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY workload <> 'decode_c8', workload, launch_bound) = 1;

-- Prompts asked by the gate, and prompts whose every answer was right.
CREATE OR REPLACE VIEW gate_counts AS
SELECT run_id, count(*) AS gate_prompts, count(*) FILTER (broken = 0) AS gate_matched, min(first_divergence) AS first_divergence
FROM (
    SELECT
        run_id,
        prompt_name,
        count(*) FILTER (verdict NOT IN ('match', 'tie', 'pass_structure')) AS broken,
        min(first_divergence) FILTER (verdict NOT IN ('match', 'tie', 'pass_structure')) AS first_divergence
    FROM coherence_results
    GROUP BY run_id, prompt_name
)
GROUP BY run_id;

-- The worst drift of a boot over its passages and steps.
CREATE OR REPLACE VIEW score_maxima AS
SELECT
    run_id,
    max(value) FILTER (metric = 'nll_drift_rms') AS nll_drift_rms,
    max(value) FILTER (metric = 'margin_drift_rms') AS margin_drift_rms,
    max(value) FILTER (metric = 'flip_rate') AS flip_rate
FROM scores
GROUP BY run_id;

-- The deepest context that was recalled with nothing shallower forgotten (0: none), and the shallowest that was not recalled.
CREATE OR REPLACE VIEW verified_contexts AS
SELECT
    run_id,
    CASE WHEN any_value(failed) IS NULL THEN max(depth_tokens) ELSE coalesce(max(depth_tokens) FILTER (depth_tokens < failed), 0) END
        AS verified_context_tokens,
    any_value(failed) AS failed_context_tokens
FROM (SELECT *, min(depth_tokens) FILTER (NOT coalesce(recalled, false)) OVER (PARTITION BY run_id) AS failed FROM context_depths)
GROUP BY run_id;

-- The worst word about the node during a boot, and whether it throttled.
CREATE OR REPLACE VIEW health_words AS
SELECT
    run_id,
    arg_max(verdict, CASE verdict WHEN 'void' THEN 3 WHEN 'suspect' THEN 2 WHEN 'ok' THEN 1 ELSE 0 END) AS health,
    bool_or(len(throttle_reasons) > 0) AS throttled
FROM health
GROUP BY run_id;

CREATE OR REPLACE VIEW phase_seconds AS
SELECT
    run_id,
    sum(duration_s) FILTER (phase = 'install') AS install_s,
    sum(duration_s) FILTER (phase IN ('launch', 'ready')) AS startup_s,
    sum(duration_s) FILTER (phase IN ('coherence', 'recheck')) AS gate_s,
    sum(duration_s) AS total_s
FROM phases
GROUP BY run_id;

-- Everything a boot is judged and shown by, one row each. The formula; stored in boot_facts at ingest.
CREATE OR REPLACE VIEW boot_facts_of_rows AS
SELECT
    r.run_id,
    m.workload,
    coalesce(m.launch_bound, s.launch_bound) AS launch_bound,
    m.samples,
    m.decode_tok_s,
    m.decode_tok_s_min,
    m.decode_tok_s_max,
    m.ttft_s,
    m.prefill_tok_s,
    m.itl_p50_s,
    m.itl_p99_s,
    s.workload AS streams_workload,
    s.concurrency AS streams,
    s.aggregate_tok_s,
    g.gate_prompts,
    g.gate_matched,
    g.first_divergence,
    -- null where others gave back more than the server took: what it took is then not known
    CASE WHEN r.memory_after_load_bytes > r.memory_baseline_bytes THEN r.memory_after_load_bytes - r.memory_baseline_bytes END AS memory_used_bytes,
    CASE WHEN r.memory_peak_bytes > r.memory_baseline_bytes THEN r.memory_peak_bytes - r.memory_baseline_bytes END AS memory_peak_used_bytes,
    r.memory_after_teardown_bytes - r.memory_baseline_bytes AS memory_leak_bytes,
    c.verified_context_tokens,
    c.failed_context_tokens,
    d.nll_drift_rms,
    d.margin_drift_rms,
    d.flip_rate,
    h.health,
    h.throttled,
    p.install_s,
    p.startup_s,
    p.gate_s,
    p.total_s,
    r.history_id
FROM runs r
LEFT JOIN main_medians m ON m.run_id = r.run_id
LEFT JOIN stream_medians s ON s.run_id = r.run_id
LEFT JOIN gate_counts g ON g.run_id = r.run_id
LEFT JOIN score_maxima d ON d.run_id = r.run_id
LEFT JOIN verified_contexts c ON c.run_id = r.run_id
LEFT JOIN health_words h ON h.run_id = r.run_id
LEFT JOIN phase_seconds p ON p.run_id = r.run_id;

-- FOR PAGES ----------------------------------------------------------------------------------------------------------------------------

-- One wide row per boot. is_evidence: whether verdicts use it; a boot of a void session counts as infrastructure.
CREATE OR REPLACE VIEW boots AS
SELECT
    r.* EXCLUDE (node_state_id),
    f.* EXCLUDE (run_id, history_id),
    v.release,
    v.position,
    n.label AS node_label,
    t.gpu_name,
    t.compute_capability,
    t.driver_version,
    t.cuda_version,
    t.kernel AS kernel_version,
    t.firmware,
    t.sm_clock_cap_mhz,
    t.memory_total_bytes,
    e.model,
    e.quantization,
    e.kind AS recipe_kind,
    e.revision AS recipe_revision,
    b.arguments AS backend_arguments,
    u.python_version,
    u.image_digest,
    s.kind AS session_kind,
    coalesce(s.void, false) AS session_void,
    CASE WHEN coalesce(s.void, false) THEN 'infrastructure' ELSE r.outcome END AS counted_as,
    r.outcome IS NOT NULL AND r.purpose IN ('measure', 'confirm', 'anchor', 'bisect') AND NOT coalesce(s.void, false) AS is_evidence
FROM runs r
LEFT JOIN boot_facts f ON f.history_id = r.history_id AND f.run_id = r.run_id
LEFT JOIN engine_versions v ON v.engine = r.engine AND v.version = r.engine_version
LEFT JOIN nodes n ON n.node_id = r.node_id
LEFT JOIN node_states t ON t.node_state_id = r.node_state_id
LEFT JOIN recipes e ON e.recipe_id = r.recipe_id
LEFT JOIN backends b ON b.backend_id = r.backend_id
LEFT JOIN engine_builds u ON u.build_id = r.build_id
LEFT JOIN sessions s ON s.session_id = r.session_id;

-- One row per release and cell: how it ended, the verdict against the last release with evidence, and its numbers beside the last good one's.
CREATE OR REPLACE VIEW matrix AS
SELECT
    v.history_id,
    h.engine,
    h.distribution,
    v.release,
    o.position,
    h.recipe_name,
    e.model,
    e.quantization,
    e.kind AS recipe_kind,
    CASE e.kind WHEN 'shape' THEN 'dummy' ELSE 'real' END AS weights,
    h.backend_name,
    h.node_id,
    n.label AS node_label,
    v.* EXCLUDE (history_id, release, evidence),
    v.release = h.newest_release AS is_newest,
    h.last_passing
FROM verdicts v
JOIN histories h ON h.history_id = v.history_id
LEFT JOIN (SELECT engine, release, any_value(position) AS position FROM engine_versions WHERE release IS NOT NULL GROUP BY engine, release) o
    ON o.engine = h.engine AND o.release = v.release
LEFT JOIN recipes e ON e.recipe_id = h.recipe_id
LEFT JOIN nodes n ON n.node_id = h.node_id;

-- One row per engine and release, newest position highest.
CREATE OR REPLACE VIEW releases AS
SELECT
    engine,
    release,
    any_value(position) AS position,
    any_value(position) = max(any_value(position)) OVER (PARTITION BY engine) AS is_newest,
    count(*) FILTER (verdict IS NOT NULL) AS cells,
    sum(boots)::BIGINT AS boots,
    count(*) FILTER (state = 'pass') AS passing,
    count(*) FILTER (state NOT IN ('pass', 'not_run', 'unsupported')) AS failing,
    count(*) FILTER (state = 'flaky') AS flaky,
    count(*) FILTER (state = 'unsupported') AS unsupported,
    count(*) FILTER (headline = 'broke') AS broke,
    count(*) FILTER (headline = 'fixed') AS fixed,
    count(*) FILTER (headline = 'slower') AS slower,
    count(*) FILTER (headline = 'faster') AS faster,
    count(*) FILTER (headline = 'inconclusive') AS inconclusive,
    count(*) FILTER (headline = 'confounded') AS confounded,
    count(*) FILTER (alarm) AS alarms,
    max(last_started_at) AS last_started_at
FROM matrix
GROUP BY engine, release;

-- Numbers of a history, one row per release and series, with the cell's name.
CREATE OR REPLACE VIEW numbers AS
SELECT h.engine, h.distribution, h.recipe_name, h.backend_name, h.node_id, o.position, v.*
FROM number_verdicts v
JOIN histories h ON h.history_id = v.history_id
LEFT JOIN (SELECT engine, release, any_value(position) AS position FROM engine_versions WHERE release IS NOT NULL GROUP BY engine, release) o
    ON o.engine = h.engine AND o.release = v.release;

-- Findings with the name of their cell.
CREATE OR REPLACE VIEW cell_findings AS
SELECT h.engine, h.distribution, h.recipe_name, h.backend_name, h.node_id, n.label AS node_label, f.*
FROM findings f
JOIN histories h ON h.history_id = f.history_id
LEFT JOIN nodes n ON n.node_id = h.node_id;

-- How old the evidence on each cell is. releases_behind: releases of the engine newer than the newest one with evidence on this cell.
CREATE OR REPLACE VIEW freshness AS
SELECT
    h.history_id,
    h.engine,
    h.distribution,
    h.recipe_name,
    h.backend_name,
    h.node_id,
    n.label AS node_label,
    h.boots,
    h.newest_release,
    w.release AS engine_newest_release,
    w.position - o.position AS releases_behind,
    h.last_passing,
    h.first_started_at,
    h.last_started_at,
    v.state,
    v.headline
FROM histories h
LEFT JOIN (
    SELECT engine, max(position) AS position, arg_max(release, position) AS release FROM engine_versions WHERE release IS NOT NULL GROUP BY engine
) w ON w.engine = h.engine
LEFT JOIN (SELECT engine, release, any_value(position) AS position FROM engine_versions WHERE release IS NOT NULL GROUP BY engine, release) o
    ON o.engine = h.engine AND o.release = h.newest_release
LEFT JOIN verdicts v ON v.history_id = h.history_id AND v.release = h.newest_release
LEFT JOIN nodes n ON n.node_id = h.node_id;

-- Peaks and minima of the telemetry of one boot in each of its phases.
CREATE OR REPLACE VIEW resource_extremes AS
SELECT
    run_id,
    phase,
    count(*) AS samples,
    max(memory_used_bytes) AS memory_used_bytes_max,
    max(group_rss_bytes) AS group_rss_bytes_max,
    max(group_cpu_percent) AS group_cpu_percent_max,
    max(gpu_memory_used_bytes) AS gpu_memory_used_bytes_max,
    min(gpu_power_w) AS gpu_power_w_min,
    max(gpu_power_w) AS gpu_power_w_max,
    min(gpu_sm_clock_mhz) AS gpu_sm_clock_mhz_min,
    max(gpu_sm_clock_mhz) AS gpu_sm_clock_mhz_max,
    max(gpu_temperature_c) AS gpu_temperature_c_max,
    min(gpu_utilization_percent) AS gpu_utilization_percent_min,
    max(gpu_utilization_percent) AS gpu_utilization_percent_max
FROM resources
GROUP BY run_id, phase;

-- How near one stream came to what the memory allows: percent = decode_tok_s x bytes_per_token / bandwidth of the node's own probe (the best of
-- before and after the boot: neighbours only make a probe slower), and of the data sheet's. bytes_per_token = the weights that one token
-- reads (recipe) + the KV cache at the middle of the answer (a cache type of unknown size counts nothing). Launch-bound samples and weights
-- below 256 MiB have no roofline: they may come from a cache. alarm: more than 105 % of the probe (5 % is what two probes of a sound node
-- may differ by) or of the data sheet, without speculation, and not with sizes that are only estimated.
CREATE OR REPLACE VIEW rooflines AS
WITH sizes AS (
    SELECT
        recipe_id,
        CAST(definition ->> '$.weights.active_bytes' AS BIGINT) AS active_bytes,
        definition ->> '$.weights.bound' AS bound,
        2 * coalesce(CAST(definition ->> '$.kv.kv_heads' AS BIGINT), 0) * coalesce(CAST(definition ->> '$.kv.head_dim' AS BIGINT), 0)
            AS values_per_layer,
        coalesce(CAST(definition ->> '$.kv.full_layers' AS BIGINT), 0) AS full_layers,
        coalesce(CAST(definition ->> '$.kv.sliding_layers' AS BIGINT), 0) AS sliding_layers,
        coalesce(CAST(definition ->> '$.kv.sliding_window' AS BIGINT), 0) AS sliding_window,
        coalesce(CAST(definition ->> '$.kv.latent_layers' AS BIGINT), 0) * coalesce(CAST(definition ->> '$.kv.latent_dim' AS BIGINT), 0)
            AS latent_values
    FROM recipes
),
probes AS (  -- a subquery for each row instead is worked out over all boots whenever one is asked for
    SELECT run_id, max(bandwidth_gb_s) AS bandwidth_gb_s, max(100 * bandwidth_gb_s / percent_of_nominal) AS nominal_gb_s
    FROM health
    WHERE bandwidth_gb_s > 0
    GROUP BY run_id
),
reads AS (
    SELECT
        r.run_id,
        r.history_id,
        r.purpose,
        r.started_at,
        m.workload,
        m.decode_tok_s,
        r.weights,
        s.bound,
        s.active_bytes,
        m.prompt_tokens + m.completion_tokens / 2 AS context_tokens,
        lower(coalesce(nullif(r.actual ->> '$.kv_cache_dtype', 'unknown'), r.configured ->> '$.kv_cache_dtype', 'auto')) AS kv_cache_dtype,
        CAST(
            (s.values_per_layer * (s.full_layers * context_tokens + s.sliding_layers * least(context_tokens, s.sliding_window))
                + s.latent_values * context_tokens)
            * CASE WHEN kv_cache_dtype LIKE 'fp8%' THEN 8 WHEN kv_cache_dtype = 'nvfp4' THEN 4.5
                WHEN kv_cache_dtype IN ('auto', 'bfloat16', 'bf16', 'float16') THEN 16 ELSE 0 END / 8 AS BIGINT
        ) AS kv_bytes,
        s.active_bytes + coalesce(kv_bytes, 0) AS bytes_per_token,
        p.bandwidth_gb_s,
        p.nominal_gb_s,
        coalesce(list_bool_or(list_transform(r.command, lambda argument: argument LIKE '--speculative%')), false) AS speculative
    FROM runs r
    JOIN stored_medians m ON m.run_id = r.run_id AND m.concurrency = 1 AND NOT m.launch_bound AND m.decode_tok_s IS NOT NULL
    JOIN sizes s ON s.recipe_id = r.recipe_id AND s.active_bytes >= 268435456
    LEFT JOIN probes p ON p.run_id = r.run_id
)
SELECT
    *,
    1e9 * bandwidth_gb_s / bytes_per_token AS roofline_tok_s,
    100 * decode_tok_s * bytes_per_token / (1e9 * bandwidth_gb_s) AS percent,
    100 * decode_tok_s * bytes_per_token / (1e9 * nominal_gb_s) AS percent_of_nominal,
    coalesce(percent > 105 OR percent_of_nominal > 100, false) AND NOT speculative AND bound <> 'about' AS alarm
FROM reads;
