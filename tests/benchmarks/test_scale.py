"""The made-up history is one that the store accepts, and every question of pages and commands has an answer in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scale.fill import fill
from benchmarks.scale.ingest import batch_speed
from benchmarks.scale.plan import world_for
from benchmarks.scale.questions import all_questions
from results.maintenance import check
from results.store import Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("scale"), wait_s=30)
    fill(store, world_for(500, 5_000, seed=3), lambda text: None)
    return store


@pytest.mark.parametrize(("boots", "samples"), [(500, 5_000), (20_000, 400_000), (1_000_000, 20_000_000)])
def test_a_world_is_as_large_as_asked_for_and_not_much_larger(boots: int, samples: int) -> None:
    world = world_for(boots, samples, seed=1)
    assert boots <= world.boots <= 1.6 * boots
    assert world.boots * world.samples_per_boot >= 0.9 * samples


def test_what_is_derived_from_a_made_up_history_is_what_its_formulas_give(store: Store) -> None:
    assert check(store).problems == ()
    heads = {row["headline"] for row in store.query("SELECT DISTINCT headline FROM matrix")}
    assert {"broke", "fixed", "unchanged", "inconclusive"} <= heads


def test_the_same_seed_makes_the_same_history(store: Store, tmp_path: Path) -> None:
    other = Store(tmp_path, wait_s=30)
    fill(other, world_for(500, 5_000, seed=3), lambda text: None)
    for table in ("runs", "samples", "verdicts", "findings"):
        sql = f"SELECT * FROM {table} ORDER BY ALL LIMIT 500"
        assert store.query(sql) == other.query(sql)


def test_every_question_of_pages_and_commands_has_an_answer(store: Store) -> None:
    names = [name for name, question in all_questions(store) if question.frame(store) is not None]
    assert len(names) > 30
    assert {name.split(".")[0] for name in names} >= {"today_page", "matrix_page", "cell_page", "run_page", "cells"}


def test_the_speed_of_storing_counts_what_was_stored(tmp_path: Path) -> None:
    store = Store(tmp_path, wait_s=30)
    speed = batch_speed(store, 20, 10, cells=4)
    assert (speed.boots, speed.samples) == (20, 200)
    assert store.query("SELECT count(*) AS n FROM samples") == [{"n": 200}]
