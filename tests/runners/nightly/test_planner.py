from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.nightly.planner import NOTHING_YET, Candidate, LastBoot, Value, next_choice, whole_night, why_not_now

CANARY_S, MODEL_S = 60.0, 1_800.0


def canary(name: str, path: str, **more: object) -> Candidate:
    return Candidate(name, path, True, 3, **{"seconds": CANARY_S, **more})  # type: ignore[arg-type]


def model(name: str, path: str, **more: object) -> Candidate:
    return Candidate(name, path, False, 3, **{"seconds": MODEL_S, **more})  # type: ignore[arg-type]


NEW_CANARY, NEW_MODEL = canary("new canary", "new", is_new=True), model("new model", "new", is_new=True)
OLD_CANARY, OLD_MODEL = canary("old canary", "old"), model("old model", "old")
ANCHOR = canary("anchor", "anchor", is_anchor=True)
BROKEN = canary("broken", "b", family_broken=True)
ALL = [OLD_MODEL, OLD_CANARY, ANCHOR, BROKEN, NEW_MODEL, NEW_CANARY]


def names(choices: object) -> list[str]:
    return [choice.candidate.name for choice in choices]  # type: ignore[attr-defined]


def test_value_decides_first_new_release_then_last_broken_then_anchor_then_coverage() -> None:
    values = [choice.value for choice in whole_night(ALL)]
    assert values == sorted(values)
    assert Counter(values) == {Value.NEW_RELEASE: 6, Value.LAST_BROKEN: 3, Value.ANCHOR: 3, Value.COVERAGE: 6}


def test_canaries_of_all_paths_run_once_before_the_first_model() -> None:
    assert names(whole_night(ALL))[:2] == ["new canary", "new model"]
    paths = [cell for path in "abc" for cell in (model(f"model {path}", path), canary(f"canary {path}", path))]
    order = names(whole_night(paths))
    assert order[:4] == ["canary a", "canary b", "canary c", "model a"]
    hot = [name.startswith("model") for name in order]
    last_cool = max(place for place, is_hot in enumerate(hot) if not is_hot)
    assert not any(one and two for one, two in pairwise(hot[: last_cool + 1])), "the node cools between two models while a canary is left"


def test_shapes_run_once_after_the_canaries_and_before_the_first_model() -> None:
    def shape(name: str, path: str) -> Candidate:
        return replace(model(name, path), is_shape=True)

    paths = [cell for path in "ab" for cell in (model(f"model {path}", path), shape(f"shape {path}", path), canary(f"canary {path}", path))]
    order = names(whole_night(paths))
    first = {kind: [order.index(f"{kind} {path}") for path in "ab"] for kind in ("canary", "shape", "model")}
    assert max(first["canary"]) < min(first["shape"]) and max(first["shape"]) < min(first["model"])
    broken = [replace(cell, made=2, failed=2) if cell.name == "canary a" else cell for cell in paths]
    assert not any(name.endswith(" a") for name in names(whole_night(broken))), "a broken path is tried with neither shape nor model"


def test_every_cell_gets_its_boots_and_no_more() -> None:
    assert Counter(names(whole_night(ALL))) == {c.name: 3 for c in ALL}


def test_boots_of_one_cell_are_not_made_in_a_row_while_another_is_worth_as_much() -> None:
    order = names(whole_night([canary(f"c{n}", f"p{n}") for n in range(4)]))
    assert all(one != two for one, two in pairwise(order))


def test_every_other_round_runs_the_other_way_so_that_drift_falls_on_both_sides() -> None:
    order = names(whole_night([canary(f"c{n}", f"p{n}") for n in range(4)]))
    assert order == ["c0", "c1", "c2", "c3", "c2", "c3", "c1", "c0", "c1", "c0", "c2", "c3"]


def test_a_cool_boot_comes_between_two_hot_ones_of_the_same_round() -> None:
    cells = [replace(c, made=1) for c in (canary("c0", "p0"), canary("c1", "p1"), model("m1", "p1"), model("m0", "p0"))]
    choice = next_choice(cells, LastBoot("m1", hot=True))
    assert choice is not None and choice.candidate.is_canary
    hottest = next_choice(cells, NOTHING_YET)
    assert hottest is not None and hottest.candidate.name == "m0"


