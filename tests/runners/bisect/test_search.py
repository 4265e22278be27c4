from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.bisect.search import Answer, EndsDisagreeError, next_probe, range_of

START, END, NEVER = Answer.LIKE_START, Answer.LIKE_END, Answer.CANNOT_TELL


def _names(count: int) -> list[str]:
    return [f"0.{number}.0" for number in range(count)]


def _search(truth: dict[str, Answer], known: dict[str, Answer] | None = None) -> tuple[dict[str, Answer], list[str]]:
    """Run a search against a planted truth: all answers at its end, and the releases tested in order."""
    answers, tested = dict(known or {}), []
    releases = list(truth)
    while (probe := next_probe(releases, answers)) is not None:
        tested.append(probe)
        assert len(tested) <= len(releases), "the search does not end"
        answers[probe] = truth[probe]
    return answers, tested


@st.composite
def _planted(draw: st.DrawFn) -> tuple[dict[str, Answer], int]:
    """A history with one transition, some releases that cannot run, and where the transition is."""
    count = draw(st.integers(2, 60))
    first_bad = draw(st.integers(1, count - 1))
    untestable = draw(st.sets(st.integers(1, count - 2), max_size=count)) if count > 2 else set()
    kinds = [NEVER if i in untestable else START if i < first_bad else END for i in range(count)]
    return dict(zip(_names(count), kinds, strict=True)), first_bad


@given(_planted())
def test_any_planted_transition_is_found_within_the_releases_that_can_run(planted: tuple[dict[str, Answer], int]) -> None:
    truth, first_bad = planted
    answers, tested = _search(truth)
    found = range_of(list(truth), answers)
    names = list(truth)
    good = max(i for i in range(first_bad) if truth[names[i]] is START)
    bad = min(i for i in range(first_bad, len(names)) if truth[names[i]] is END)
    assert (found.last, found.first) == (names[good], names[bad])
    assert all(truth[release] is NEVER for release in found.between)
    assert len(set(tested)) == len(tested), "a release was tested twice"


@given(_planted())
def test_without_untestable_releases_it_takes_log2_steps(planted: tuple[dict[str, Answer], int]) -> None:
    truth, _ = planted
    truth = {
        release: START if kind is NEVER and i < planted[1] else END if kind is NEVER else kind
        for i, (release, kind) in enumerate(truth.items())
    }
    _, tested = _search(truth)
    assert len(tested) <= 2 + math.ceil(math.log2(len(truth)))


@given(_planted(), st.data())
def test_a_search_stopped_anywhere_goes_on_without_repeating_a_test(planted: tuple[dict[str, Answer], int], data: st.DataObject) -> None:
    truth, _ = planted
    whole, tested = _search(truth)
    done = data.draw(st.integers(0, len(tested)))
    _, again = _search(truth, {release: truth[release] for release in tested[:done]})
    assert again == tested[done:]
    assert set(tested) == set(whole)


@given(st.lists(st.sampled_from([START, END, NEVER, None]), min_size=0, max_size=40))
def test_contradicting_answers_of_the_past_end_in_a_true_transition(past: list[Answer | None]) -> None:
    """Whatever a store says, the range ends at two neighbours (untestable ones aside) of which the first is good and the second bad."""
    kinds = [START, *(START if kind is None else kind for kind in past), END]
    truth = dict(zip(_names(len(kinds)), kinds, strict=True))
    known = {release: kind for release, kind in zip(list(truth)[1:-1], past, strict=True) if kind is not None}
    answers, _ = _search(truth, known)
    found = range_of(list(truth), answers)
    assert (truth[found.last], truth[found.first]) == (START, END)
    assert all(truth[release] is NEVER for release in found.between)


def test_an_end_that_is_not_what_it_was_said_to_be_ends_the_search() -> None:
    with pytest.raises(EndsDisagreeError) as wrong:
        next_probe(_names(5), {"0.0.0": START, "0.4.0": START})
    assert (wrong.value.release, wrong.value.answer) == ("0.4.0", START)
    with pytest.raises(EndsDisagreeError):
        next_probe(_names(5), {"0.0.0": NEVER})


def test_the_ends_are_tested_first_then_the_middle() -> None:
    assert next_probe(_names(9), {}) == "0.0.0"
    assert next_probe(_names(9), {"0.0.0": START}) == "0.8.0"
    assert next_probe(_names(9), {"0.0.0": START, "0.8.0": END}) == "0.4.0"
    assert next_probe(_names(9), {"0.0.0": START, "0.8.0": END, "0.4.0": NEVER}) == "0.3.0"


@pytest.mark.parametrize("releases", [[], ["1"], ["1", "2", "1"]])
def test_a_list_that_cannot_be_searched_is_refused(releases: list[str]) -> None:
    with pytest.raises(ValueError, match="release"):
        next_probe(releases, {})
