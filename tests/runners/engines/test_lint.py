"""Lint of flags and variables against a version's own tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.engines.flag_registry import registry
from runners.engines.lint import LintFinding, Severity, lint


def _one(findings: list[LintFinding], name: str) -> LintFinding:
    found = [item for item in findings if item.name == name]
    assert found, [item.name for item in findings]
    return found[0]


def _errors(findings: list[LintFinding]) -> set[str]:
    return {item.name for item in findings if item.severity is Severity.ERROR}


def test_variable_of_forks_only_is_named_so_with_what_to_use() -> None:
    finding = _one(lint("vllm", "0.17.1", [], {"VLLM_MXFP4_BACKEND": "marlin"}), "VLLM_MXFP4_BACKEND")
    assert finding.severity is Severity.ERROR
    assert finding.message.startswith("not a variable of any stock vLLM; forks only")
    assert finding.replacement is not None
    assert finding.replacement.startswith("--moe-backend marlin")


@pytest.mark.parametrize("name", ["VLLM_NVFP4_GEMM_BACKEND", "VLLM_MXFP4_USE_MARLIN", "VLLM_USE_FLASHINFER_MOE_FP4"])
def test_fp4_variables_are_removed_in_0_24_and_deprecated_before(name: str) -> None:
    value = "marlin" if name.endswith("BACKEND") else "1"
    removed = _one(lint("vllm", "0.24.0", [], {name: value}), name)
    assert (removed.severity, "removed in 0.24.0" in removed.message) == (Severity.ERROR, True)
    assert removed.replacement
    deprecated = _one(lint("vllm", "0.23.0", [], {name: value}), name)
    assert deprecated.severity is Severity.WARNING
    assert deprecated.replacement


def test_four_variables_of_the_march_recipe_all_fail_but_the_atomic_add() -> None:
    recipe = {
        "VLLM_NVFP4_GEMM_BACKEND": "marlin",
        "VLLM_MXFP4_USE_MARLIN": "1",
        "VLLM_USE_FLASHINFER_MOE_FP4": "0",
        "VLLM_MARLIN_USE_ATOMIC_ADD": "1",
    }
    assert _errors(lint("vllm", "0.26.0", [], recipe)) == set(recipe) - {"VLLM_MARLIN_USE_ATOMIC_ADD"}
    assert _errors(lint("vllm", "0.17.1", [], recipe)) == set()


def test_variable_is_an_error_exactly_where_the_table_of_the_version_lacks_it() -> None:
    facts = registry("vllm")
    for version in facts.versions_read:
        missing = set(facts.environment) - set(facts.environment_of(version))
        assert _errors(lint("vllm", version, [], dict.fromkeys(facts.environment, ""))) == missing, version


def test_debug_flags_are_called_speed_killers() -> None:
    eager = _one(lint("vllm", "0.26.0", ["m", "--enforce-eager"]), "--enforce-eager")
    assert eager.severity is Severity.WARNING
    assert "tok/s" in eager.message
    graph = [item.severity for item in lint("sglang", "0.5.12.post1", ["--disable-cuda-graph"]) if item.name == "--disable-cuda-graph"]
    assert graph == [Severity.WARNING]


@pytest.mark.parametrize(
    ("engine", "version", "argv", "name", "words"),
    [
        ("vllm", "0.16.0", ["--moe-backend", "marlin"], "--moe-backend", "exists from 0.17.0"),
        ("vllm", "0.21.0", ["--linear-backend", "marlin"], "--linear-backend", "exists from 0.22.0"),
        ("vllm", "0.20.2", ["--swap-space", "4"], "--swap-space", "removed in 0.18.0"),
        ("vllm", "0.23.0", ["--linear-backend", "b12x"], "--linear-backend", "it exists from 0.28.0"),
        ("vllm", "0.26.0", ["--moe-backend=marlyn"], "--moe-backend", "Did you mean marlin"),
        ("vllm", "0.26.0", ["--attention-backend", "TRITON_ATN"], "--attention-backend", "Did you mean TRITON_ATTN"),
        ("vllm", "0.26.0", ["--gpu-memory-utilisation", "0.9"], "--gpu-memory-utilisation", "Did you mean --gpu-memory-utilization"),
        ("vllm", "0.26.0", ["--kv-cache-dtype", "int3"], "--kv-cache-dtype", "is no choice"),
        ("vllm", "0.26.0", ["-cc", '{"cudagraph_mode": "FULLEST"}'], "-cc", "is no choice"),
        ("vllm", "0.26.0", ["--kernel-config.moe_backend", "nope"], "--kernel-config", "is no choice"),
        ("vllm", "0.26.0", ["--port"], "--port", "needs a value"),
        ("sglang", "0.5.12.post1", ["--cuda-graph-backend-decode=disabled"], "--cuda-graph-backend-decode", "exists from 0.5.14"),
        ("sglang", "0.5.14", ["--moe-runner-backend", "b12x"], "--moe-runner-backend", "is no choice"),
        ("sglang", "0.5.16", ["--fp4-gemm-backend", "cutlass"], "--fp4-gemm-backend", "it was known from 0.5.10 to 0.5.15.post1"),
    ],
)
def test_flag_or_value_this_version_lacks_is_an_error_that_says_when(
    engine: str, version: str, argv: list[str], name: str, words: str
) -> None:
    finding = _one(lint(engine, version, argv), name)
    assert finding.severity is Severity.ERROR
    assert words in finding.message


@pytest.mark.parametrize(
    ("engine", "version", "argv"),
    [
        (
            "vllm",
            "0.26.0",
            ["m", "--moe-backend", "flashinfer-cutlass", "--attention-backend", "flashinfer", "--max_model_len", "-1", "-O3"],
        ),
        (
            "vllm",
            "0.26.0",
            ["m", "--no-enable-prefix-caching", "-tp", "2", "--kernel-config.linear_backend=marlin", "--attention-backend", "auto"],
        ),
        ("vllm", "0.11.1", ["m", "-O.mode=3", "--cuda-graph-sizes", "1", "2"]),
        ("vllm", "0.26.0", ["m", "--moe-backend", "$BACKEND", "--port", "8000"]),
        ("sglang", "0.5.14", ["--model-path", "m", "--tensor-parallel-size", "1", "--mem-fraction-static", "0.3", "--trust-remote-code"]),
    ],
)
def test_good_command_has_no_error(engine: str, version: str, argv: list[str]) -> None:
    assert _errors(lint(engine, version, argv)) == set()


def test_deprecated_flag_names_its_replacement() -> None:
    finding = _one(lint("sglang", "0.5.14", ["--cuda-graph-max-bs", "8"]), "--cuda-graph-max-bs")
    assert (finding.severity, finding.replacement) == (Severity.WARNING, "--cuda-graph-max-bs-decode")
    assert _errors(lint("sglang", "0.5.20", ["--cuda-graph-max-bs", "8"])) == {"--cuda-graph-max-bs"}


@pytest.mark.parametrize(
    ("argv", "env", "name"),
    [
        (["--moe-backend", "marlin", "--moe-backend", "triton"], {}, "--moe-backend"),
        (["--enable-prefix-caching", "--no-enable-prefix-caching"], {}, "--enable-prefix-caching"),
        (["--enforce-eager", "-cc", '{"cudagraph_mode": "FULL"}'], {}, "--enforce-eager"),
        (["--attention-backend", "FLASHINFER", "--attention-config", '{"backend": "TRITON_ATTN"}'], {}, "--attention-backend"),
        (["--moe-backend", "triton"], {"VLLM_MXFP4_USE_MARLIN": "1"}, "VLLM_MXFP4_USE_MARLIN"),
    ],
)
def test_contradictions_are_errors(argv: list[str], env: dict[str, str], name: str) -> None:
    assert name in _errors(lint("vllm", "0.20.2", argv, env))


def test_versions_nobody_read_are_said_to_be_so() -> None:
    newer = _one(lint("vllm", "0.40.0", []), "vllm==0.40.0")
    assert (newer.severity, "newer than the newest version read" in newer.message) == (Severity.INFO, True)
    assert "between versions read" in _one(lint("vllm", "0.28.3", []), "vllm==0.28.3").message
    assert "not a release" in _one(lint("vllm", "0.1.dev21830+g1a2b3c", []), "vllm==0.1.dev21830+g1a2b3c").message
    assert lint("vllm", "0.26.0", []) == []


def test_typo_in_a_variable_names_the_nearest() -> None:
    finding = _one(lint("sglang", "0.5.14", [], {"SGLANG_ENABLE_JIT_DEEPGEM": "0"}), "SGLANG_ENABLE_JIT_DEEPGEM")
    assert finding.replacement == "SGLANG_ENABLE_JIT_DEEPGEMM"
    assert "ignored without a word" in finding.message


def test_wrong_value_of_a_variable_lists_the_values() -> None:
    finding = _one(lint("vllm", "0.12.0", [], {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}), "VLLM_NVFP4_GEMM_BACKEND")
    assert finding.severity is Severity.ERROR or "linear layers only" in finding.message
    assert "VLLM_NVFP4_GEMM_BACKEND" in _errors(lint("vllm", "0.12.0", [], {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}))


def test_variables_of_others_are_left_alone() -> None:
    assert lint("vllm", "0.26.0", [], {"CUDA_VISIBLE_DEVICES": "0", "SGLANG_X": "1", "PATH": "/bin"}) == []


@given(st.lists(st.text(max_size=40), max_size=12), st.dictionaries(st.text(max_size=30), st.text(max_size=30), max_size=5))
def test_any_command_is_linted_without_error(argv: list[str], env: dict[str, str]) -> None:
    for engine, version in (("vllm", "0.26.0"), ("sglang", "0.5.14")):
        assert all(finding.name and finding.message for finding in lint(engine, version, argv, env))