def test_models_of_a_path_whose_canary_fails_wait_for_another_night() -> None:
    failing = replace(NEW_CANARY, made=1, failed=1)
    assert "its canary new canary fails" in (why_not_now(NEW_MODEL, [failing, NEW_MODEL]) or "")
    assert names(whole_night([failing, NEW_MODEL])) == ["new canary"]
    flaky = replace(failing, made=2)
    assert why_not_now(NEW_MODEL, [flaky, NEW_MODEL]) is None


@pytest.mark.parametrize(
    ("cell", "needed"),
    [
        (OLD_CANARY, 3),
        (replace(OLD_CANARY, made=2), 1),
        (replace(OLD_CANARY, made=7), 0),
        (replace(OLD_CANARY, made=1, failed=1), 1),
        (replace(OLD_CANARY, made=2, failed=2), 0),
        (replace(OLD_CANARY, made=2, failed=1), 1),
        (replace(OLD_CANARY, made=1, unsupported=1), 0),
        (replace(OLD_CANARY, wanted=1, made=1, failed=1), 0),
    ],
)
def test_a_cell_that_only_fails_needs_two_boots_and_one_that_is_not_there_needs_one(cell: Candidate, needed: int) -> None:
    assert cell.needed == needed


def test_a_cell_that_ends_without_evidence_twice_is_left_alone() -> None:
    assert next_choice([replace(OLD_CANARY, faults=2)]) is None
    assert next_choice([replace(OLD_CANARY, faults=1)]) is not None


def test_what_does_not_fit_into_the_remaining_time_is_passed_over_for_what_does() -> None:
    cells = [NEW_MODEL, replace(NEW_CANARY, made=3), OLD_CANARY]
    choice = next_choice(cells, remaining_s=600.0)
    assert choice is not None and choice.candidate.name == "old canary"
    assert next_choice(cells, remaining_s=10.0) is None
    assert next_choice([replace(NEW_MODEL, seconds=None)], remaining_s=10.0) is not None, "what nobody knows is not refused"


@dataclass
class Night:
    """A node on a simulated clock: every boot takes its time, some end in a kill, and the store holds only finished ones."""

    cells: list[Candidate]
    now: float = 0.0
    made: list[str] = field(default_factory=list)

    def go_on(self, until: float, kill_after: int | None = None) -> None:
        """Boot until the budget's end or until killed in the middle of a boot."""
        last = NOTHING_YET
        while (choice := next_choice(self.cells, last, until - self.now)) is not None:
            cell = choice.candidate
            if kill_after is not None and kill_after == 0:
                self.now += (cell.seconds or 0.0) / 2
                return
            kill_after = None if kill_after is None else kill_after - 1
            self.now += cell.seconds or 0.0
            self.made.append(cell.name)
            self.cells = [replace(c, made=c.made + 1) if c.name == cell.name else c for c in self.cells]
            last = LastBoot(cell.name, not cell.is_canary)


def test_budget_is_never_passed_and_the_night_ends_at_a_cells_border() -> None:
    night = Night(ALL)
    night.go_on(until=4_000.0)
    assert 3_000.0 < night.now <= 4_000.0
    assert night.made[:2] == ["new canary", "new model"]


def test_a_night_killed_three_times_repeats_no_finished_boot_and_ends_complete() -> None:
    night = Night(ALL)
    for kill_after in (2, 5, 3):
        night.go_on(until=1e9, kill_after=kill_after)
    night.go_on(until=1e9)
    assert Counter(night.made) == {c.name: 3 for c in ALL}


CELLS = st.builds(
    Candidate,
    name=st.uuids().map(str),
    path=st.sampled_from("abc"),
    is_canary=st.booleans(),
    wanted=st.integers(1, 5),
    made=st.integers(0, 5),
    failed=st.just(0),
    is_new=st.booleans(),
    is_anchor=st.booleans(),
    family_broken=st.booleans(),
    seconds=st.none() | st.floats(1, 1e4),
)


@given(st.lists(CELLS, max_size=12), st.none() | st.floats(0, 1e5))
def test_a_night_ends_makes_only_needed_boots_and_keeps_its_budget(cells: list[Candidate], budget: float | None) -> None:
    choices = list(whole_night(cells, budget))
    made = Counter(choice.candidate.name for choice in choices)
    assert all(made[c.name] <= c.needed for c in cells)
    if budget is None:
        assert all(made[c.name] == c.needed for c in cells)
    else:
        assert sum(choice.candidate.seconds or 0.0 for choice in choices) <= budget + 1e-6
