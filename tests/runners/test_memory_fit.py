from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.memory_fit import GB10_TOTAL_BYTES, memory_fit
from suites.kv_cache import KV_BITS, KvShape, kv_bytes, kv_shape_from_config
from suites.recipes import Recipe, Source, all_recipes
from suites.recipes.knowledge import Weights

GIB = 1 << 30
RECIPES = all_recipes()


def _recipe(total: int | None = None, bound: str = "exact", kv: KvShape | None = None, vram: float | None = None) -> Recipe:
    weights = None if total is None else Weights(total_bytes=total, bound=bound, derivation="a test's own number", source="test")
    return Recipe(name="m", kind="model", source=Source(path="/x"), weights=weights, kv=kv, vram_minimum_gb=vram, verified="test")


def _full(layers: int = 10, heads: int = 8, dim: int = 128) -> KvShape:
    return KvShape(full_layers=layers, kv_heads=heads, head_dim=dim, source="test")


def test_gpt_oss_120b_fits_one_spark_and_the_arithmetic_is_shown() -> None:
    fit = memory_fit(RECIPES["gpt-oss-120b"], GB10_TOTAL_BYTES, kv_cache_dtype="fp8")
    assert fit.verdict == "fits"
    assert (
        "60.8 GiB weights + 2.3 GiB KV cache for one sequence of 131,072 tokens (fp8) = 63.0 GiB; 107.1 GiB usable of 121.7 GiB"
        in fit.sentence
    )
    assert "Not counted: what the engine needs" in fit.sentence


@pytest.mark.parametrize("name", ["minimax-m3-nvfp4", "glm-5.3-flash", "ling-3.0-flash", "nvidia-nemotron-3-super-120b-a12b-bf16"])
def test_what_cannot_fit_one_spark_is_refused(name: str) -> None:
    fit = memory_fit(RECIPES[name], GB10_TOTAL_BYTES)
    assert fit.refused
    assert "does not fit" in fit.sentence


@pytest.mark.parametrize(
    ("total_gib", "bound", "verdict"),
    [
        (10, "exact", "fits"),
        (100, "exact", "tight"),
        (108, "exact", "does_not_fit"),
        (108, "at_least", "does_not_fit"),
        (108, "about", "unknown"),
        (220, "about", "does_not_fit"),
    ],
)
def test_only_sizes_that_are_certain_refuse(total_gib: int, bound: str, verdict: str) -> None:
    assert memory_fit(_recipe(total_gib * GIB, bound, _full()), GB10_TOTAL_BYTES).verdict == verdict


def test_unknown_sizes_are_named_and_allowed() -> None:
    fit = memory_fit(_recipe(), GB10_TOTAL_BYTES)
    assert (fit.verdict, fit.refused, fit.needed_bytes) == ("unknown", False, 0)
    assert "the size of the weights; the size of the KV cache" in fit.sentence
    assert memory_fit(_recipe(10 * GIB), GB10_TOTAL_BYTES).verdict == "unknown"
    assert memory_fit(_recipe(10 * GIB, kv=_full()), None).verdict == "unknown"
    odd = memory_fit(_recipe(10 * GIB, kv=_full()), GB10_TOTAL_BYTES, kv_cache_dtype="turboquant_k8v4")
    assert "the size of the KV cache of type turboquant_k8v4" in odd.unknown


def test_measured_sizes_go_before_the_recipes_and_overhead_counts() -> None:
    small = memory_fit(_recipe(200 * GIB, kv=_full()), GB10_TOTAL_BYTES, weight_bytes=50 * GIB)
    assert small.verdict == "fits"
    assert "file sizes" in small.sentence
    full = memory_fit(_recipe(90 * GIB, kv=_full()), GB10_TOTAL_BYTES, overhead_bytes=20 * GIB)
    assert full.refused
    assert "20.0 GiB overhead seen in earlier boots" in full.sentence


def test_a_recipe_that_asks_for_more_than_the_node_has_is_refused_by_its_own_word() -> None:
    assert memory_fit(_recipe(vram=170), GB10_TOTAL_BYTES).refused
    assert not memory_fit(_recipe(vram=91), GB10_TOTAL_BYTES).refused


