-- The data model of Sparkproof, version 2. Null means "not measured"; 0 is a measurement.
-- Field meanings and units: results/records.py. Every raw repeat is a row; medians are views.

CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMPTZ DEFAULT now());

CREATE TABLE nodes (
    node_id VARCHAR PRIMARY KEY,
    label VARCHAR NOT NULL,
    gpu_name VARCHAR,
    compute_capability VARCHAR,
    driver_version VARCHAR,
    cuda_version VARCHAR,
    kernel VARCHAR,
    os_name VARCHAR,
    cpu_model VARCHAR,
    cpu_count INTEGER,
    memory_total_bytes BIGINT,
    sm_clock_cap_mhz INTEGER,
    firmware VARCHAR
);

CREATE TABLE engine_builds (
    build_id VARCHAR PRIMARY KEY,
    engine VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    distribution VARCHAR NOT NULL,
    python_version VARCHAR,
    wheels VARCHAR[],
    image_digest VARCHAR
);

CREATE TABLE recipes (
    recipe_id VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    revision VARCHAR,
    quantization VARCHAR,
    kind VARCHAR NOT NULL,
    definition JSON
);

CREATE TABLE backends (
    backend_id VARCHAR PRIMARY KEY,
    engine VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    arguments VARCHAR[],
    environment JSON
);

CREATE TABLE runs (
    run_id VARCHAR PRIMARY KEY,
    session_id VARCHAR NOT NULL,
    cell_id VARCHAR NOT NULL,
    series_id VARCHAR NOT NULL,
    engine VARCHAR NOT NULL,
    engine_version VARCHAR NOT NULL,
    distribution VARCHAR NOT NULL,
    recipe_name VARCHAR NOT NULL,
    backend_name VARCHAR NOT NULL,
    node_id VARCHAR NOT NULL,
    protocol_version INTEGER NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    phase VARCHAR NOT NULL,
    outcome VARCHAR,
    reason VARCHAR,
    signature VARCHAR,
    log_excerpt VARCHAR,
    build_id VARCHAR,
    recipe_id VARCHAR,
    backend_id VARCHAR,
    command VARCHAR[],
    environment JSON,
    server_version VARCHAR,
    served_model VARCHAR,
    max_model_len BIGINT,
    kv_cache_tokens BIGINT,
    model_memory_bytes BIGINT,
    configured JSON,
    actual JSON,
    memory_baseline_bytes BIGINT,
    memory_after_load_bytes BIGINT,
    memory_peak_bytes BIGINT,
    memory_after_teardown_bytes BIGINT,
    dropped_request_fields VARCHAR[],
    engine_token_count BIGINT,
    client_token_count BIGINT,
    warnings VARCHAR[],
    in_process BOOLEAN NOT NULL,
    purpose VARCHAR NOT NULL,
    control_of VARCHAR,
    kv_cache_bytes BIGINT,
    swap_used_bytes BIGINT
);

CREATE TABLE phases (
    run_id VARCHAR NOT NULL,
    phase VARCHAR NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    duration_s DOUBLE NOT NULL,
    completed BOOLEAN NOT NULL
);

CREATE TABLE coherence_results (
    run_id VARCHAR NOT NULL,
    step VARCHAR NOT NULL,
    prompt_name VARCHAR NOT NULL,
    judge VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    token_ids INTEGER[],
    expected_ids INTEGER[],
    first_divergence INTEGER,
    min_margin DOUBLE,
    min_margin_position INTEGER,
    finish_reason VARCHAR,
    carried_by VARCHAR
);

CREATE TABLE samples (
    run_id VARCHAR NOT NULL,
    workload VARCHAR NOT NULL,
    repeat INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    concurrency INTEGER NOT NULL,
    cold BOOLEAN NOT NULL,
    launch_bound BOOLEAN NOT NULL,
    prompt_tokens BIGINT,
    completion_tokens BIGINT,
    cached_tokens BIGINT,
    ttft_s DOUBLE,
    decode_tok_s DOUBLE,
    prefill_tok_s DOUBLE,
    itl_p50_s DOUBLE,
    itl_p90_s DOUBLE,
    itl_p99_s DOUBLE,
    e2e_s DOUBLE,
    e2e_tok_s DOUBLE,
    aggregate_tok_s DOUBLE,
    client_lag_s DOUBLE,
    valid BOOLEAN NOT NULL,
    invalid_reason VARCHAR,
    null_reason VARCHAR,
    carried_by VARCHAR,
    flags VARCHAR[]
);

