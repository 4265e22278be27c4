from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suites.backends import contradiction
from suites.errors import SuiteError
from suites.kv_cache import KvShape
from suites.recipes import Recipe, Source, all_recipes, recipe_for
from suites.recipes.knowledge import Claim, KnownBad, Weights
from suites.roofline import roofline_tok_s
from suites.toml_files import read_toml

RECIPES = all_recipes()
OFFICIAL = [r for r in RECIPES.values() if r.verified is not None]


def _weights(active: int | None = 10, total: int | None = 10, bound: str = "exact") -> Weights:
    return Weights(total_bytes=total, active_bytes=active, bound=bound, derivation="a test's own number", source="test")


def test_the_recipes_that_users_ask_for_ship() -> None:
    assert {
        "gpt-oss-120b",
        "qwen3.5-35b-a3b-fp8",
        "qwen3.5-35b-a3b-mxfp4-online",
        "qwen3.5-122b-a10b-nvfp4",
        "qwen3.5-122b-a10b-int4-autoround",
        "minimax-m3-nvfp4",
        "glm-5.3-flash",
        "glm-5.3-moe-layer",
        "gemma3-270m",
        "canary-dense",
        "nvidia-qwen3.6-35b-a3b-nvfp4",
    } <= set(RECIPES)
    assert len(OFFICIAL) == 41


def test_every_number_says_where_it_comes_from() -> None:
    for recipe in RECIPES.values():
        if recipe.weights is not None:
            assert recipe.weights.source and len(recipe.weights.derivation) > 20, recipe.name
        assert all(claim.source for claim in recipe.claims), recipe.name


def test_the_weights_of_gpt_oss_120b_are_what_its_shapes_add_up_to() -> None:
    """Layers 36, experts 128 (4 used) of 3 x 2880 x 2880, 64 + 2 x 8 heads of 64, vocabulary 201088 (transformers 5.19.0, GptOssConfig)."""
    layers, hidden, experts, used, vocabulary = 36, 2880, 128, 4, 201_088
    expert = 3 * hidden * hidden
    biases = 3 * hidden
    attention = 2 * hidden * 64 * 64 + 64 * 64 + 2 * (hidden * 8 * 64 + 8 * 64) + hidden + 64
    layer = attention + (hidden + 1) * experts + 2 * hidden
    other = layers * (layer + experts * biases) + 2 * vocabulary * hidden + hidden
    assert layers * experts * expert + other == 116_829_156_672
    weights = RECIPES["gpt-oss-120b"].weights
    assert weights is not None
    assert weights.total_bytes == layers * experts * expert * 17 // 32 + 2 * other
    active = layers * (layer + used * biases) + vocabulary * hidden + hidden
    assert weights.active_bytes == layers * used * expert * 17 // 32 + 2 * active


def test_published_gpt_oss_rates_above_the_roofline_are_recognised() -> None:
    recipe = RECIPES["gpt-oss-120b"]
    assert recipe.weights is not None
    assert recipe.weights.roofline_tok_s == pytest.approx(54.57, abs=0.01)
    assert {c.tok_s_low: c.above(recipe.weights) for c in recipe.claims} == {58.8: True, 60.7: True, 57: True, 58: True, 33: False}


def test_the_offline_tokenizer_file_of_gpt_oss_is_named_as_its_cache_names_it() -> None:
    """The cache names a file by the sha1 of its address, in pieces here because it is the host of no file of ours."""
    tokenizer = RECIPES["gpt-oss-120b"].tokenizer
    assert tokenizer is not None
    assert tokenizer.file is not None
    address = "".join(("https://", "openaipublic", ".blob.core.windows", ".net", "/encodings/o200k_base.tiktoken"))
    assert tokenizer.file.cache_name == hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    assert (tokenizer.file.cache_variable, tokenizer.file.folder_variable) == ("TIKTOKEN_RS_CACHE_DIR", "TIKTOKEN_ENCODINGS_BASE")


@pytest.mark.parametrize(
    ("engine", "version", "needed"),
    [
        ("vllm", "0.10.2", True),
        ("vllm", "0.30.0", True),
        ("vllm", "0.31.0", False),
        ("vllm", "0.32.0", False),
        ("vllm", None, True),
        ("vllm", "0.1.dev21830+g1a2b3c", True),
        ("sglang", "0.5.23", True),
        ("llamacpp", "b6123", False),
    ],
)
def test_the_vocabulary_file_is_needed_by_the_releases_without_one_of_their_own(engine: str, version: str | None, needed: bool) -> None:
    tokenizer = RECIPES["gpt-oss-120b"].tokenizer
    assert tokenizer is not None
    assert tokenizer.file is not None
    assert tokenizer.file.is_needed(engine, version) is needed


def test_known_bad_combinations_are_found_by_release() -> None:
    recipe = RECIPES["gpt-oss-120b"]
    links = {version: {r.link for r in recipe.known_bad_for("vllm", version)} for version in ("0.18.1", "0.20.1rc1", "0.33.0")}
    assert "vllm-project/vllm#37030" in links["0.18.1"]
    assert "vllm-project/vllm#41477" not in links["0.18.1"]
    assert {"vllm-project/vllm#41477", "vllm-project/vllm#43969"} <= links["0.20.1rc1"]
    assert links["0.33.0"] == {"eugr/spark-vllm-docker#35"}, "a report without a range is never ruled out"
    assert not any(r.engine == "vllm" for r in recipe.known_bad_for("sglang", "0.5.9"))