@pytest.mark.parametrize(
    ("shape", "tokens", "dtype", "expected"),
    [
        (_full(18, 8, 64), 1000, "auto", 18 * 2 * 8 * 64 * 2 * 1000),
        (_full(18, 8, 64), 1000, "fp8", 18 * 2 * 8 * 64 * 1000),
        (_full(1, 1, 16), 32, "nvfp4", 32 * 18),
        (KvShape(sliding_layers=2, sliding_window=128, kv_heads=1, head_dim=64, source="test"), 1000, "auto", 2 * 2 * 64 * 2 * 128),
        (KvShape(latent_layers=11, latent_dim=576, source="test"), 100, "bfloat16", 11 * 576 * 2 * 100),
        (KvShape(constant_layers=30, source="test"), 100_000, "auto", 0),
    ],
)
def test_kv_bytes_of_every_kind_of_layer(shape: KvShape, tokens: int, dtype: str, expected: int) -> None:
    assert kv_bytes(shape, tokens, dtype) == expected


@given(st.integers(0, 99), st.integers(1, 4096), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(sorted(KV_BITS)))
def test_more_context_never_needs_less(layers: int, window: int, a: int, b: int, dtype: str) -> None:
    shape = KvShape(full_layers=layers, sliding_layers=3, sliding_window=window, kv_heads=2, head_dim=64, source="test")
    low, high = kv_bytes(shape, min(a, b), dtype), kv_bytes(shape, max(a, b), dtype)
    assert low is not None
    assert high is not None
    assert low <= high


QWEN = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "hidden_size": 2048,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    },
}


def test_a_hybrid_checkpoint_counts_only_its_attention_layers() -> None:
    shape = kv_shape_from_config(QWEN, "test")
    assert shape is not None
    assert (shape.full_layers, shape.constant_layers, shape.kv_heads, shape.head_dim) == (1, 3, 2, 256)


def test_plain_and_latent_checkpoints_are_read() -> None:
    plain = kv_shape_from_config({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256}, "test")
    assert plain is not None
    assert (plain.full_layers, plain.kv_heads, plain.head_dim) == (2, 4, 64)
    latent = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    shape = kv_shape_from_config(latent, "test")
    assert shape is not None
    assert (shape.full_layers, shape.latent_layers, shape.latent_dim) == (0, 2, 576)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_hidden_layers": "4"},
        {"num_hidden_layers": 4},
        {"num_hidden_layers": 1, "layer_types": ["indexed_attention"], "num_key_value_heads": 1, "head_dim": 1},
        {"num_hidden_layers": 2, "layer_types": ["full_attention"], "num_key_value_heads": 1, "head_dim": 1},
        {"num_hidden_layers": 1, "layer_types": ["sliding_attention"], "num_key_value_heads": 1, "head_dim": 1},
        {"num_hidden_layers": True, "num_key_value_heads": 1, "head_dim": 1},
    ],
)
def test_a_config_that_does_not_say_enough_gives_no_shape(config: dict[str, object]) -> None:
    assert kv_shape_from_config(config, "test") is None


@pytest.mark.parametrize(
    ("recipe", "node_bytes", "noticed"),
    [
        ("gemma3-270m", GB10_TOTAL_BYTES, False),
        ("gemma3-270m", None, False),
        ("gemma3-270m", 1 << 30, True),
        ("qwen3.5-122b-a10b-nvfp4", GB10_TOTAL_BYTES, True),
        ("qwen3.5-122b-a10b-nvfp4", None, True),
        ("gpt-oss-120b", GB10_TOTAL_BYTES, False),
    ],
)
def test_only_a_model_that_might_not_fit_is_worth_a_warning(recipe: str, node_bytes: int | None, noticed: bool) -> None:
    assert memory_fit(RECIPES[recipe], node_bytes).worth_a_warning is noticed


def test_memory_that_the_recipe_asks_for_is_an_answer_where_no_sizes_are_known() -> None:
    recipe = next(r for r in RECIPES.values() if r.vram_minimum_gb and r.vram_minimum_gb < 100 and r.weights is None)
    fit = memory_fit(recipe, GB10_TOTAL_BYTES)
    assert fit.verdict == "fits"
    assert f"asks for {recipe.vram_minimum_gb:g} GB, this node has 130.7 GB" in fit.sentence
