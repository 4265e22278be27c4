"""Which numeric path was served, from what the server says ran."""

from __future__ import annotations

import pytest

from runners.coherence.numeric_path import candidate_paths, path_name, references_of
from suites.canaries.references import NumericPath
from suites.recipes import all_recipes

_AUTO = {"kv_cache_dtype": "auto"}


@pytest.mark.parametrize(
    ("weights", "kernels", "activations"),
    [
        ("bf16", {}, ["none"]),
        ("int4", {"wna16_linear": "MacheteLinearKernel"}, ["none"]),
        ("int4", {"wna16_linear": "CPUWNA16LinearKernel", "moe_experts": "CPUExpertsInt4"}, ["int8"]),
        ("nvfp4a16", {"nvfp4_linear": "FlashInferCutlassNvFp4LinearKernel"}, ["none"]),
        ("nvfp4", {"nvfp4_linear": "MarlinNvFp4LinearKernel"}, ["none"]),
        ("nvfp4", {"nvfp4_linear": "FlashInferCutlassNvFp4LinearKernel"}, ["nvfp4"]),
        ("nvfp4", {"nvfp4_linear": "EmulationNvFp4LinearKernel", "moe": "EMULATION"}, ["nvfp4"]),
        ("nvfp4", {"nvfp4_linear": "MarlinNvFp4LinearKernel", "moe": "FLASHINFER_CUTLASS"}, ["none", "nvfp4"]),
        ("nvfp4", {}, ["none", "nvfp4"]),
        ("nvfp4", {"nvfp4_linear": "unknown"}, ["none", "nvfp4"]),
        ("fp8", {"fp8_linear": "CutlassFP8ScaledMMLinearKernel"}, ["fp8"]),
        ("fp8", {"moe": "MARLIN"}, ["none"]),
        ("fp8", {"moe": "triton"}, ["fp8"]),
        ("mxfp4", {"moe": "MARLIN"}, ["none"]),
        ("mxfp4", {"moe": "TRITON_UNFUSED"}, ["none"]),
        ("mxfp4", {"moe": "B12X_MXFP4_MXFP8"}, ["mxfp8"]),
        ("mxfp4", {"moe": "FLASHINFER_CUTLASS"}, ["none", "mxfp8"]),
        ("mxfp4a16", {"mxfp4_linear": "MarlinMxFp4LinearKernel"}, ["none"]),
    ],
)
def test_the_kernel_that_ran_decides_the_activation_format(weights: str, kernels: dict[str, str], activations: list[str]) -> None:
    assert [path.activation_format for path in candidate_paths(weights, {**_AUTO, **kernels})] == activations


@pytest.mark.parametrize(
    ("said", "dtypes"),
    [
        ("auto", ["auto"]),
        ("bfloat16", ["auto"]),
        ("fp8", ["fp8"]),
        ("fp8_e4m3", ["fp8"]),
        ("fp8_e5m2", ["fp8_e5m2"]),
        ("unknown", ["auto", "fp8"]),
    ],
)
def test_the_kv_dtype_is_the_one_the_server_reports(said: str, dtypes: list[str]) -> None:
    assert [path.kv_cache_dtype for path in candidate_paths("bf16", {"kv_cache_dtype": said})] == dtypes


def test_a_path_is_named_as_scores_name_it() -> None:
    assert path_name(NumericPath("nvfp4", "nvfp4", "fp8")) == "nvfp4 / nvfp4 / fp8"


def test_every_path_of_a_shipped_recipe_has_a_reference() -> None:
    recipes = [recipe for recipe in all_recipes().values() if recipe.source.canary is not None]
    assert len(recipes) >= 4
    for recipe in recipes:
        for kernels in ({"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "fp8"}, {}):
            assert references_of(recipe.source.canary or "", candidate_paths(recipe.weight_format, kernels)), (recipe.name, kernels)


def test_a_candidate_without_a_reference_leaves_nothing_to_judge_by() -> None:
    assert references_of("dense", (NumericPath("bf16", "none", "fp8_e5m2"),)) == ()
