"""Backend files: each version's own spelling, refusals with a reason, and errors that name file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.engines.flag_registry import ENGINES, registry
from runners.engines.kernels import kernel_facts
from suites.backends import Expressed, Unsupported, backend_for, contradiction, express, load_all
from suites.errors import SuiteError

_FIELD_NAMES = (
    "marlin", "cutlass", "flashinfer_cutlass", "flashinfer_trtllm", "b12x", "triton", "TRITON_ATTN", "FLASHINFER", "eager", "default",
)  # fmt: skip


@pytest.mark.parametrize("name", _FIELD_NAMES)
def test_names_of_the_field_reports_are_backends_of_both_engines(name: str) -> None:
    backend = backend_for(name)
    assert backend.name == name
    assert set(backend.engines) >= {"vllm", "sglang"}


@pytest.mark.parametrize("name", sorted(load_all()))
@pytest.mark.parametrize("engine", ENGINES)
def test_every_spelling_exists_in_the_version_it_is_for(name: str, engine: str) -> None:
    facts = registry(engine)
    for version in facts.versions_read:
        found = express(backend_for(name), engine, version)
        if isinstance(found, Unsupported):
            assert found.reason
            continue
        arguments = list(found.arguments)
        for position, flag in enumerate(arguments):
            if flag.startswith("--"):
                assert flag in facts.flags_of(version), (version, flag)
                choices = facts.choices_of(flag, version)
                assert choices is None or arguments[position + 1] in choices, (version, flag)
        for variable, value in found.environment.items():
            assert variable in facts.environment_of(version), (version, variable)
            values = facts.environment_choices.get(variable)
            assert values is None or values[value].contains(version), (version, variable)


@pytest.mark.parametrize("name", sorted(load_all()))
@pytest.mark.parametrize("engine", ENGINES)
def test_every_configured_kernel_can_be_compared_with_a_log(name: str, engine: str) -> None:
    families = {(slot, kernel) for slot, kernel, _ in kernel_facts(engine).families}
    slots = {row.slot for row in (*kernel_facts(engine).lines, *kernel_facts(engine).info)} | {"linear", "graph_mode"}
    for version in registry(engine).versions_read:
        found = express(backend_for(name), engine, version)
        for slot, kernel in found.configured.items() if isinstance(found, Expressed) else ():
            assert slot in slots
            base = "linear" if slot.endswith("_linear") else slot
            assert engine == "sglang" or (base, kernel) in families or base in ("graph_mode", "attention"), (slot, kernel)


@pytest.mark.parametrize("version", ["b6123", "newest", "0.1.dev21830+g1a2b3c", ""])
def test_a_version_that_is_no_release_is_unknown_and_may_still_be_served_by_default(version: str) -> None:
    for engine in ("llamacpp", "vllm"):
        assert express(backend_for("default"), engine, version) == Expressed()


@pytest.mark.parametrize(
    ("name", "engine", "version", "reason"),
    [
        ("marlin", "vllm", "0.16.0", "--moe-backend exists from 0.17.0"),
        ("cutlass", "vllm", "0.10.2", "--moe-backend exists from 0.17.0"),
        ("b12x", "vllm", "0.21.0", "flashinfer_b12x from 0.22.0"),
        ("b12x", "sglang", "0.5.23", "no b12x choice"),
        ("marlin", "sglang", "0.5.11", "knows marlin from 0.5.12"),
        ("marlin", "vllm", "0.1.dev21830+g1a2b3c", "is no release"),
        ("marlin", "vllm", "", "is not known"),
        ("marlin", "vllm", "newest", "newest is no release"),
        ("marlin", "llamacpp", "1", "says nothing about llamacpp"),
    ],
)
def test_version_that_cannot_express_a_backend_says_why(name: str, engine: str, version: str, reason: str) -> None:
    found = express(backend_for(name), engine, version)
    assert isinstance(found, Unsupported)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("name", "engine", "version", "arguments", "environment"),
    [
        (
            "marlin",
            "vllm",
            "0.17.1",
            ("--moe-backend", "marlin"),
            {"VLLM_NVFP4_GEMM_BACKEND": "marlin", "VLLM_MXFP4_USE_MARLIN": "1"},
        ),
        ("marlin", "vllm", "0.33.0", ("--moe-backend", "marlin", "--linear-backend", "marlin"), {}),
        ("b12x", "vllm", "0.26.0", ("--moe-backend", "flashinfer_b12x", "--linear-backend", "flashinfer_b12x"), {}),
        ("b12x", "vllm", "0.30.0", ("--moe-backend", "b12x", "--linear-backend", "b12x"), {}),
        ("TRITON_ATTN", "vllm", "0.12.0", (), {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}),
        ("TRITON_ATTN", "vllm", "0.10.2", (), {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN_VLLM_V1"}),
        ("TRITON_ATTN", "sglang", "0.5.14", ("--attention-backend", "triton"), {}),
        ("eager", "sglang", "0.5.12.post1", ("--disable-cuda-graph", "--disable-piecewise-cuda-graph"), {}),
        ("eager", "sglang", "0.5.9", ("--disable-cuda-graph",), {}),
        ("eager", "vllm", "0.22.0rc1", ("--enforce-eager",), {}),
        ("default", "vllm", "0.1.dev3+gabc", (), {}),
        ("default", "sglang", "", (), {}),
    ],
)
def test_backend_is_spelled_as_the_version_wants_it(
    name: str, engine: str, version: str, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    found = express(backend_for(name), engine, version)
    assert isinstance(found, Expressed)
    assert (found.arguments, dict(found.environment)) == (arguments, environment)


def test_name_is_found_whatever_its_case_and_unknown_ones_name_the_nearest() -> None:
    assert backend_for("triton_attn").name == "TRITON_ATTN"
    with pytest.raises(SuiteError, match="Did you mean") as error:
        backend_for("flashinfer_cutlas")
    assert "flashinfer_cutlass" in str(error.value)


def _file(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('name = "x"\ndescription = "d"\n[[engines.vllm]]\nversion = ">=1"\n', 4, "unknown key 'engines.vllm.0.version'"),
        ('name = "x"\ndescription = "d"\n[[engines.vllm]]\nversions = "newer"\n', 4, ">=0.17.0,<0.22.0"),
        ('name = "x"\ndescription = "d"\n[[engines.vllm]]\narguments = ["--a", "1", "--a", "2"]\n', 3, "contradictory flags"),
        ('name = "x"\ndescription = "d"\n[[engines.vllm]]\nunsupported = "no"\narguments = ["--a"]\n', 3, "sets no arguments"),
        ('name = "x"\ndescription = "d"\n[[engines.vllm]\n', 3, "not valid TOML"),
        ('name = "x y"\ndescription = "d"\n[[engines.vllm]]\n', 1, "name"),
    ],
)
def test_bad_file_is_refused_with_file_line_and_expectation(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(SuiteError) as error:
        backend_for(path)
    assert f"{path}:{line}" in str(error.value)
    assert words in str(error.value)


def test_own_backend_file_is_used(tmp_path: Path) -> None:
    text = 'name = "mine"\ndescription = "d"\n[[engines.vllm]]\nversions = ">=0.20"\narguments = ["--block-size", "32"]\n'
    backend = backend_for(_file(tmp_path, text))
    assert express(backend, "vllm", "0.20.0") == Expressed(("--block-size", "32"), {}, {})
    older = express(backend, "vllm", "0.19.1")
    assert isinstance(older, Unsupported)
    assert "known for >=0.20" in older.reason


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--moe-backend", "marlin", "--moe-backend=triton"], "'marlin' and as 'triton'"),
        (["--max_model_len", "1", "--max-model-len", "2"], "--max-model-len"),
        (["--enable-x", "--no-enable-x"], "both given"),
        (["--enforce-eager", "--compilation-config", '{"cudagraph_mode": "FULL"}'], "switches CUDA graphs off"),
    ],
)
def test_contradictory_flags_are_named(arguments: list[str], words: str) -> None:
    found = contradiction(arguments)
    assert found is not None
    assert words in found


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cudagraph-capture-sizes", "1", "2", "4", "--port", "1"],
        ["--moe-backend", "marlin", "--moe-backend", "marlin"],
        ["--max-model-len", "-1"],
        ["--enforce-eager", "-cc", '{"cudagraph_mode": "NONE"}'],
    ],
)
def test_flags_that_agree_are_left_alone(arguments: list[str]) -> None:
    assert contradiction(arguments) is None


@pytest.mark.parametrize("order", ["marlin+TRITON_ATTN+ngram", "ngram+triton_attn+MARLIN", "default+ngram+marlin+TRITON_ATTN+ngram"])
def test_dimensions_are_combined_under_one_name_whatever_the_order(order: str) -> None:
    backend = backend_for(order)
    assert backend.name == "marlin+ngram+TRITON_ATTN"
    found = express(backend, "vllm", "0.32.0")
    assert isinstance(found, Expressed)
    assert found.configured == {"moe": "marlin", "linear": "marlin", "speculative": "ngram", "attention": "TRITON_ATTN"}
    assert [flag for flag in found.arguments if flag.startswith("--")] == [
        "--moe-backend",
        "--linear-backend",
        "--speculative-config",
        "--attention-backend",
    ]


def test_a_combination_is_spelled_as_the_version_spells_its_parts() -> None:
    found = express(backend_for("kv_fp8+TRITON_ATTN"), "vllm", "0.11.0")
    assert isinstance(found, Expressed)
    assert found.environment == {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}
    assert "--kv-cache-dtype" in found.arguments


def test_a_version_that_lacks_one_part_lacks_the_combination() -> None:
    found = express(backend_for("marlin+ngram"), "vllm", "0.16.0")
    assert isinstance(found, Unsupported)
    assert "--moe-backend exists from 0.17.0" in found.reason


@pytest.mark.parametrize(
    ("name", "engine", "words"),
    [
        ("marlin+cutlass", "vllm", "--moe-backend is given as 'cutlass' and as 'marlin'"),
        ("ngram+mtp", "vllm", "--speculative-config is given as"),
        ("ngram+mtp", "sglang", "--speculative-algorithm is given as"),
        ("eager+piecewise", "vllm", "--enforce-eager switches CUDA graphs off"),
        ("FLASHINFER+TRITON_ATTN", "sglang", "--attention-backend is given as"),
    ],
)
def test_a_combination_that_contradicts_itself_is_refused(name: str, engine: str, words: str) -> None:
    with pytest.raises(SuiteError, match="contradicts itself") as refused:
        express(backend_for(name), engine, registry(engine).versions_read[-1])
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["marlin+", "+", "marlin++ngram", "+".join(["marlin"] * 9)])
def test_what_is_no_combination_is_refused(name: str) -> None:
    with pytest.raises(SuiteError, match="no combination"):
        backend_for(name)


def test_an_unknown_part_is_named_with_the_nearest() -> None:
    with pytest.raises(SuiteError, match="unknown backend 'ngrm'") as refused:
        backend_for("marlin+ngrm")
    assert "ngram" in str(refused.value)


@pytest.mark.parametrize(
    ("engine", "version", "reason"),
    [("vllm", "0.10.2", "the method mtp from 0.11.0"), ("llamacpp", "b6123", "says nothing about llamacpp")],
)
def test_speculation_that_a_version_cannot_express_says_why(engine: str, version: str, reason: str) -> None:
    found = express(backend_for("mtp"), engine, version)
    assert isinstance(found, Unsupported)
    assert reason in found.reason


def test_a_mistyped_key_deep_inside_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\ndescription = "d"\n[[engines.vllm]]\nargumnts = ["--x"]\n')
    with pytest.raises(SuiteError, match="Did you mean 'arguments'") as error:
        backend_for(str(path))
    assert error.value.where == f"{path}:4"
