from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.vocabulary import SHAPE_PREFIX
from suites.canaries.formats import formats_of
from suites.errors import SuiteError
from suites.kv_cache import kv_bytes
from suites.recipes import all_recipes, recipe_for
from suites.shapes import MAX_MODEL_LEN, PREFIX, all_shapes, shape_for
from suites.shapes.checkpoint import byte_alphabet, tokenizer, write
from suites.workloads import STANDARD_WORKLOADS

SHAPES = all_shapes()
FULL = [name for name, shape in SHAPES.items() if not shape.is_tiny]
TINY = [name for name, shape in SHAPES.items() if shape.is_tiny]


@pytest.mark.parametrize(
    ("name", "parameters", "active"),
    [
        ("llama-3.1-8b", 8_030_261_248, 7_504_924_672),
        ("qwen3-30b-a3b", 30_532_122_624, 3_041_867_776),
        ("gpt-oss-120b", 116_829_156_672, 5_132_849_472),
        ("gpt-oss-20b", 20_914_757_184, 3_608_307_264),
        ("gemma3-270m", 268_098_176, 268_098_176),
        ("qwen3.5-122b-a10b", 122_111_526_912, 9_008_449_536),
    ],
)
def test_the_tensors_sum_to_the_published_number_of_parameters(name: str, parameters: int, active: int) -> None:
    assert (SHAPES[name].parameters, SHAPES[name].active_parameters) == (parameters, active)


def test_what_recipes_say_of_the_same_models_was_counted_another_way_and_agrees() -> None:
    published = recipe_for("gpt-oss-120b").weights
    ours = recipe_for("shape-gpt-oss-120b").weights
    assert published is not None and ours is not None
    assert (ours.total_bytes, ours.active_bytes) == (published.total_bytes, published.active_bytes)
    assert recipe_for("shape-gpt-oss-120b").kv == recipe_for("gpt-oss-120b").kv.model_copy(update={"source": ours.source})  # type: ignore[union-attr]
    qwen = recipe_for("qwen3.5-35b-a3b-fp8").weights
    assert qwen is not None and SHAPES["qwen3.5-35b-a3b"].active_parameters == qwen.active_bytes


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("llama-3.1-8b", 2 * 8_030_261_248, 2 * 7_504_924_672),
        # 224 matrices of 6,979,321,856 values: 1 byte each and 2 for each of 1,376,256 rows; the rest stays in bf16
        ("llama-3.1-8b-fp8", 6_979_321_856 + 2 * 1_376_256 + 2 * (8_030_261_248 - 6_979_321_856), None),
        # 4.5 bits, and two float32 scales for each matrix
        ("llama-3.1-8b-nvfp4", 6_979_321_856 * 9 // 16 + 224 * 8 + 2 * (8_030_261_248 - 6_979_321_856), None),
    ],
)
def test_bytes_are_those_of_the_format_with_its_scales(name: str, total: int, active: int | None) -> None:
    shape = SHAPES[name]
    assert shape.total_bytes == total
    assert shape.total_bytes - shape.active_bytes == 2 * 128256 * 4096, "of the embedding one row is read"
    assert active is None or shape.active_bytes == active


def test_kv_bytes_of_a_token_count_only_layers_that_keep_it() -> None:
    assert SHAPES["llama-3.1-8b"].kv_bytes_per_token() == 2 * 8 * 128 * 32 * 2
    assert SHAPES["llama-3.1-8b"].kv_bytes_per_token("fp8") == 2 * 8 * 128 * 32
    assert SHAPES["gpt-oss-20b"].kv_bytes_per_token() == 2 * 8 * 64 * 12 * 2, "beyond its window a sliding layer keeps nothing more"
    assert SHAPES["qwen3.5-35b-a3b"].kv_bytes_per_token() == 2 * 2 * 256 * 10 * 2
    with pytest.raises(ValueError, match="turbo"):
        SHAPES["llama-3.1-8b"].kv_bytes_per_token("turbo")


@given(st.sampled_from(FULL), st.integers(0, 200_000), st.floats(1e9, 1e13))
def test_the_roofline_falls_with_the_context_and_grows_with_the_bandwidth(name: str, context: int, bandwidth: float) -> None:
    shape = SHAPES[name]
    ceiling = shape.roofline_tok_s(bandwidth, context)
    assert ceiling == bandwidth / (shape.active_bytes + (kv_bytes(shape.kv, context) or 0))
    assert (
        shape.roofline_tok_s(bandwidth, context + 1000) < ceiling <= shape.roofline_tok_s(bandwidth) < shape.roofline_tok_s(2 * bandwidth)
    )


