"""One frozen record per row that a boot leaves behind.

Trap: a median stored as a fact, or a 0 that means "not measured". Rule: every raw repeat is a record, `None` means not measured, and a
number is only ever what was measured. The boot folder holds these records as JSON; the DuckDB tables hold the same fields
(`results/schema.sql`), so the database can be rebuilt from the folders alone.

Times named `*_at` are UTC, ISO 8601; durations end in `_s`; sizes end in `_bytes`; rates in `_tok_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from results.vocabulary import Outcome, Phase, Purpose

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
    power_limit_w: float | None = None
    """The driver's enforced limit; a GB10 has none to tell."""
    power_source: str | None = None
    """What the node says about its supply, such as `USB online; spark_hwmon pl1 140 W`; None: nothing."""
    network: tuple[str, ...] = ()
    """Network cards as `name driver speed`, and RDMA devices as `name rdma`; never an address."""


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
    purpose: Purpose = Purpose.MEASURE
    control_of: str | None = None
    """The run that this boot is a control of (purpose `control`), or confirms (purpose `confirm`)."""
    kv_cache_bytes: int | None = None
    swap_used_bytes: int | None = None
    """Swap in use on the node when the boot's server was at its peak; null where the node has no swap counter."""
    weights: str = "real"
    """`real`, or `dummy` for a shape, which the engine filled with random numbers: its speed is never compared with real weights."""


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


@dataclass(frozen=True)
class ScoreRecord:
    """One correctness number that is no verdict on a single answer: margin drift, fixed-text score, flip rate.

    `metric` is one of `margin_drift_rms`, `margin_drift_max` (nats), `nll_mean`, `nll_drift_rms`, `nll_drift_max` (nats per token),
    `top1_agreement`, `flip_rate`, `chat_golden_right` (fractions), `first_difference` (the step that differs first, the value is its first
    differing token, the reason what that step points at); `subject` names the passage, step or prompt; `reference` the path it was compared
    with (weight format / activation format / KV-cache dtype).
    """

    run_id: str
    step: str
    metric: str
    subject: str
    value: float | None
    threshold: float | None = None
    reference: str | None = None
    tokens: int | None = None
    verdict: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class ContextRecord:
    """Whether a fact placed `depth_tokens` before the question was recalled, and what that depth costs."""

    run_id: str
    probe: str
    """`recall` (a canary's memorised long text) or `needle` (a fact in a passage)."""
    depth_tokens: int
    recalled: bool | None
    """None: the server did not answer; `reason` says how."""
    reason: str
    text: str = ""
    ttft_s: float | None = None
    decode_tok_s: float | None = None


@dataclass(frozen=True)
class HealthRecord:
    """What the node was like at one moment. A field that this node cannot tell is None."""

    run_id: str
    read_at: str
    moment: str
    """`before` or `after` the boot."""
    verdict: str
    """`ok`, `suspect`, `void` (the boot's numbers do not count) or `unknown` (no probe ran)."""
    reasons: tuple[str, ...] = ()
    probe: str | None = None
    """Which memory-bound matrix-vector probe ran: `torch-cuda` or `numpy`."""
    bandwidth_gb_s: float | None = None
    percent_of_nominal: float | None = None
    percent_of_history: float | None = None
    gpu_temperature_c: float | None = None
    gpu_power_w: float | None = None
    gpu_sm_clock_mhz: int | None = None
    gpu_utilization_percent: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    other_gpu_processes: int | None = None
    memory_available_bytes: int | None = None
    page_cache_bytes: int | None = None
    swap_used_bytes: int | None = None
    disk_free_bytes: int | None = None
    caches_dropped: bool = False


@dataclass(frozen=True)
class EngineCounterRecord:
    """One number of the engine's own metrics over a timed window (difference of two readings, or a mean from its histogram).

    `metric` is our name for it: `spec_acceptance_rate`, `spec_accepted_length`, `generation_tokens`, `ttft_mean_s`, `itl_mean_s`.
    """

    run_id: str
    workload: str
    metric: str
    value: float


@dataclass(frozen=True)
class KernelMessageRecord:
    """One line of the kernel's log that concerns the GPU (NVRM, Xid, OOM killer), seen while the boot ran."""

    run_id: str
    elapsed_s: float
    line: str


@dataclass(frozen=True)
class DiagnosisRecord:
    """Why a boot failed its gate, from control boots on the same weights with one thing changed each."""

    run_id: str
    concluded_at: str
    conclusion: str
    """`kernel`, `execution_path`, `attention`, `kv_cache`, `concurrency`, `template_or_bos`, `weights_or_model`, `engine_version` or
    `undecided`."""
    detail: str | None
    """What exactly, such as `moe=flashinfer_cutlass` or `cuda_graphs`."""
    sentence: str
    use_instead: tuple[str, ...] = ()
    """Flags that work; empty if none were found."""
    controls: tuple[str, ...] = ()
    """Run ids of the control boots, in the order they were made."""


class BootRows(NamedTuple):
    """Where the rows of one kind live: the table of the database and the file of the boot folder."""

    table: str
    file: str


BOOT_ROWS: Mapping[type[Any], BootRows] = MappingProxyType(
    {
        PhaseRecord: BootRows("phases", "phases.jsonl"),
        CoherenceRecord: BootRows("coherence_results", "coherence.jsonl"),
        SampleRecord: BootRows("samples", "samples.jsonl"),
        ResourceRecord: BootRows("resources", "resources.jsonl"),
        ScoreRecord: BootRows("scores", "scores.jsonl"),
        ContextRecord: BootRows("context_depths", "context.jsonl"),
        HealthRecord: BootRows("health", "health.jsonl"),
        EngineCounterRecord: BootRows("engine_counters", "counters.jsonl"),
        KernelMessageRecord: BootRows("kernel_messages", "kernel_messages.jsonl"),
        DiagnosisRecord: BootRows("diagnoses", "diagnosis.jsonl"),
    }
)
"""Every kind of row that a boot leaves many of."""

BootRow = (
    PhaseRecord
    | CoherenceRecord
    | SampleRecord
    | ResourceRecord
    | ScoreRecord
    | ContextRecord
    | HealthRecord
    | EngineCounterRecord
    | KernelMessageRecord
    | DiagnosisRecord
)
