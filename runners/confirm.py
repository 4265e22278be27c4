"""Which boots would decide a verdict that is still open.

Trap: a suspicion is "confirmed" by the boots that raised it, by one release after the other on a node that warms up, or by re-running
everything every night. Rule: only a failure seen once, or a number that moved by its floor or more, asks for boots; a number asks for both
releases in turns, the older one first; a tail (p99), which moves between any two boots, asks for none and is judged by the boots that the
others ask for; and there is a most number of boots, so that an undecidable cell ends as undecided.

Everything here is pure; `runners/confirm_boots.py` turns it into boots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest

from results.verdict.cell import CellVerdict, ReleaseVerdict
from results.verdict.metrics import metric_of
from results.verdict.numbers import MIN_BOOTS, NumberVerdict
from results.verdict.words import Verdict
from results.vocabulary import Outcome

MOST_BOOTS = 8
"""Confirming boots of one release of one cell in one visit."""
_TAILS = frozenset({"itl_p99_s"})
_TINY = 1e-9


@dataclass(frozen=True)
class Turns:
    """Boots to make next: `releases` in this order. `why` is the sentence that asks for them."""

    releases: tuple[str, ...]
    why: str


def turns_to_confirm(cell: CellVerdict, release: str, made: Mapping[str, int]) -> Turns | None:
    """The boots that would bring the verdict on `release` further; None when it is decided or no affordable number of boots decides it.

    `made` counts the confirming boots of each release that this visit has made already.
    """
    judged = next((one for one in cell.releases if one.release == release), None)
    if judged is None or judged.verdict is None:
        return None
    turns = _once_more(judged) if judged.outcome.boots_needed else _both_in_turns(judged)
    return turns if turns is not None and _affordable(turns, made) else None


def _once_more(judged: ReleaseVerdict) -> Turns | None:
    """One more boot: of a failure seen once, or of a repair not seen often enough. It is judged again after each."""
    works = judged.outcome.state is Outcome.PASS
    return Turns((judged.release,), f"{'repair' if works else 'failure'} of {judged.release} seen once more? {judged.outcome.reason}")


def _both_in_turns(judged: ReleaseVerdict) -> Turns | None:
    """Both releases of the number that needs most boots (a re-run answers for every number of the cell)."""
    needs = [(sum(missing), name, missing) for name, number in judged.numbers.items() if sum(missing := _missing(name, number))]
    if not needs:
        return None
    _, name, (old, new) = max(needs)
    number = judged.numbers[name]
    assert number.baseline is not None, "a number that moved has moved against something"
    pairs = zip_longest([number.baseline] * old, [judged.release] * new)
    return Turns(tuple(release for release in chain.from_iterable(pairs) if release is not None), f"{name}: {number.reason}")


def _missing(name: str, number: NumberVerdict) -> tuple[int, int]:
    """Boots of (baseline, candidate) that the verdict on one number still needs; (0, 0) when it is decided or did not move."""
    if number.verdict is not Verdict.INCONCLUSIVE or number.boots_to_decide is None or number.baseline is None or number.effect is None:
        return 0, 0
    if metric_of(name).name in _TAILS:
        return 0, 0
    if number.moved:
        more = number.boots_to_decide - max(number.n_baseline, number.n_candidate)
        return max(0, more), max(0, more)
    if abs(math.log1p(number.effect)) < metric_of(name).log_floor - _TINY:
        return 0, 0
    return max(0, MIN_BOOTS - number.n_baseline), max(0, MIN_BOOTS - number.n_candidate)


def _affordable(turns: Turns, made: Mapping[str, int]) -> bool:
    return all(made.get(release, 0) + turns.releases.count(release) <= MOST_BOOTS for release in set(turns.releases))
