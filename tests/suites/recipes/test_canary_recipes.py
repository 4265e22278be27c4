"""Every canary and every weight format of it is a recipe of its own, without a file of its own."""

from __future__ import annotations

import pytest

from suites.canaries import zoo
from suites.errors import SuiteError
from suites.recipes import all_recipes, recipe_for


@pytest.mark.parametrize("name", zoo.MANIFEST_SHA256)
def test_each_format_of_a_canary_is_a_recipe(name: str) -> None:
    recipes = {r.weight_format: r for r in all_recipes().values() if r.source.canary == name}
    assert tuple(recipes) == zoo.weight_formats(name)
    assert recipes.pop("bf16").name == f"canary-{name}"
    assert {weight_format: recipe.name for weight_format, recipe in recipes.items()} == {
        weight_format: f"canary-{name}-{weight_format}" for weight_format in zoo.weight_formats(name)[1:]
    }


def test_formats_have_histories_of_their_own() -> None:
    recipes = [r for r in all_recipes().values() if r.kind == "canary"]
    assert len({recipe.recipe_id for recipe in recipes}) == len(recipes)


def test_listing_formats_does_not_change_what_the_base_recipe_is() -> None:
    """Kept results of the dense canary belong to this id."""
    assert recipe_for("canary-dense").recipe_id == recipe_for("canary-dense").model_copy(update={"formats": ()}).recipe_id


def test_the_size_of_bf16_is_not_claimed_for_another_format() -> None:
    assert recipe_for("canary-moe").weights is not None
    assert recipe_for("canary-moe-int4").weights is None


def test_a_format_that_a_canary_lacks_is_refused_with_what_exists() -> None:
    with pytest.raises(SuiteError, match="canary-gpt-oss-mxfp4"):
        recipe_for("canary-gpt-oss-mxfp5")


@pytest.mark.parametrize("name", zoo.MANIFEST_SHA256)
def test_a_canary_with_other_weights_has_another_history(name: str) -> None:
    """The weights of two canaries were changed once and their recipes not: margins moved, and an engine would have been blamed."""
    assert {r.revision for r in all_recipes().values() if r.source.canary == name} == {zoo.served_revision(name)}
