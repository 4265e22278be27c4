-- From version 2 to 3: what is derived from the rows (node states, medians, verdicts, findings) is stored at ingest.

ALTER TABLE nodes ADD COLUMN IF NOT EXISTS power_limit_w DOUBLE;
ALTER TABLE nodes ADD COLUMN IF NOT EXISTS power_source VARCHAR;
ALTER TABLE nodes ADD COLUMN IF NOT EXISTS network VARCHAR[];
ALTER TABLE nodes ADD COLUMN last_run_id VARCHAR;
ALTER TABLE engine_builds ADD COLUMN last_run_id VARCHAR;
ALTER TABLE recipes ADD COLUMN last_run_id VARCHAR;
ALTER TABLE backends ADD COLUMN last_run_id VARCHAR;
ALTER TABLE runs ADD COLUMN history_id VARCHAR;
ALTER TABLE runs ADD COLUMN node_state_id VARCHAR;
DROP VIEW IF EXISTS boot_medians;

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
    last_started_at TIMESTAMPTZ
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

-- Histories whose verdicts are older than their boots; empty but for a moment.
CREATE TABLE stale_histories (history_id VARCHAR PRIMARY KEY);
