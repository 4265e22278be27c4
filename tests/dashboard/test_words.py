"""What an outcome looks like."""

from __future__ import annotations

from itertools import combinations

from dashboard.words import STATES, VERDICTS


def test_without_colour_a_sign_still_tells_what_works_from_what_does_not() -> None:
    signs = {kind: {look.sign for look in STATES.values() if look.kind == kind} for kind in ("pass", "fail", "flaky", "fallback", "notrun")}
    for one, other in combinations(signs.values(), 2):
        assert not one & other


def test_no_two_verdicts_that_people_confuse_share_a_sign() -> None:
    assert len({VERDICTS[word].sign for word in ("slower", "faster", "fixed", "gone", "new", "unchanged", "inconclusive", "broke")}) == 8
