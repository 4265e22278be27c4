"""The first cause of a failure: golden over every recorded log, the catalogue itself, cascades, stops, quoted text, hostile input."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.vocabulary import Outcome
from runners.engines.signatures import LOG_SCOPE, SignatureRow, catalogue, classify, read_signatures
from tests.runners.engines.boot_logs import EXPECTED, FAILED, HEALTHY, NAMES, engine_of, lines_of, version_of

_ROWS = {row.id: row for row in catalogue().rows}
_LOG_ROWS = [row for row in catalogue().rows if row.scope == LOG_SCOPE and row.pattern is not None]
_CORE = "(EngineCore pid=7) ERROR 11-30 12:00:00 [core.py:1330] "
_API = "(APIServer pid=1) "


@pytest.mark.parametrize("name", NAMES)
def test_recorded_log_ends_on_its_first_cause(name: str) -> None:
    found = classify(engine_of(name), version_of(name), lines_of(name))
    wanted = EXPECTED[name]
    if wanted["health"] != "failed":
        assert found is None
        return
    assert found is not None
    assert (found.signature, found.outcome) == (wanted["signature"], Outcome(wanted["outcome"]))
    assert found.known
    assert wanted["says"] in found.excerpt
    assert wanted["says"] in lines_of(name)[found.line_no - 1]


@pytest.mark.parametrize("name", HEALTHY)
def test_no_fatal_row_hits_a_healthy_server_before_it_is_stopped(name: str) -> None:
    reader = read_signatures(engine_of(name), version_of(name), lines_of(name))
    alive = lines_of(name)[: reader.stop_line]
    hits = [(row.id, line) for line in alive for row in _LOG_ROWS if row.level == "fatal" and row.matches(line)]
    assert hits == []


@pytest.mark.parametrize("name", FAILED)
def test_cause_is_found_though_the_engine_is_not_named(name: str) -> None:
    found = classify(None, None, lines_of(name))
    assert found is not None
    assert found.signature == EXPECTED[name]["signature"]


@pytest.mark.parametrize("name", ["vllm-0.26.0-h200-moe-bf16", "vllm-0.26.0-h200-dense-nvfp4a16-eager"])
def test_dead_engine_after_our_stop_signal_is_no_failure(name: str) -> None:
    lines = [line for line in lines_of(name) if "[shutdown]" not in line and "Shutting down" not in line]
    dead = next(number for number, line in enumerate(lines, 1) if "EngineDeadError" in line)
    assert classify("vllm", "0.26.0", lines, stop_at=dead - 1) is None
    unstopped = classify("vllm", "0.26.0", lines)
    assert unstopped is not None
    assert unstopped.signature == "HANG4"


def test_every_row_of_the_public_catalogue_is_kept_with_advice() -> None:
    assert len(catalogue().rows) >= 76
    assert len(_ROWS) == len(catalogue().rows)
    for row in catalogue().rows:
        assert len(row.meaning) > 20, row.id
        assert len(row.advice) > 20 or row.level == "info", row.id
        assert row.advice, row.id
        assert row.source, row.id
        assert (row.outcome is not None) == (row.level == "fatal"), row.id


@pytest.mark.parametrize("row", _LOG_ROWS, ids=lambda row: row.id)
def test_row_finds_its_own_example(row: SignatureRow) -> None:
    examples = {
        "ARCH03": "ptxas /tmp/x.ptx, line 1; error : Feature '.tile::scatter4' not supported on .target 'sm_121a'",
        "ARCH06": "RuntimeError: Assertion error (csrc/apis/../utils/layout.hpp:59): Unknown recipe",
        "ARCH02": "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        "ARCH08": "[sgl_kernel] CRITICAL: Could not load any common_ops library!",
        "ARCH09": "ValueError: NvFp4 MoE backend 'X' does not support the deployment configuration since kernel does not support y.",
        "ARCH12": "NotImplementedError: No compiled cutlass_scaled_mm for a CUDA device capability: 120",
        "ARCH13": "    Minimum and Maximum cuda capability supported by this version of PyTorch is (8.0) - (12.0)",
        "ARCH15": "Failed to import from vllm._C_stable_libtorch with ImportError('x')",
        "ARCH17": "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "FP402": "RuntimeError: cutlass_gemm_caller, /x/scaled_mm.cuh:51, Error Internal",
        "FP407": "Using Nvfp4QuantizationEmulationTritonExperts MOE backend. This will dequantize weights",
        "FP408": "--linear-backend=b12x was requested, but no b12x kernel exists for NVFP4 layers; falling back to normal kernel selection",
        "FP409": "Using TRITON Fp8 MoE backend out of potential backends: ['AITER']",
        "FP410": "NVFP4 weight_scale of model.layers.0 was never loaded (still NaN)",
        "FP411": "RuntimeError: CUDNN_STATUS_EXECUTION_FAILED",
        "ENV01": "Unknown vLLM environment variable detected: VLLM_MXFP4_BACKEND",
        "ENV02": "FutureWarning: VLLM_NVFP4_GEMM_BACKEND is deprecated and will be removed in v0.23. Use --linear-backend.",
        "ENV03": "ValueError: Invalid value 'marlin' for VLLM_NVFP4_GEMM_BACKEND. Valid options: []",
        "ENV04": "'--disable-cuda-graph' is deprecated and will be removed in a future release. Use '--x' instead.",
        "ENV05": "api_server.py: error: unrecognized arguments: --moe-backend marlin",
        "ENV06": "launch_server.py: error: argument --moe-runner-backend: invalid choice: 'b12x' (choose from 'auto')",
        "MEM01": "Free memory on device cuda:0 (90.1/121.6 GiB) on startup is less than desired GPU memory utilization (0.92, 111.9 GiB).",
        "MEM03": "ValueError: To serve at least one request with the model's max seq len (131072), 12.0 GiB KV cache is needed",
        "MEM05": "NVRM: nvAssertOkFailedNoLog: NV_ERR_NO_MEMORY",
        "MEM06": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "MEM07": "./serve.sh: line 9:  1234 Killed                  vllm serve m",
        "MEM08": "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
        "MEM09": "Free memory grew by 3.1 GiB during profiling",
        "ATT01": "ValueError: Selected backend FLASHMLA is not valid for this configuration. Reason: ['x']",
        "ATT05": "--block-size 16 precluded higher-priority backend(s) FLASH_ATTN. Using TRITON_ATTN instead",
        "CG01": "Cudagraph is disabled under eager mode",
        "CG04": "Exception: Capture cuda graph failed: CUDA driver error",
        "CG05": "Decode batch, #running-req: 1, #token: 7, token usage: 0.00, cuda graph: False, gen throughput (token/s): 3.1",
        "CG06": "    assert active_topk_width >= cm.max_seq_len",
        "HANG2": "TimeoutError: RPC call to sample_tokens timed out.",
        "HANG4": "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "HANG5": "Scheduler hit an exception: Traceback (most recent call last):",
        "SEL01": "[MXFP4] Using backend: marlin (VLLM_MXFP4_BACKEND=marlin)",
        "SEL02": "Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].",
        "SEL03": "Using MarlinNvFp4LinearKernel for NVFP4 GEMM",
        "SEL04": "Selected CutlassFP8ScaledMMLinearKernel for CompressedTensorsW8A8Fp8",
        "SEL06": "Using default MoE config. Performance might be sub-optimal! Config file not found at x.json",
        "SEL07": "Model Runner V2 does not yet support LoRA; using the V1 model runner instead.",
    }
    assert row.matches(examples.get(row.id, row.fragment))


def test_rows_of_other_scopes_are_never_applied_to_a_log() -> None:
    others = {row.id for row in catalogue().rows if row.scope != LOG_SCOPE}
    assert others >= {"NUM03", "NUM04", "NUM05", "NUM06", "PLT01", "PLT02"}
    reader = read_signatures("vllm", "0.26.0", ["!!!!!!!!!!!!!!", "vllm:corrupted_requests_total 3", "[N/A]", "Not Supported"])
    assert reader.failure() is None
    assert reader.findings == {}


def test_cause_above_beats_the_cascade_below() -> None:
    lines = [
        f"{_CORE}EngineCore failed to start.",
        f"{_CORE}Traceback (most recent call last):",
        f'{_CORE}  File "/x/vllm/v1/engine/core.py", line 9, in run',
        f"{_CORE}    self.load()",
        f"{_CORE}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB.",
        f"{_API}Traceback (most recent call last):",
        f'{_API}  File "/x/vllm/entrypoints/cli/main.py", line 3, in main',
        f"{_API}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
        f"{_API}OSError: [Errno 98] Address already in use",
    ]
    found = classify("vllm", "0.26.0", lines)
    assert found is not None
    assert (found.signature, found.line_no, found.outcome) == ("MEM06", 5, Outcome.OOM)


def test_named_cause_just_after_a_symptom_replaces_it() -> None:
    symptom = "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"
    cause = "[2026-11-30 12:38:14] Piecewise CUDA Graph failed with error: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"
    near = classify("sglang", "0.5.12.post1", [symptom, "x", cause])
    assert near is not None
    assert near.signature == "CG07"
    far = classify("sglang", "0.5.12.post1", [symptom, *["x"] * 500, cause])
    assert far is not None
    assert far.signature == "CUDA02"


def _crash(header: str, exception: str) -> list[str]:
    return [
        f"{_CORE}{header}",
        f"{_CORE}Traceback (most recent call last):",
        f'{_CORE}  File "/opt/site/vllm/v1/engine/core.py", line 1299, in run_engine_core',
        f"{_CORE}    engine_core = EngineCoreProc(*args)",
        f"{_CORE}                  ^^^^^^^^^^^^^^^^^^^^^",
        f"{_CORE}{exception}",
        f"{_API}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
    ]


def test_crash_that_no_row_knows_gets_a_fingerprint() -> None:
    found = classify("vllm", "0.33.0", _crash("EngineCore encountered a fatal error.", "KeyError: 'layers.3.mlp.new_thing'"))
    assert found is not None
    assert not found.known
    assert re.fullmatch(r"KeyError-[0-9a-f]{12}", found.signature)
    assert found.outcome is Outcome.CRASH
    assert found.line_no == 6


@pytest.mark.parametrize(
    ("exception", "outcome"),
    [
        ("ValueError: head size 80 is not supported by PagedThing", Outcome.UNSUPPORTED),
        ("NotImplementedError: this platform does not support MXFP6", Outcome.UNSUPPORTED),
        ("AssertionError: not supported", Outcome.CRASH),
        ("ValueError: shapes [3, 4] and [5] differ", Outcome.CRASH),
    ],
)
def test_clean_refusal_is_unsupported_and_a_crash_stays_a_crash(exception: str, outcome: Outcome) -> None:
    found = classify("vllm", "0.33.0", _crash("EngineCore failed to start.", exception))
    assert found is not None
    assert found.outcome is outcome


def _chain(joint: str) -> list[str]:
    return [
        "[2026-11-30 12:00:00] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/x/sglang/a.py", line 1, in f',
        "    g()",
        "KeyError: 'first'",
        "",
        joint,
        "",
        "Traceback (most recent call last):",
        '  File "/x/sglang/b.py", line 2, in h',
        "RuntimeError: second",
        "",
        "[2026-11-30 12:00:01] Received sigquit from a child process. It usually means the child failed.",
    ]


@pytest.mark.parametrize(
    ("joint", "decisive"),
    [
        ("The above exception was the direct cause of the following exception:", "KeyError: 'first'"),
        ("During handling of the above exception, another exception occurred:", "RuntimeError: second"),
    ],
)
def test_chained_traceback_names_the_exception_that_decides(joint: str, decisive: str) -> None:
    found = classify("sglang", "0.5.14", _chain(joint))
    assert found is not None
    assert found.excerpt == decisive
    assert found.line_no == _chain(joint).index(decisive) + 1


def test_failed_optional_import_is_not_taken_for_the_cause() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/x/soundfile.py", line 187, in <module>',
        "ModuleNotFoundError: No module named '_soundfile_data'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/x/sglang/__init__.py", line 31, in <module>',
        "OSError: cannot load library 'libsndfile.so': libsndfile.so: cannot open shared object file: No such file or directory",
    ]
    found = classify("sglang", "0.5.14", lines)
    assert found is not None
    assert found.excerpt.startswith("OSError: cannot load library")


def test_traceback_of_one_request_is_not_the_servers() -> None:
    lines = [
        "[2026-11-30 11:29:00] The server is fired up and ready to roll!",
        "[2026-11-30 11:29:04] ERROR:    Exception in ASGI application",
        "Traceback (most recent call last):",
        '  File "/x/uvicorn/h11_impl.py", line 411, in run_asgi',
        "AttributeError: '_IncludedRouter' object has no attribute 'path'",
    ]
    assert classify("sglang", "0.5.14", lines) is None
    assert classify("sglang", "0.5.14", lines[1:]) is None


def test_what_users_send_is_no_finding() -> None:
    lines = [
        "(APIServer pid=1) INFO:     Application startup complete.",
        "(APIServer pid=1) INFO 11-30 12:00:00 [logger.py:40] Received request c-1: prompt: 'CUDA out of memory', params: x",
        "[2026-11-30 12:00:00] Receive: obj=GenerateReqInput(text='no kernel image is available for execution')",
    ]
    assert classify("vllm", "0.26.0", lines[:2]) is None
    assert classify("sglang", "0.5.14", lines[2:]) is None


def test_error_before_the_server_came_up_all_the_same_is_survived() -> None:
    lines = ["RuntimeError: Ninja build failed", "(APIServer pid=1) INFO:     Application startup complete."]
    assert classify("vllm", "0.26.0", lines) is None
    assert classify("vllm", "0.26.0", lines[::-1]) is not None


def test_flag_errors_count_only_while_starting() -> None:
    line = "error: unrecognized arguments: --x"
    ready = "(APIServer pid=1) INFO:     Application startup complete."
    assert classify("vllm", "0.26.0", [ready, line]) is None
    assert classify("vllm", "0.26.0", [line]) is not None


def test_new_start_in_the_same_log_is_read_afresh() -> None:
    stopped = lines_of("vllm-0.26.0-h200-moe-bf16")
    again = lines_of("vllm-0.26.0-h200-moe-nvfp4-cutlass")
    found = classify("vllm", "0.26.0", [*stopped, *again])
    assert found is not None
    assert found.signature == "ARCH09"
    assert found.line_no > len(stopped)


def test_interleaved_workers_keep_their_own_tracebacks() -> None:
    one, two = "(Worker_TP0 pid=1) ERROR 11-30 12:00:00 [a.py:1] ", "(Worker_TP1 pid=2) ERROR 11-30 12:00:00 [a.py:1] "
    lines = [
        f"{one}WorkerProc failed to start.",
        f"{one}Traceback (most recent call last):",
        f"{two}WorkerProc failed to start.",
        f'{one}  File "/x/vllm/a.py", line 1, in f',
        f"{two}Traceback (most recent call last):",
        f'{two}  File "/x/vllm/b.py", line 1, in g',
        f"{one}KeyError: 'one'",
        f"{two}KeyError: 'two'",
    ]
    found = classify("vllm", "0.26.0", lines)
    assert found is not None
    assert found.excerpt == "KeyError: 'one'"


def test_decisive_line_of_ten_thousand_is_found() -> None:
    filler = lines_of("vllm-0.26.0-h200-moe-bf16")[:60]
    lines = [line.replace("12:", f"{number % 24:02d}:", 1) for number in range(160) for line in filler]
    lines = [line for line in lines if "startup complete" not in line and "[shutdown]" not in line]
    lines += _crash("EngineCore encountered a fatal error.", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    lines += [f"{_API}    x"] * 500
    assert len(lines) > 9_000
    found = classify("vllm", "0.26.0", lines)
    assert found is not None
    assert found.signature == "CUDA01"
    assert found.line_no == len(lines) - 501


@pytest.mark.parametrize(
    "piece", ["cutlass_gemm_caller", "Free memory on device ", "Decode batch", "Invalid value '", "a/", "'", "Using default "]
)
def test_long_hostile_lines_come_to_an_end(piece: str) -> None:
    assert classify(None, None, [piece * (100_000 // len(piece))] * 3) is None


@given(st.lists(st.text(max_size=200), max_size=30))
def test_any_lines_are_read_without_error(lines: list[str]) -> None:
    found = classify("vllm", "0.26.0", lines)
    assert found is None or found.signature


@given(st.binary(max_size=2_000))
def test_binary_junk_is_no_failure_of_an_engine(junk: bytes) -> None:
    found = classify("sglang", "0.5.14", junk.decode("utf-8", "replace").split("\n"))
    assert found is None or found.excerpt
