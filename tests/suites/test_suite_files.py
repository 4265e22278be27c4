from __future__ import annotations

from pathlib import Path

import pytest

from suites.backends import backend_for
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
        (
            "concurrency = 1\nrepeats = 5\n\n[[",
            "concurrency = 0\nrepeats = 5\n\n[[",
            8,
            "workloads.0.concurrency: Input should be greater than or equal to 1",
        ),
        ('name = "b"', 'name = "B b"', 12, "use 1-40 of a-z"),
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


MANY_LINES = """name = "mine"
recipes = [
    "canary-dense",  # [a] comment, with { brackets
    "gemma3-270m",
]
workloads = [
    { name = "a", prompt_tokens = 16, completion_tokens = 32, concurrency = 1, repeats = 5 },
    { name = "b", prompt_tokens = 16, completion_tokens = 32, concurrency = 1, repeats = 5 },
]
context = [1024,
    4096]
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('name = "b"', 'name = "b", bots = 2', 8),
        ('name = "b", prompt_tokens = 16', 'name = "b", prompt_tokens = 0', 8),
        ("4096", "12", 11),
        ("[1024,", "[12,", 10),
        ('    "gemma3-270m"', "    3", 4),
        ('"canary-dense"', "3", 3),
    ],
)
def test_a_mistake_in_an_array_of_many_lines_is_named_with_the_items_line(tmp_path: Path, old: str, new: str, line: int) -> None:
    path = _written(tmp_path, MANY_LINES.replace(old, new, 1))
    with pytest.raises(SuiteError) as caught:
        suite_for(path)
    assert f"{path}:{line}" in str(caught.value)


def test_a_bracket_in_a_string_ends_no_array(tmp_path: Path) -> None:
    path = _written(tmp_path, 'name = "m"\nrecipes = ["a]",\n\n  3]\n')
    with pytest.raises(SuiteError, match=r"mine\.toml:4"):
        suite_for(path)


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


@pytest.mark.parametrize("name", ["smoke", "nightly", "seeds"])
def test_shipped_suites_name_recipes_and_backends_that_exist(name: str) -> None:
    suite = suite_for(name)
    assert [recipe_for(recipe).name for recipe in suite.recipes] == list(suite.recipes)
    assert [backend_for(backend).name for backend in (*suite.backends.cpu, *suite.backends.cuda)]
    assert any(recipe_for(recipe).launch_bound for recipe in suite.recipes), "a canary finds a broken path in a minute"


def test_shipped_nights_have_a_pinned_anchor_and_enough_boots() -> None:
    for name in ("nightly", "seeds"):
        suite = suite_for(name)
        assert suite.boots >= 3
        assert suite.nightly.anchor == "vllm==0.31.0"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("context = [100]", "greater than or equal to 256"),
        ("context = 4096", "tuple"),
        ("[nightly]\nanchor = 'vllm'", "no pinned release"),
        ("[nightly]\nanchor = 'vllm==0.31.0@docker'", "no pinned release"),
        ("[nightly]\nengines = []", "at least 1"),
        ("[nightly]\nreleses = 3", "Did you mean 'releases'"),
        ("[nightly]\nself_check_days = 0", "greater than or equal to 1"),
        ("[nightly]\nenvironments_gb = 0", "greater than 0"),
    ],
)
def test_wrong_field_of_a_night_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    text = 'name = "mine"\nrecipes = ["canary-dense"]\n' + line + "\n"
    with pytest.raises(SuiteError) as caught:
        suite_for(_written(tmp_path, text))
    assert words in str(caught.value)
    assert caught.value.where.endswith(f":{text.count(chr(10))}")


def test_suite_file_that_is_not_there_names_the_shipped_ones() -> None:
    with pytest.raises(SuiteError) as caught:
        suite_for("/nonexistent/night.toml")
    assert "nightly" in caught.value.todo
