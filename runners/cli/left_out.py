"""What was left out of judging, in words."""

from __future__ import annotations

from collections.abc import Mapping

from results.verdict.facts import Exclusion

_WORDS: Mapping[str, str] = {
    Exclusion.NOT_A_RELEASE: "boots of builds that are no release",
    Exclusion.DUPLICATE_BOOT: "boots counted once",
    Exclusion.CLOCK_WENT_BACK: "boots whose clock went back, without their numbers",
    Exclusion.NOT_FINITE: "numbers that are not finite",
    Exclusion.NOT_POSITIVE: "numbers that are not positive",
    Exclusion.NUMBER_OF_A_FAILED_BOOT: "numbers of failed boots",
    Exclusion.NODE_NOT_FIT: "numbers measured while the node's probe was off",
    Exclusion.VOID_SESSION: "boots of void sessions",
}


def unusable_in_words(lines: int, not_finite: int) -> str:
    """What of the files could not be used, such as `2 lines cut off or of another boot, 1 numbers that are not finite (null)`."""
    return f"{lines:,} lines cut off or of another boot, {not_finite:,} numbers that are not finite (null)"


def left_out_in_words(counts: Mapping[str, int]) -> list[str]:
    """One phrase for each reason, such as `2 numbers of failed boots`."""
    return [f"{number:,} {_WORDS.get(reason, reason)}" for reason, number in sorted(counts.items())]
