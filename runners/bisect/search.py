"""The search: which release to test next, and what is known when there is none left.

Trap: one release that cannot run turns a bisect into a linear search or an endless loop, and old answers in the store contradict the
present ones. Rule: the range is always (last release that is like the start, first release after it that is like the end]; the next probe
is the untested release nearest to its middle; every probe either narrows the range or is stepped around for good.

Releases are given in the order of the search, from the start (known to be of one kind) to the end (known to be of the other); looking for
a repair instead of a fault only turns the list around. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Answer(StrEnum):
    """What testing one release told. A release without an answer is not in the mapping."""

    LIKE_START = "like_start"
    LIKE_END = "like_end"
    CANNOT_TELL = "cannot_tell"
    """It cannot be installed, is not supported, or has no number to compare: no test will ever tell."""


class EndsDisagreeError(ValueError):
    """An end of the range is not of the kind that it was said to be. `release` is that end, `answer` what it is instead."""

    def __init__(self, release: str, answer: Answer) -> None:
        super().__init__(f"{release} is {answer}")
        self.release = release
        self.answer = answer


@dataclass(frozen=True)
class Range:
    """What is known so far: it changed after `last` (still like the start) and no later than in `first` (already like the end).

    `between` are the releases in between, in order: untested ones and those that cannot tell.
    """

    last: str
    first: str
    between: tuple[str, ...]
    contradictions: tuple[str, ...]
    """Releases before `last` that were like the end: it had changed before and changed back."""


def next_probe(releases: Sequence[str], answers: Mapping[str, Answer]) -> str | None:
    """The release to test next; None when nothing is left to test.

    The two ends come first, because the rest is worthless if they are not what they were said to be. Raises EndsDisagreeError, and
    ValueError for fewer than two releases or one that is listed twice.
    """
    _check(releases)
    for end, wanted in ((releases[0], Answer.LIKE_START), (releases[-1], Answer.LIKE_END)):
        if end not in answers:
            return end
        if answers[end] is not wanted:
            raise EndsDisagreeError(end, answers[end])
    place = {release: index for index, release in enumerate(releases)}
    known = range_of(releases, answers)
    untested = [release for release in known.between if release not in answers]
    middle = (place[known.last] + place[known.first]) / 2
    return min(untested, key=lambda release: (abs(place[release] - middle), place[release]), default=None)


def range_of(releases: Sequence[str], answers: Mapping[str, Answer]) -> Range:
    """What the answers say so far; both ends count as what they were said to be."""
    _check(releases)
    like_start = [index for index, release in enumerate(releases) if answers.get(release) is Answer.LIKE_START]
    last = max((index for index in like_start if index < len(releases) - 1), default=0)
    after = range(last + 1, len(releases))
    first = next((index for index in after if answers.get(releases[index]) is Answer.LIKE_END), len(releases) - 1)
    return Range(
        last=releases[last],
        first=releases[first],
        between=tuple(releases[last + 1 : first]),
        contradictions=tuple(release for release in releases[:last] if answers.get(release) is Answer.LIKE_END),
    )


def _check(releases: Sequence[str]) -> None:
    if len(releases) < 2:
        raise ValueError("a search needs at least two releases")
    if len(set(releases)) != len(releases):
        raise ValueError("a release is listed twice")
