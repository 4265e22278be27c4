"""One frozen record per row that a boot leaves behind.

Trap: a median stored as a fact, or a 0 that means "not measured". Rule: every raw repeat is a record, `None` means not measured, and a
number is only ever what was measured. The boot folder holds these records as JSON; the DuckDB tables hold the same fields
(`results/schema.sql`), so the database can be rebuilt from the folders alone.

Times named `*_at` are UTC, ISO 8601; durations end in `_s`; sizes end in `_bytes`; rates in `_tok_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from results.vocabulary import Outcome, Phase

PROTOCOL_VERSION = 1
"""Version of our own measuring protocol (M16): any change to prompts, workloads or formulas raises it and starts a new series."""


@dataclass(frozen=True)
class NodeRecord:
    """The machine a boot ran on. `node_id` is a stable pseudonym, `label` what its owner calls it."""

    node_id: str
    label: str
    gpu_name: str | None = None
    compute_capability: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    kernel: str | None = None
    os_name: str | None = None
    cpu_model: str | None = None
    cpu_count: int | None = None
    memory_total_bytes: int | None = None
    sm_clock_cap_mhz: int | None = None
    firmware: str | None = None


@dataclass(frozen=True)
class EngineBuildRecord:
    """What was really installed: `wheels` is the sorted `name==version` set of the environment, `build_id` its digest."""

    build_id: str
    engine: str
    version: str
    distribution: str
    python_version: str | None = None
    wheels: tuple[str, ...] = ()
    image_digest: str | None = None


@dataclass(frozen=True)
class RecipeRecord:
    """Model id + revision + quantisation + chat template + default serve arguments; `recipe_id` hashes `definition`."""

    recipe_id: str
    name: str
    model: str
    revision: str | None
    quantization: str | None
    kind: str
    definition: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BackendRecord:
    """A named set of arguments and environment variables that chooses kernels; `backend_id` hashes engine, arguments and environment."""

    backend_id: str
    engine: str
    name: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PhaseRecord:
    """How long one phase of a boot took, and whether it completed."""

    run_id: str
    phase: Phase
    started_at: str
    duration_s: float
    completed: bool


@dataclass(frozen=True)
class RunRecord:
    """One boot: one start of a server for a cell. Written first when the boot begins, last when it ends."""

    run_id: str
    session_id: str
    cell_id: str
    """Identity hash (M16): engine build, recipe, backend, workloads, node, protocol version."""
    series_id: str
    """The same without the engine version: what a history is drawn over."""
    engine: str
    engine_version: str
    distribution: str
    recipe_name: str
    backend_name: str
    node_id: str
    protocol_version: int
    started_at: str
    finished_at: str | None = None
    phase: Phase = Phase.RESOLVE
    """The phase reached last; for a failure, the phase that failed."""
    outcome: Outcome | None = None
    """None while the boot is running."""
    reason: str | None = None
    signature: str | None = None
    log_excerpt: str | None = None
    build_id: str | None = None
    recipe_id: str | None = None
    backend_id: str | None = None
    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    server_version: str | None = None
    served_model: str | None = None
    max_model_len: int | None = None
    kv_cache_tokens: int | None = None
    model_memory_bytes: int | None = None
    configured: dict[str, str] = field(default_factory=dict)
    """Kernel slots asked for, such as {"attention": "TRITON_ATTN"}."""
    actual: dict[str, str] = field(default_factory=dict)
    """Kernel slots the engine itself says ran; a slot not seen is "unknown"."""
    memory_baseline_bytes: int | None = None
    memory_after_load_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_after_teardown_bytes: int | None = None
    dropped_request_fields: tuple[str, ...] = ()
    engine_token_count: int | None = None
    """Generation tokens counted by the engine's own Prometheus counter over the timed window (None: it has none)."""
    client_token_count: int | None = None
    warnings: tuple[str, ...] = ()
    in_process: bool = False
    """True for a sweep's boot, which shares its process with others and is never used for timing."""


@dataclass(frozen=True)
class CoherenceRecord:
    """One judged answer. `step` says which pass of the gate it belongs to, `judge` who decided."""

    run_id: str
    step: str
    prompt_name: str
    judge: str
    verdict: str
    reason: str
    text: str
    token_ids: tuple[int, ...] = ()
    expected_ids: tuple[int, ...] = ()
    first_divergence: int | None = None
    min_margin: float | None = None
    min_margin_position: int | None = None
    finish_reason: str | None = None
    carried_by: str | None = None
    """Which field of the response carried the text: content, reasoning, reasoning_content, text, output_ids."""


@dataclass(frozen=True)
class SampleRecord:
    """One stream of one timed request batch. A number that could not be known is None and `null_reason` says why."""

    run_id: str
    workload: str
    repeat: int
    stream: int
    concurrency: int
    cold: bool
    """True for warm-up requests: kept apart, never part of a median (M10)."""
    launch_bound: bool
    """True for a canary: its speed is launch overhead, never a model's speed."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    ttft_s: float | None = None
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    itl_p50_s: float | None = None
    itl_p90_s: float | None = None
    itl_p99_s: float | None = None
    e2e_s: float | None = None
    e2e_tok_s: float | None = None
    aggregate_tok_s: float | None = None
    """Tokens of all streams of this batch over the batch's window; the same value on each of its streams."""
    client_lag_s: float | None = None
    valid: bool = True
    invalid_reason: str | None = None
    null_reason: str | None = None
    carried_by: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResourceRecord:
    """One telemetry sample, `elapsed_s` after the boot began. GPU values are None where the node cannot tell (GB10: memory)."""

    run_id: str
    elapsed_s: float
    phase: Phase
    memory_used_bytes: int | None = None
    """MemTotal - MemAvailable of the node (M20)."""
    group_rss_bytes: int | None = None
    group_cpu_percent: float | None = None
    gpu_memory_used_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_sm_clock_mhz: int | None = None
    gpu_temperature_c: float | None = None
    gpu_utilization_percent: float | None = None