CREATE TABLE resources (
    run_id VARCHAR NOT NULL,
    elapsed_s DOUBLE NOT NULL,
    phase VARCHAR NOT NULL,
    memory_used_bytes BIGINT,
    group_rss_bytes BIGINT,
    group_cpu_percent DOUBLE,
    gpu_memory_used_bytes BIGINT,
    gpu_power_w DOUBLE,
    gpu_sm_clock_mhz INTEGER,
    gpu_temperature_c DOUBLE,
    gpu_utilization_percent DOUBLE
);

CREATE TABLE scores (
    run_id VARCHAR NOT NULL,
    step VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    value DOUBLE,
    threshold DOUBLE,
    reference VARCHAR,
    tokens BIGINT,
    verdict VARCHAR,
    reason VARCHAR
);

CREATE TABLE context_depths (
    run_id VARCHAR NOT NULL,
    probe VARCHAR NOT NULL,
    depth_tokens BIGINT NOT NULL,
    recalled BOOLEAN,
    reason VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    ttft_s DOUBLE,
    decode_tok_s DOUBLE
);

CREATE TABLE health (
    run_id VARCHAR NOT NULL,
    read_at TIMESTAMPTZ NOT NULL,
    moment VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    reasons VARCHAR[],
    probe VARCHAR,
    bandwidth_gb_s DOUBLE,
    percent_of_nominal DOUBLE,
    percent_of_history DOUBLE,
    gpu_temperature_c DOUBLE,
    gpu_power_w DOUBLE,
    gpu_sm_clock_mhz INTEGER,
    gpu_utilization_percent DOUBLE,
    throttle_reasons VARCHAR[],
    other_gpu_processes INTEGER,
    memory_available_bytes BIGINT,
    page_cache_bytes BIGINT,
    swap_used_bytes BIGINT,
    disk_free_bytes BIGINT,
    caches_dropped BOOLEAN NOT NULL
);

CREATE TABLE engine_counters (
    run_id VARCHAR NOT NULL,
    workload VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    value DOUBLE NOT NULL
);

CREATE TABLE kernel_messages (run_id VARCHAR NOT NULL, elapsed_s DOUBLE NOT NULL, line VARCHAR NOT NULL);

CREATE TABLE diagnoses (
    run_id VARCHAR NOT NULL,
    concluded_at TIMESTAMPTZ NOT NULL,
    conclusion VARCHAR NOT NULL,
    detail VARCHAR,
    sentence VARCHAR NOT NULL,
    use_instead VARCHAR[],
    controls VARCHAR[]
);

CREATE TABLE sessions (
    session_id VARCHAR PRIMARY KEY,
    node_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    void BOOLEAN NOT NULL,
    void_reason VARCHAR,
    anchor_run_id VARCHAR
);

CREATE TABLE claims (
    claim_id VARCHAR PRIMARY KEY,
    source VARCHAR NOT NULL,
    tool VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    engine VARCHAR,
    engine_version VARCHAR,
    recipe_name VARCHAR,
    model VARCHAR,
    backend_name VARCHAR,
    node VARCHAR,
    concurrency INTEGER,
    claimed_at VARCHAR,
    note VARCHAR
);

CREATE TABLE ignores (
    finding_id VARCHAR PRIMARY KEY,
    engine VARCHAR NOT NULL,
    recipe_name VARCHAR NOT NULL,
    backend_name VARCHAR NOT NULL,
    node_id VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    after VARCHAR,
    release VARCHAR NOT NULL,
    why VARCHAR NOT NULL,
    ignored_at TIMESTAMPTZ NOT NULL
);

-- Median inside each boot (the boot is the unit of evidence), warm valid samples only.
CREATE VIEW boot_medians AS
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
    median(prefill_tok_s) AS prefill_tok_s,
    median(itl_p50_s) AS itl_p50_s,
    median(itl_p99_s) AS itl_p99_s,
    median(aggregate_tok_s) AS aggregate_tok_s
FROM samples
WHERE valid AND NOT cold
GROUP BY run_id, workload, concurrency, launch_bound;
