"""The shipped scores of fixed texts belong to the canaries as they are, and the gate finds them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runners.coherence.numeric_path import candidate_paths, scores_path
from runners.model_references import SHIPPED, key_of, known_good_for
from runners.models import LocalModel
from suites.canaries import zoo
from suites.passages import canary_passages
from suites.recipes import Recipe, all_recipes

_RECIPES = [recipe for recipe in all_recipes().values() if recipe.source.canary is not None]


@pytest.mark.parametrize("recipe", _RECIPES, ids=lambda recipe: recipe.name)
def test_every_canary_recipe_has_scores_of_its_texts_on_the_plain_path(recipe: Recipe, tmp_path: Path) -> None:
    name = recipe.source.canary or ""
    known = known_good_for(recipe, LocalModel(recipe.name, None), tmp_path)
    assert known is not None, f"run: python -m suites.references.measure {name}"
    texts = dict(canary_passages(zoo.load(name)))
    assert known.texts == texts
    path = scores_path(candidate_paths("bf16", {"kv_cache_dtype": "auto"}), canary=True)
    assert path == "any / none / auto"
    assert set(known.passages[path]) == set(texts)
    for passage_path, scored in known.passages.items():
        for text, passage in scored.items():
            assert len(passage.logprobs) == len(texts[text]), (passage_path, text)
            assert passage.logprobs[0] is None
            assert all(value is not None and value <= 0 for value in passage.logprobs[1:])
            assert 0 < passage.floor_rms <= passage.floor_max


def test_scores_of_another_state_of_a_canary_are_not_used(tmp_path: Path) -> None:
    recipe = next(recipe for recipe in _RECIPES if recipe.source.canary == "dense")
    model = LocalModel(recipe.name, None)
    retrained = replace(zoo.load("dense"), sha256={zoo.PACKED_WEIGHTS: "0" * 64})
    assert key_of(recipe, model) != key_of(recipe, replace(model, canary=retrained))
    assert known_good_for(recipe, replace(model, canary=retrained), tmp_path) is None


def test_every_shipped_file_is_one_of_a_canary() -> None:
    assert {path.stem for path in SHIPPED.glob("*.json")} == {f"canary-{name}" for name in zoo.MANIFEST_SHA256}
