from __future__ import annotations

from pathlib import Path

import pytest

from suites.errors import SuiteError
from suites.recipes import all_recipes, recipe_for
from suites.suite_files import suite_for

GOOD = """name = "mine"
recipes = ["canary-dense"]

[[workloads]]
name = "a"
prompt_tokens = 16
completion_tokens = 32
concurrency = 1
repeats = 5

[[workloads]]
name = "b"
prompt_tokens = 16
completion_tokens = 32
concurrency = 1
repeats = 5
"""


def _written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_users_suite_is_read_from_any_path(tmp_path: Path) -> None:
    assert [w.name for w in suite_for(_written(tmp_path, GOOD)).workloads] == ["a", "b"]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("concurrency = 1\nrepeats = 5\n\n[[", "concurrency = 0\nrepeats = 5\n\n[[", 4, "concurrency is 0, must be at least 1"),
        ('name = "b"', 'name = "B b"', 11, "use 1-40 of a-z"),
        ("concurrency = 1", "concurency = 1", 8, "concurency"),
        ('recipes = ["canary-dense"]', "recipes = []", 2, "at least 1 item"),
        ('name = "mine"', 'name = "mine"\nbots = 3', 2, "Did you mean 'boots'?"),
        ('name = "mine"', "name = ", 1, "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_expectation(tmp_path: Path, old: str, new: str, line: int, words: str) -> None:
    path = _written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(SuiteError) as caught:
        suite_for(path)
    assert f"{path}:{line}" in str(caught.value)
    assert words in str(caught.value)


def test_an_unknown_suite_or_model_names_the_nearest() -> None:
    with pytest.raises(SuiteError, match="Known: smoke"):
        suite_for("smok")
    with pytest.raises(SuiteError, match="canary-dense"):
        recipe_for("canary-dens")


def test_a_model_path_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"config\.json"):
        recipe_for(str(tmp_path / "missing"))


def test_every_shipped_recipe_and_suite_is_valid_and_suites_name_known_recipes() -> None:
    recipes = all_recipes()
    assert set(suite_for("smoke").recipes) <= set(recipes)
    assert len({r.recipe_id for r in recipes.values()}) == len(recipes)