@pytest.mark.parametrize("name", SHAPES)
def test_a_quantised_shape_names_what_stays_in_bf16_and_the_kernels_can_take_the_rest(name: str) -> None:
    shape = SHAPES[name]
    quantization = shape.config.get("quantization_config")
    if shape.weight_format == "bf16":
        assert quantization is None
        return
    quantised = [tensor for tensor in shape.tensors if tensor.quantisable]
    assert quantised and all(side % 32 == 0 for tensor in quantised for side in tensor.size)
    if shape.weight_format == "mxfp4":
        assert quantization["quant_method"] == "mxfp4"
        return
    kept = set(quantization["ignore"])
    linear = {tensor.name for tensor in shape.tensors if tensor.linear}
    assert "lm_head" in kept and kept < linear
    assert all(tensor.name in kept for tensor in shape.tensors if tensor.linear and not tensor.quantisable)
    if shape.config["model_type"] == "qwen3_5_moe_text":
        assert ("model.layers.0.linear_attn.out_proj" in kept) is (shape.weight_format == "nvfp4")


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_shape_is_its_family_with_other_numbers(name: str) -> None:
    tiny, full = SHAPES[name], SHAPES[name.removeprefix("tiny-")]
    assert set(tiny.config) == set(full.config)
    assert set(tiny.config.get("layer_types", ())) == set(full.config.get("layer_types", ())), "every kind of layer is there"
    assert {k: tiny.config[k] for k in ("model_type", "architectures")} == {k: full.config[k] for k in ("model_type", "architectures")}
    assert tiny.total_bytes < 20e6 and tiny.launch_bound and not full.launch_bound


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_a_recipe_that_says_what_it_is(name: str) -> None:
    recipe, shape = recipe_for(f"shape-{name}"), SHAPES[name]
    assert (recipe.kind, recipe.dummy, recipe.weight_format, recipe.revision) == ("shape", True, shape.weight_format, shape.revision)
    assert recipe.model == f"shape/{name}"
    assert all(arguments == ("--load-format", "dummy") for arguments in recipe.arguments.values())
    assert recipe.weights is not None and recipe.weights.bound == "exact" and recipe.weights.source == shape.family.source
    assert recipe.launch_bound is shape.is_tiny
    canary = {"gpt-oss": "gpt_oss"}.get(shape.family.canaries[0], shape.family.canaries[0])
    assert shape.weight_format in formats_of(canary)
    assert all(workload.total_tokens <= MAX_MODEL_LEN <= shape.config["max_position_embeddings"] for workload in STANDARD_WORKLOADS)


def test_an_engine_without_a_dummy_loader_is_refused_with_the_reason() -> None:
    recipe = recipe_for("shape-gpt-oss-20b")
    assert recipe.unsupported("vllm", "0.32.0") is None is recipe.unsupported("sglang", "0.5.14")
    assert "llamacpp is not known to" in (recipe.unsupported("llamacpp", "b9000") or "")


def test_a_corrected_number_is_another_shape() -> None:
    recipe = recipe_for("shape-llama-3.1-8b")
    assert recipe.recipe_id != recipe.model_copy(update={"revision": "0" * 12}).recipe_id
    assert len({SHAPES[name].revision for name in FULL}) == len(FULL)


def test_no_real_model_is_ever_called_a_shape(tmp_path: Path) -> None:
    folder = tmp_path / "shape-llama-3.1-8b"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert recipe_for(str(folder)).name == "model-shape-llama-3.1-8b"
    assert [r.name for r in all_recipes().values() if r.name.startswith("shape-") and r.kind != "shape"] == []


def test_dashboard_and_suites_mean_the_same_reserved_name() -> None:
    assert PREFIX == SHAPE_PREFIX


def test_an_unknown_shape_is_refused_with_those_that_exist() -> None:
    assert shape_for("shape-gpt-oss-20b") is SHAPES["gpt-oss-20b"]
    with pytest.raises(SuiteError, match=r"llama-3\.1-8b-nvfp4"):
        shape_for("llama-3.1-9b")


def test_the_folder_of_a_shape_is_configuration_and_tokenizer_without_weights(tmp_path: Path) -> None:
    folder = write(SHAPES["tiny-llama-3.1-8b-fp8"], tmp_path)
    assert {path.name for path in folder.iterdir()} == {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    config = json.loads((folder / "config.json").read_text())
    assert config["quantization_config"]["format"] == "float-quantized"
    words = json.loads((folder / "tokenizer.json").read_text())
    assert {token["id"] for token in words["added_tokens"]} == {config[f"{name}_token_id"] for name in ("pad", "bos", "eos")}
    (folder / "tokenizer.json").unlink()
    assert write(SHAPES["tiny-llama-3.1-8b-fp8"], tmp_path) == folder
    assert json.loads((folder / "tokenizer.json").read_text()) == words, "what was taken out of it is made again"
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_two_that_write_one_shape_at_once_both_have_it(tmp_path: Path) -> None:
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(write(SHAPES["tiny-gpt-oss-20b"], tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 4 and len(set(folders)) == 1 and (folders[0] / "config.json").is_file()


@given(st.integers(300, 5_000), st.lists(st.integers(0, 299), min_size=3, max_size=3, unique=True))
def test_every_id_of_the_filler_tokenizer_is_a_token_and_every_byte_can_be_written(size: int, special: list[int]) -> None:
    made = tokenizer(size, dict(zip(("<|pad|>", "<|bos|>", "<|eos|>"), special, strict=True)))
    ids = [*made["model"]["vocab"].values(), *(token["id"] for token in made["added_tokens"])]
    assert sorted(ids) == list(range(size))
    assert len(byte_alphabet()) == len(set(byte_alphabet())) == 256
    assert set(byte_alphabet()) <= set(made["model"]["vocab"])
