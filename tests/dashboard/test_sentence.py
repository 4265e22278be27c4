"""The sentence of the day, from a store to the words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dashboard.sentence import sentences
from results.queries import today_page
from results.vocabulary import Outcome
from tests.dashboard.stores import Planned, made

PASS, CRASH, WRONG, HANG = Outcome.PASS, Outcome.CRASH, Outcome.WRONG, Outcome.HANG


def plan(release: str, outcome: Outcome, cell: str = "m/b", *, boots: int = 2, decode: float = 50.0) -> list[Planned]:
    recipe, backend = cell.split("/")
    one = Planned(version=f"0.{release}.0", outcome=outcome, recipe=recipe, backend=backend, decode=decode)
    return [dataclasses.replace(one) for _ in range(boots)]


def told(root: Path, *plans: list[Planned]) -> str:
    store = made(root, [one for own in plans for one in own])
    (sentence,) = sentences(today_page.good_releases().rows(store), today_page.news().rows(store))
    return sentence.text


def test_a_release_that_passes_everywhere_is_the_newest_good_one(tmp_path: Path) -> None:
    assert told(tmp_path, plan("31", PASS), plan("32", PASS)) == "Newest good: vLLM 0.32.0 / b."


def test_a_release_that_breaks_something_is_not_good_and_says_what(tmp_path: Path) -> None:
    text = told(tmp_path, plan("31", PASS), plan("31", CRASH, "moe/b"), plan("32", WRONG), plan("32", PASS, "moe/b"))
    assert text == "Newest good: vLLM 0.31.0 / b. 0.32.0 breaks m on b: wrong; fixes moe on b."


def test_dummy_weights_are_never_taken_for_the_model_they_imitate(tmp_path: Path) -> None:
    text = told(tmp_path, plan("31", PASS, "shape-llama/b"), plan("32", CRASH, "shape-llama/b"))
    assert "0.32.0 breaks shape-llama (dummy weights) on b: crash" in text


def test_a_failure_seen_once_is_said_to_be_unconfirmed(tmp_path: Path) -> None:
    assert "0.32.0 breaks m on b: hang, not confirmed yet." in told(tmp_path, plan("31", PASS), plan("32", HANG, boots=1))


def test_a_release_stays_bad_while_what_an_older_one_broke_is_not_fixed(tmp_path: Path) -> None:
    text = told(tmp_path, plan("31", PASS), plan("32", CRASH), plan("33", CRASH), plan("33", PASS, "other/b"))
    assert text == "Newest good: vLLM 0.31.0 / b. 0.33.0 still fails m on b: crash. 0.32.0 breaks m on b: crash."


def test_a_cell_that_never_passed_does_not_spoil_a_release(tmp_path: Path) -> None:
    text = told(tmp_path, plan("31", PASS), plan("32", PASS), plan("32", WRONG, "odd/b"))
    assert text == "Newest good: vLLM 0.32.0 / b. Never passed: odd on b (wrong)."


def test_a_cell_not_run_on_the_newest_release_is_no_failure(tmp_path: Path) -> None:
    text = told(tmp_path, plan("31", PASS), plan("31", PASS, "x/b"), plan("32", PASS), plan("32", Outcome.INFRASTRUCTURE, "x/b"))
    assert text == "Newest good: vLLM 0.32.0 / b."


def test_an_unsupported_backend_is_no_failure(tmp_path: Path) -> None:
    text = told(tmp_path, plan("31", PASS, "m/old"), plan("32", Outcome.UNSUPPORTED, "m/old"), plan("32", PASS))
    assert text == "Newest good: vLLM 0.32.0 / b. 0.32.0 drops m on old."


def test_without_a_good_release_it_says_how_much_passes(tmp_path: Path) -> None:
    text = told(tmp_path, plan("31", CRASH), plan("32", CRASH))
    assert text.startswith("No release of vLLM passes everywhere an earlier one passed; 0.32.0 passes 0 of 1 cells.")


def test_the_backend_that_passes_for_most_models_is_named(tmp_path: Path) -> None:
    text = told(tmp_path, plan("32", PASS, "m/few"), plan("32", PASS, "m/many"), plan("32", PASS, "n/many"))
    assert text == "Newest good: vLLM 0.32.0 / many (passes 2 of 2 models)."


def test_many_broken_cells_are_counted_not_listed(tmp_path: Path) -> None:
    plans = [plan(release, outcome, f"m{index}/b", boots=1) for index in range(9) for release, outcome in (("31", PASS), ("32", HANG))]
    assert "m2 on b: hang, not confirmed yet and 6 more." in told(tmp_path, *plans)


@pytest.mark.parametrize("outcome", [Outcome.INFRASTRUCTURE, Outcome.INTERRUPTED, None])
def test_nothing_is_said_without_evidence(tmp_path: Path, outcome: Outcome | None) -> None:
    store = made(tmp_path, [Planned(outcome=outcome)])
    assert sentences(today_page.good_releases().rows(store), today_page.news().rows(store)) == []
