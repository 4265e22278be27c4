-- The tables of Sparkproof, version 6 (views: views.sql). Null means "not measured"; 0 is a measurement.
-- Field meanings and units: results/records.py. Every raw repeat is a row. Tables below the line DERIVED hold nothing that the rows above do
-- not say: they are filled at ingest so that no page has to compute, and `sparkproof rebuild` fills them alike.

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
    firmware VARCHAR,
    power_limit_w DOUBLE,
    power_source VARCHAR,
    network VARCHAR[],
    last_run_id VARCHAR
);

CREATE TABLE engine_builds (
    build_id VARCHAR PRIMARY KEY,
    engine VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    distribution VARCHAR NOT NULL,
    python_version VARCHAR,
    wheels VARCHAR[],
    image_digest VARCHAR,
    last_run_id VARCHAR
);

CREATE TABLE recipes (
    recipe_id VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    revision VARCHAR,
    quantization VARCHAR,
    kind VARCHAR NOT NULL,
    definition JSON,
    last_run_id VARCHAR
);

CREATE TABLE backends (
    backend_id VARCHAR PRIMARY KEY,
    engine VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    arguments VARCHAR[],
    environment JSON,
    last_run_id VARCHAR
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
    swap_used_bytes BIGINT,
    weights VARCHAR NOT NULL,
    history_id VARCHAR,
    node_state_id VARCHAR
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

-- DERIVED ------------------------------------------------------------------------------------------------------------------------------

-- What a node was like during some boots: what of the node record can change a number, by content.
CREATE TABLE node_states (
    node_state_id VARCHAR PRIMARY KEY,
    node_id VARCHAR NOT NULL,
    gpu_name VARCHAR,
    compute_capability VARCHAR,
    driver_version VARCHAR,
    cuda_version VARCHAR,
    kernel VARCHAR,
    os_name VARCHAR,
    memory_total_bytes BIGINT,
    sm_clock_cap_mhz INTEGER,
    firmware VARCHAR,
    power_limit_w DOUBLE
);

-- Every version that was ever booted. release and position are null for what is no release (fork and development builds).
CREATE TABLE engine_versions (
    engine VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    release VARCHAR,
    position INTEGER,
    PRIMARY KEY (engine, version)
);

-- One row per boot and workload: the rows of the view sample_medians.
CREATE TABLE stored_medians (
    run_id VARCHAR NOT NULL,
    workload VARCHAR NOT NULL,
    concurrency INTEGER NOT NULL,
    launch_bound BOOLEAN NOT NULL,
    samples BIGINT NOT NULL,
    decode_tok_s DOUBLE,
    decode_tok_s_min DOUBLE,
    decode_tok_s_max DOUBLE,
    ttft_s DOUBLE,
    ttft_s_min DOUBLE,
    ttft_s_max DOUBLE,
    prefill_tok_s DOUBLE,
    itl_p50_s DOUBLE,
    itl_p99_s DOUBLE,
    aggregate_tok_s DOUBLE,
    prompt_tokens BIGINT,
    completion_tokens BIGINT
);

-- One row per boot: the rows of the view boot_facts_of_rows.
CREATE TABLE boot_facts (
    run_id VARCHAR NOT NULL,
    workload VARCHAR,
    launch_bound BOOLEAN,
    samples BIGINT,
    decode_tok_s DOUBLE,
    decode_tok_s_min DOUBLE,
    decode_tok_s_max DOUBLE,
    ttft_s DOUBLE,
    prefill_tok_s DOUBLE,
    itl_p50_s DOUBLE,
    itl_p99_s DOUBLE,
    streams_workload VARCHAR,
    streams INTEGER,
    aggregate_tok_s DOUBLE,
    gate_prompts BIGINT,
    gate_matched BIGINT,
    first_divergence INTEGER,
    memory_used_bytes BIGINT,
    memory_peak_used_bytes BIGINT,
    memory_leak_bytes BIGINT,
    verified_context_tokens BIGINT,
    failed_context_tokens BIGINT,
    nll_drift_rms DOUBLE,
    margin_drift_rms DOUBLE,
    flip_rate DOUBLE,
    health VARCHAR,
    throttled BOOLEAN,
    install_s DOUBLE,
    startup_s DOUBLE,
    gate_s DOUBLE,
    total_s DOUBLE
);

-- One row per cell without its release: what a history is drawn over. history_id is runs.history_id.
CREATE TABLE histories (
    history_id VARCHAR PRIMARY KEY,
    engine VARCHAR NOT NULL,
    distribution VARCHAR NOT NULL,
    recipe_name VARCHAR NOT NULL,
    backend_name VARCHAR NOT NULL,
    node_id VARCHAR NOT NULL,
    recipe_id VARCHAR,
    boots BIGINT NOT NULL,
    newest_release VARCHAR,
    last_passing VARCHAR,
    first_started_at TIMESTAMPTZ,
    last_started_at TIMESTAMPTZ,
    not_releases VARCHAR[],
    exclusions JSON,
    error VARCHAR
);

-- One row per history and release from its first to its newest one: pass and fail, and the word for the matrix (headline).
-- evidence: the boots that it was made of, as the rule saw them (results/settled.py).
CREATE TABLE verdicts (
    history_id VARCHAR NOT NULL,
    release VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    verdict VARCHAR,
    headline VARCHAR,
    confirmed BOOLEAN NOT NULL,
    alarm BOOLEAN NOT NULL,
    boots INTEGER NOT NULL,
    counts JSON NOT NULL,
    boots_needed INTEGER NOT NULL,
    after VARCHAR,
    since VARCHAR,
    skipped VARCHAR[],
    last_good VARCHAR,
    reason VARCHAR NOT NULL,
    differs VARCHAR[],
    suppressed VARCHAR,
    decode_tok_s DOUBLE,
    decode_tok_s_low DOUBLE,
    decode_tok_s_high DOUBLE,
    decode_change DOUBLE,
    ttft_s DOUBLE,
    aggregate_tok_s DOUBLE,
    launch_bound BOOLEAN,
    last_run_id VARCHAR,
    last_started_at TIMESTAMPTZ,
    evidence VARCHAR
);

-- One row per history, passing release and series (WORKLOAD/METRIC[/launch_bound], or METRIC for a number of the whole boot).
CREATE TABLE number_verdicts (
    history_id VARCHAR NOT NULL,
    release VARCHAR NOT NULL,
    series VARCHAR NOT NULL,
    workload VARCHAR,
    metric VARCHAR NOT NULL,
    launch_bound BOOLEAN NOT NULL,
    verdict VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    baseline VARCHAR,
    median DOUBLE NOT NULL,
    low DOUBLE NOT NULL,
    high DOUBLE NOT NULL,
    n_baseline INTEGER NOT NULL,
    n_candidate INTEGER NOT NULL,
    n_level INTEGER NOT NULL,
    n_rerun INTEGER NOT NULL,
    effect DOUBLE,
    interval_low DOUBLE,
    interval_high DOUBLE,
    interval_level DOUBLE,
    p DOUBLE,
    moved BOOLEAN NOT NULL,
    boots_to_decide INTEGER,
    differs VARCHAR[],
    warnings VARCHAR[]
);

-- Bands of a chart: releases first to last (both inclusive) ran at one level.
CREATE TABLE levels (
    history_id VARCHAR NOT NULL,
    series VARCHAR NOT NULL,
    first_release VARCHAR NOT NULL,
    last_release VARCHAR NOT NULL,
    level DOUBLE NOT NULL,
    spread DOUBLE NOT NULL
);

-- What broke or slowed down, at its present stage: detected, confirmed, fixed, ignored. subject is `outcome` or a series.
CREATE TABLE findings (
    finding_id VARCHAR PRIMARY KEY,
    history_id VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    after VARCHAR,
    release VARCHAR NOT NULL,
    stage VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    fixed_in VARCHAR,
    note VARCHAR,
    effect DOUBLE,
    last_run_id VARCHAR,
    last_started_at TIMESTAMPTZ
);

-- Histories whose verdicts are older than their boots of these versions (null: of any); empty but for a moment.
CREATE TABLE stale_histories (history_id VARCHAR NOT NULL, version VARCHAR);
