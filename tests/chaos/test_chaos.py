"""A dozen schedules of faults through the whole pipeline; `python -m benchmarks.chaos` plays hundreds."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from results.vocabulary import Outcome
from tests.chaos.play import World, make_world, play
from tests.chaos.schedules import DECK, Schedule, schedule_of

QUICK = (
    *("ends_before_ready", "ready_then_dies", "dies_in_gate", "dies_while_timed", "http_500", "odd_log"),
    *("port_stolen", "clock_jump", "disk_full", "sigint", "sigkill", "twice"),
)
"""Kinds of which one is played here, the first of its kind."""


def _first_of_each() -> list[Schedule]:
    found: dict[str, Schedule] = {}
    for seed in range(len(DECK)):
        schedule = schedule_of(seed)
        found.setdefault(schedule.kind, schedule)
    return [found[kind] for kind in QUICK]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize("schedule", _first_of_each(), ids=lambda s: s.kind)
def test_after_a_fault_everything_is_in_order(schedule: Schedule, world: World, tmp_path: Path) -> None:
    if schedule.kind == "disk_full" and os.geteuid() != 0:
        pytest.skip("a file system of its own needs root")
    if schedule.kind == "clock_jump" and shutil.which("cc") is None:
        pytest.skip("a clock that jumps needs a C compiler")
    played = play(schedule, world, tmp_path / "game")
    assert played.violations == ()


def test_a_schedule_is_the_same_every_time_and_each_deck_holds_every_kind() -> None:
    decks = [Counter(schedule_of(deck * len(DECK) + place).kind for place in range(len(DECK))) for deck in range(4)]
    assert all(deck == decks[0] for deck in decks)
    assert schedule_of(17) == schedule_of(17)
    assert len({schedule_of(seed).engine for seed in range(200)}) > 60


def test_what_is_out_of_order_is_seen(world: World, tmp_path: Path) -> None:
    """The look itself can fail: a schedule that expects another outcome is a violation."""
    (crash,) = [s for s in _first_of_each() if s.kind == "ends_before_ready"]
    wrong = Schedule(crash.seed, "good", frozenset({Outcome.PASS}), crash.engine)
    played = play(wrong, world, tmp_path / "game")
    assert [v.partition(" (")[0] for v in played.violations] == [f"outcome {next(iter(crash.outcomes))}"]
