"""The tables of flags, choices and variables, checked against facts that were read in the sources."""

from __future__ import annotations

import pytest
from packaging.version import Version

from runners.engines.flag_registry import ENGINES, UnknownEngineError, registry


@pytest.mark.parametrize(
    ("engine", "flag", "first", "last_without"),
    [
        ("vllm", "--moe-backend", "0.17.0", "0.16.0"),
        ("vllm", "--linear-backend", "0.22.0", "0.21.0"),
        ("vllm", "--attention-backend", "0.13.0", "0.12.0"),
        ("vllm", "--fail-on-environ-validation", "0.17.0", "0.16.0"),
        ("sglang", "--fp4-gemm-backend", "0.5.8", "0.5.7"),
        ("sglang", "--cuda-graph-backend-decode", "0.5.14", "0.5.13.post1"),
    ],
)
def test_flag_begins_with_its_release(engine: str, flag: str, first: str, last_without: str) -> None:
    facts = registry(engine)
    assert flag in facts.flags_of(first)
    assert flag not in facts.flags_of(last_without)


@pytest.mark.parametrize(
    ("engine", "flag", "choice", "first", "last_without"),
    [
        ("vllm", "--moe-backend", "flashinfer_b12x", "0.22.0", "0.21.0"),
        ("vllm", "--moe-backend", "b12x", "0.29.0", "0.28.0"),
        ("vllm", "--linear-backend", "b12x", "0.28.0", "0.27.1"),
        ("vllm", "--kv-cache-dtype", "nvfp4", "0.20.0", "0.19.1"),
        ("vllm", "--attention-backend", "B12X", "0.30.0", "0.29.0"),
        ("sglang", "--moe-runner-backend", "marlin", "0.5.12", "0.5.11"),
        ("sglang", "--fp4-gemm-backend", "marlin", "0.5.13", "0.5.12.post1"),
    ],
)
def test_choice_begins_with_its_release(engine: str, flag: str, choice: str, first: str, last_without: str) -> None:
    facts = registry(engine)
    assert choice in (facts.choices_of(flag, first) or [])
    assert choice not in (facts.choices_of(flag, last_without) or [])


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("VLLM_NVFP4_GEMM_BACKEND", ["0.11.1", "0.17.1", "0.23.0"], ["0.10.2", "0.24.0"]),
        ("VLLM_MXFP4_USE_MARLIN", ["0.10.2", "0.23.0"], ["0.24.0"]),
        ("VLLM_ATTENTION_BACKEND", ["0.10.2", "0.14.1"], ["0.15.0"]),
        ("VLLM_MARLIN_USE_ATOMIC_ADD", ["0.10.2", "0.33.0"], []),
        ("VLLM_MXFP4_BACKEND", [], ["0.10.2", "0.17.1", "0.33.0"]),
    ],
)
def test_variable_is_known_where_the_source_had_it(name: str, inside: list[str], outside: list[str]) -> None:
    facts = registry("vllm")
    assert [version for version in inside if name not in facts.environment_of(version)] == []
    assert [version for version in outside if name in facts.environment_of(version)] == []


def test_marlin_is_a_value_of_the_nvfp4_variable_from_its_release_on() -> None:
    marlin = registry("vllm").environment_choices["VLLM_NVFP4_GEMM_BACKEND"]["marlin"]
    assert marlin.contains("0.17.1")
    assert not marlin.contains("0.11.1")


@pytest.mark.parametrize("engine", ENGINES)
def test_tables_hold_only_versions_that_were_read(engine: str) -> None:
    facts = registry(engine)
    read = set(facts.versions_read)
    assert facts.versions_read == tuple(sorted(read, key=Version))
    for name, fact in facts.flags.items():
        bounds = {str(bound) for span in fact.recognised.spans for bound in span if bound is not None}
        assert bounds <= read, name


@pytest.mark.parametrize("engine", ENGINES)
def test_notes_name_something_and_say_where_it_stands(engine: str) -> None:
    for note in registry(engine).notes:
        assert note.name.startswith(("--", "VLLM_", "SGLANG_"))
        assert note.level in ("error", "warning", "info")
        assert note.message
        assert note.source


@pytest.mark.parametrize("engine", ENGINES)
def test_note_that_a_name_is_gone_agrees_with_the_tables(engine: str) -> None:
    facts = registry(engine)
    for note in facts.notes:
        for version in facts.versions_read if note.level == "error" else ():
            known = facts.flags_of(version) if note.name.startswith("--") else facts.environment_of(version)
            assert not (note.versions.contains(version) and note.name in known), (note.name, version)


def test_version_between_two_read_ones_takes_the_older_ones_facts() -> None:
    facts = registry("vllm")
    assert facts.effective("0.32.7") == "0.32.0"
    assert facts.effective("99.0") == facts.versions_read[-1]
    assert facts.effective("0.1") == facts.versions_read[0]


def test_unknown_engine_names_the_nearest() -> None:
    with pytest.raises(UnknownEngineError, match="Did you mean sglang"):
        registry("sg-lang")
