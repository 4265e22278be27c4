"""Kernels read from logs: golden over every recorded log, wordings of other versions, and lines that nobody knows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.engines.kernels import SLOTS, agrees, family, kernel_facts, mismatches, read_capacity, read_kernels
from tests.runners.engines.boot_logs import EXPECTED, FOLDER, NAMES, SLOTS_EVERYWHERE, engine_of, text_of, version_of

_NO_KERNEL = {"health", "signature", "outcome", "says", "why", "kv_cache_tokens", "max_model_len"}


@pytest.mark.parametrize("name", NAMES)
def test_recorded_log_names_exactly_the_kernels_that_ran(name: str) -> None:
    report = read_kernels(engine_of(name), version_of(name), text_of(name))
    wanted = {slot: value for slot, value in EXPECTED[name].items() if slot not in _NO_KERNEL}
    assert {slot: report.kernels[slot] for slot in wanted} == wanted
    assert report.unparsed == ()
    assert set(SLOTS) <= set(report.kernels)
    assert set(SLOTS_EVERYWHERE) <= set(wanted)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_log_states_its_capacity(name: str) -> None:
    capacity = read_capacity(engine_of(name), version_of(name), text_of(name))
    assert capacity.kv_cache_tokens == EXPECTED[name].get("kv_cache_tokens")
    assert capacity.max_model_len == EXPECTED[name].get("max_model_len")


def test_weights_too_small_to_print_are_not_zero_bytes() -> None:
    assert read_capacity("vllm", "0.26.0", text_of("vllm-0.26.0-h200-dense-int4-eager")).model_memory_bytes is None
    assert read_capacity("vllm", "0.26.0", text_of("vllm-0.26.0-h200-moe-fp8")).model_memory_bytes == round(0.04 * (1 << 30))


def test_server_info_fills_what_the_log_does_not_say() -> None:
    info = json.loads((FOLDER / "sglang-0.5.14-h200-moe-fp8.server_info.json").read_text())
    with_info = read_kernels("sglang", "0.5.14", text_of("sglang-0.5.14-h200-moe-fp8"), info).kernels
    assert with_info["graph_mode"] == "eager"
    assert with_info["attention"] == "fa3"
    graph = json.loads((FOLDER / "sglang-0.5.14-h200-dense-bf16-fa3-graph.server_info.json").read_text())
    assert read_kernels("sglang", "0.5.14", "", graph).kernels["graph_mode"] == "decode=full,prefill=tc_piecewise"


def test_auto_in_server_info_is_no_kernel() -> None:
    info = {"moe_runner_backend": "auto", "fp4_gemm_runner_backend": "auto", "kv_cache_dtype": "auto", "attention_backend": None}
    kernels = read_kernels("sglang", "0.5.14", "", info).kernels
    assert set(kernels.values()) == {"unknown"}


def test_server_info_capacity_is_read() -> None:
    info = json.loads((FOLDER / "sglang-0.5.12.post1-h200-moe-fp8-nopw.server_info.json").read_text())
    capacity = read_capacity("sglang", "0.5.12.post1", "", info)
    assert (capacity.kv_cache_tokens, capacity.max_model_len) == (65536, 1024)


@pytest.mark.parametrize(
    ("engine", "version", "message", "slot", "kernel"),
    [
        ("vllm", "0.10.2", "Using Flash Attention backend on V1 engine.", "attention", "FLASH_ATTN"),
        ("vllm", "0.10.2", "Using Triton backend on V1 engine.", "attention", "TRITON_ATTN"),
        ("vllm", "0.11.1", "Using FLASHINFER backend.", "attention", "FLASHINFER"),
        ("vllm", "0.17.1", "Using AttentionBackendEnum.TRITON_ATTN backend.", "attention", "TRITON_ATTN"),
        ("vllm", "0.12.0", "Using FLASH_ATTN attention backend out of potential backends: ('FLASH_ATTN',)", "attention", "FLASH_ATTN"),
        ("vllm", "0.13.0", "Using Marlin for ModelOptNvFp4FusedMoE.", "moe", "Marlin"),
        ("vllm", "0.11.1", "Using FlashInfer CUTLASS kernels for ModelOptNvFp4FusedMoE.", "moe", "FlashInfer CUTLASS"),
        ("vllm", "0.14.1", "Using vLLM CUTASS backend for NvFp4 MoE", "moe", "vLLM CUTASS"),
        (
            "vllm",
            "0.17.1",
            "Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: ['MARLIN'].",
            "moe",
            "FLASHINFER_CUTLASS",
        ),
        ("vllm", "0.33.0", "Using 'B12X' NvFp4 MoE backend out of potential backends: [...].", "moe", "B12X"),
        ("vllm", "0.17.1", "Using Marlin backend", "moe", "Marlin"),
        ("vllm", "0.20.2", "Using 'MARLIN' Mxfp4 MoE backend.", "moe", "MARLIN"),
        ("vllm", "0.13.0", "Using Cutlass BlockScaled GroupedGemm backend for FP8 MoE", "moe", "Cutlass BlockScaled GroupedGemm"),
        ("vllm", "0.22.1", "Using TRITON Fp8 MoE backend out of potential backends: [...].", "moe", "TRITON"),
        ("vllm", "0.18.1", "Using 'MARLIN' MxFp8 MoE backend (user-requested).", "moe", "MARLIN"),
        ("vllm", "0.15.1", "Using flashinfer-cutlass for NVFP4 GEMM", "nvfp4_linear", "flashinfer-cutlass"),
        ("vllm", "0.17.1", "Using NvFp4LinearBackend.MARLIN for NVFP4 GEMM", "nvfp4_linear", "MARLIN"),
        ("vllm", "0.28.0", "Using B12xNvFp4LinearKernel for NVFP4 GEMM", "nvfp4_linear", "B12xNvFp4LinearKernel"),
        ("vllm", "0.15.1", "Selected TritonFp8BlockScaledMMKernel for Fp8LinearMethod", "fp8_linear", "TritonFp8BlockScaledMMKernel"),
        ("vllm", "0.19.1", "Using fp8 data type to store kv cache. It reduces the GPU memory footprint", "kv_cache_dtype", "fp8"),
        ("vllm", "0.12.0", "Enforce eager set, overriding optimization level to -O0", "graph_mode", "eager"),
        ("sglang", "0.5.6", "Attention backend not explicitly specified. Use flashinfer backend by default.", "attention", "flashinfer"),
        ("sglang", "0.5.9", "Using triton as attention backend for GptOssForCausalLM.", "attention", "triton"),
        (
            "sglang",
            "0.5.14",
            "Using hybrid attention backend for decode and prefill: decode_backend=triton, prefill_backend=fa3.",
            "attention",
            "decode=triton,prefill=fa3",
        ),
        (
            "sglang",
            "0.5.14",
            "Use flashinfer_cutlass as MoE runner backend on SM120 for modelopt_fp4 (trtllm-gen MoE kernels are SM100-only)",
            "moe",
            "flashinfer_cutlass",
        ),
        (
            "sglang",
            "0.5.16",
            "Detected SM120 and MXFP4 quantization format for GPT-OSS model, enabling Marlin MOE kernel.",
            "moe",
            "Marlin",
        ),
        (
            "sglang",
            "0.5.10",
            "SM120 (Blackwell) detected: auto-selecting fp4-gemm-backend=flashinfer_cudnn",
            "nvfp4_linear",
            "flashinfer_cudnn",
        ),
        ("sglang", "0.5.12", "Capture cuda graph begin. This can take up to several minutes. avail mem=9.00 GB", "graph_decode", "full"),
        (
            "sglang",
            "0.5.17",
            "Post-capture KV sizing: KV cache allocated. dtype: torch.float8_e4m3fn, #tokens: 10, KV size: 0.01 GB, avail mem=9.00 GB",
            "kv_cache_dtype",
            "float8_e4m3fn",
        ),
    ],
)
def test_wording_of_each_version_is_read(engine: str, version: str, message: str, slot: str, kernel: str) -> None:
    prefix = "(EngineCore_DP0 pid=7) INFO 03-02 10:11:12 [cuda.py:408] " if engine == "vllm" else "[2026-03-02 10:11:12 TP0] "
    report = read_kernels(engine, version, f"{prefix}{message}\n")
    assert report.kernels[slot] == kernel
    assert report.unparsed == ()


def test_same_words_mean_mxfp4_experts_only_where_they_did() -> None:
    log = "INFO 03-02 10:11:12 [x.py:1] Using Triton backend\n"
    assert read_kernels("vllm", "0.18.1", log).kernels["moe"] == "Triton"
    assert read_kernels("vllm", "0.26.0", log).kernels["moe"] == "unknown"


def test_anchor_with_unknown_wording_is_reported_and_never_guessed() -> None:
    line = "Using <NewNvFp4Thing object> NvFp4 MoE backend of the day"
    report = read_kernels("vllm", "0.34.0", f"(EngineCore pid=1) INFO 12-01 00:00:00 [nvfp4.py:1] {line}")
    assert report.kernels["moe"] == "unknown"
    assert report.unparsed == (line,)


def test_lines_about_other_things_are_not_reported_as_unparsed() -> None:
    other = [
        "Using FlashInfer for top-p & top-k sampling.",
        "Using FlashAttention version 3",
        "Using HND KV cache layout for FLASHINFER backend.",
        "Using MoEPrepareAndFinalizeNoDPEPModular",
        "Using AttentionBackendEnum.FLASH_ATTN for MMEncoderAttention.",
        "Using default MoE config. Performance might be sub-optimal! Config file not found at x.json",
        "Using max model len 1024",
        "Using Transformers modeling backend.",
    ]
    report = read_kernels("vllm", "0.26.0", "\n".join(f"INFO 11-30 12:00:00 [a.py:1] {line}" for line in other))
    assert report.unparsed == ()
    assert {report.kernels[slot] for slot in SLOTS} == {"unknown"}


def test_two_kernels_of_one_slot_are_both_named() -> None:
    log = "\n".join(
        f"INFO 11-30 12:00:00 [a.py:1] Selected {kernel} for Fp8LinearMethod"
        for kernel in ("CutlassFP8ScaledMMLinearKernel", "TritonFp8BlockScaledMMKernel", "CutlassFP8ScaledMMLinearKernel")
    )
    kernels = read_kernels("vllm", "0.26.0", log).kernels
    assert kernels["fp8_linear"] == kernels["linear"] == "CutlassFP8ScaledMMLinearKernel+TritonFp8BlockScaledMMKernel"


def test_one_line_kv_size_of_newer_versions_is_read() -> None:
    message = "GPU + host KV cache size: 1,234,567 tokens, Maximum concurrency for 8,192 tokens per request: 150.70x"
    log = f"(EngineCore pid=1) INFO 11-30 12:00:00 [a.py:1] {message}"
    assert read_capacity("vllm", "0.30.0", log).kv_cache_tokens == 1_234_567


def test_auto_fit_replaces_the_first_context_length() -> None:
    log = (
        "INFO 11-30 12:00:00 [a.py:1] Using max model len 262144\n"
        "INFO 11-30 12:00:01 [b.py:1] Auto-fit max_model_len: reduced from 262144 to 40960 to fit in available GPU memory (9.1 GiB)"
    )
    assert read_capacity("vllm", "0.20.2", log).max_model_len == 40960


@pytest.mark.parametrize(
    ("slot", "configured", "actual", "verdict"),
    [
        ("moe", "marlin", "MARLIN", True),
        ("moe", "marlin", "MarlinExperts", True),
        ("moe", "marlin", "FLASHINFER_CUTLASS", False),
        ("moe", "flashinfer_cutlass", "FlashInfer CUTLASS", True),
        ("moe", "cutlass", "FLASHINFER_CUTLASS", False),
        ("moe", "flashinfer_b12x", "B12X", False),
        ("nvfp4_linear", "marlin", "MarlinNvFp4LinearKernel", True),
        ("linear", "cutlass", "FlashInferCutlassNvFp4LinearKernel", False),
        ("linear", "marlin", "MarlinNvFp4LinearKernel+CutlassFP8ScaledMMLinearKernel", False),
        ("graph_mode", "eager", "NONE", True),
        ("kv_cache_dtype", "fp8", "fp8_e4m3", True),
        ("attention", "TRITON_ATTN", "FLASH_ATTN", False),
        ("moe", "marlin", "unknown", None),
    ],
)
def test_configured_and_actual_names_are_compared_by_family(slot: str, configured: str, actual: str, verdict: bool | None) -> None:
    assert agrees("vllm", slot, configured, actual) is verdict


def test_half_known_graph_mode_is_no_fallback() -> None:
    assert agrees("sglang", "graph_mode", "eager", "decode=unknown,prefill=disabled") is None
    assert agrees("sglang", "graph_mode", "eager", "decode=full,prefill=disabled") is False


def test_unknown_slots_are_no_mismatch() -> None:
    found = mismatches("vllm", {"moe": "marlin", "attention": "TRITON_ATTN", "linear": "marlin"}, {"moe": "TRITON", "attention": "unknown"})
    assert [(item.slot, item.actual) for item in found] == [("moe", "TRITON")]


def test_every_family_name_leads_to_its_family() -> None:
    for engine in ("vllm", "sglang"):
        for slot, kernel, names in kernel_facts(engine).families:
            for name in names:
                assert family(engine, slot, name.replace("*", "SomeKernel")) == kernel


@given(st.text(max_size=300))
def test_any_text_is_read_without_error(text: str) -> None:
    report = read_kernels("vllm", "0.26.0", text)
    assert all(value for value in report.kernels.values())
