-- From version 1 to 2: correctness scores, context depths, health, counters, diagnoses, sessions, claims, ignores.

ALTER TABLE runs ADD COLUMN purpose VARCHAR DEFAULT 'measure';
ALTER TABLE runs ADD COLUMN control_of VARCHAR;
ALTER TABLE runs ADD COLUMN kv_cache_bytes BIGINT;
ALTER TABLE runs ADD COLUMN swap_used_bytes BIGINT;

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