def test_official_arguments_are_whole_and_do_not_contradict_themselves() -> None:
    for recipe in OFFICIAL:
        arguments = recipe.arguments.get("vllm", ())
        assert contradiction(arguments) is None, recipe.name
        assert "--max-model-len" not in arguments, recipe.name
        assert all(a.startswith("--") or not a.startswith("-") for a in arguments), recipe.name
        assert all(a.count("{") == a.count("}") and a.count('"') % 2 == 0 for a in arguments), recipe.name


@pytest.mark.parametrize(
    ("name", "engine", "version", "words"),
    [
        ("nvidia-qwen3.6-35b-a3b-nvfp4", "vllm", "0.27.1", "needs vllm 0.28.0 or newer"),
        ("nvidia-qwen3.6-35b-a3b-nvfp4", "vllm", "0.28.0", None),
        ("nvidia-qwen3.6-35b-a3b-nvfp4", "sglang", "0.5.14", None),
        ("deepseek-v4-flash-0731", "vllm", "0.33.0", "reported on 2 nodes"),
        ("glm-5.3-moe-layer", "sglang", "0.5.14", "cannot be served"),
        ("gpt-oss-120b", "vllm", None, None),
    ],
)
def test_what_a_release_or_one_node_cannot_serve_is_said_before_a_boot(
    name: str, engine: str, version: str | None, words: str | None
) -> None:
    said = RECIPES[name].unsupported(engine, version)
    assert (said is None) if words is None else (said is not None and words in said)


def test_knowing_more_about_a_model_does_not_start_a_new_history() -> None:
    recipe = RECIPES["gpt-oss-120b"]
    bare = recipe.model_copy(update={"claims": (), "known_bad": (), "weights": None, "notes": (), "tokenizer": None, "description": "x"})
    assert bare.recipe_id == recipe.recipe_id
    for change in (
        {"revision": "0" * 40},
        {"max_model_len": 8192},
        {"arguments": {"vllm": ("--x",)}},
        {"environment": {"vllm": {"A": "1"}}},
    ):
        assert recipe.model_copy(update=change).recipe_id != recipe.recipe_id


def test_a_hub_id_finds_its_recipe_or_makes_one() -> None:
    assert recipe_for("OpenAI/gpt-oss-120b").name == "gpt-oss-120b"
    made = recipe_for("maker/Some_Model.v2")
    assert (made.name, made.source.hub) == ("maker-some_model.v2", "maker/Some_Model.v2")


def test_a_folder_of_that_name_goes_before_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "maker" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").touch()
    assert recipe_for("maker/model").source.path == str(folder)


@pytest.mark.parametrize("source", [{}, {"hub": "a/b", "path": "/x"}, {"hub": "a"}, {"hub": "a/b/c"}, {"hub": "../b"}])
def test_a_source_that_is_none_two_or_no_hub_id_is_refused(source: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        Source(**source)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            '[source]\nhub = "a/b"\n[weights]\nbound = "exact"\nderivation = "0123456789"\nsource = "somewhere"',
            5,
            "total_bytes, active_bytes or both",
        ),
        ('minimum_version = { vllm = "new" }\n[source]\nhub = "a/b"', 3, "is no version"),
        ('[source]\nhub = "a/b"\n[[claims]]\nengine = "vllm"\ntok_s_low = 2\ntok_s_high = 1\nsource = "x y"', 5, "more than tok_s_high"),
        ('[source]\nhub = "a/b"\n[[known_bad]]\nengine="vllm"\nkernel="k"\nseen_in="1"\nsymptom="s"\nlink="https://x"', 10, "pattern"),
        ('[source]\nhub = "a/b"\n[weigths]\ntotal_bytes = 1', 5, "Did you mean 'weights'"),
    ],
)
def test_a_mistake_in_a_recipe_is_named_with_its_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f'name = "r"\nkind = "model"\n{text}\n')
    with pytest.raises(SuiteError) as caught:
        read_toml(path, Recipe)
    assert f"r.toml:{line}" in str(caught.value)
    assert words in str(caught.value)


@given(st.floats(1e-3, 1e15), st.floats(1e-3, 1e15))
def test_the_roofline_is_bandwidth_over_bytes(active: float, bandwidth: float) -> None:
    assert roofline_tok_s(active, bandwidth) * active == pytest.approx(bandwidth)


@pytest.mark.parametrize(("active", "bandwidth"), [(0, 1.0), (-1, 1.0), (1, 0.0), (float("nan"), 1.0)])
def test_a_roofline_of_nothing_is_refused(active: float, bandwidth: float) -> None:
    with pytest.raises(ValueError):
        roofline_tok_s(active, bandwidth)


def test_an_estimate_never_decides_that_a_claim_is_too_fast() -> None:
    fast = Claim(engine="vllm", tok_s_low=1e12, tok_s_high=1e12, source="test claim")
    assert fast.above(_weights()) is True
    assert fast.above(_weights(bound="about")) is None
    assert fast.above(_weights(active=None)) is None
    assert fast.above(None) is None


@pytest.mark.parametrize("shape", [{"full_layers": 1}, {"sliding_layers": 1, "kv_heads": 1, "head_dim": 1}, {"latent_layers": 1}])
def test_a_cache_shape_that_lacks_a_dimension_is_refused(shape: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        KvShape(**shape, source="test")


def test_a_report_about_a_build_without_a_release_is_not_compared() -> None:
    report = KnownBad(engine="vllm", kernel="k", seen_in="x", versions="<0.20", symptom="s", link="a/b#1")
    assert report.covers("vllm", "not a version") is None
    assert report.covers("vllm", "0.19.0") is True
    assert report.covers("vllm", "0.20.0") is False
