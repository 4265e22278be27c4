from __future__ import annotations

from collections.abc import Sequence

from results.verdict.cell import judge_cell
from results.verdict.facts import BootFact
from results.verdict.findings import OUTCOME, Finding, Ignore, Stage, findings_of
from results.verdict.words import Verdict
from results.vocabulary import Outcome
from tests.results.verdict.boots import DECODE, SERIES, STATE, Node, history, scatter
from tests.results.verdict.test_cell import OTHER_DRIVER, confirmed_change


def found(boots: Sequence[BootFact], *ignores: Ignore) -> tuple[Finding, ...]:
    return findings_of(judge_cell(history(boots)), ignores)


def test_a_failure_goes_from_detected_to_confirmed_to_fixed_and_stays_in_the_record() -> None:
    node = Node()
    boots = [node.boot("0.30.0"), node.boot("0.31.0", Outcome.CRASH)]
    (detected,) = found(boots)
    assert (detected.stage, detected.kind, detected.subject, detected.after, detected.release) == (
        Stage.DETECTED,
        Verdict.BROKE,
        OUTCOME,
        "0.30.0",
        "0.31.0",
    )
    boots.append(node.boot("0.31.0", Outcome.CRASH))
    (confirmed,) = found(boots)
    assert confirmed.stage is Stage.CONFIRMED
    boots += [node.boot("0.32.0"), node.boot("0.32.0"), node.boot("0.33.0")]
    (fixed,) = found(boots)
    assert (fixed.stage, fixed.fixed_in) == (Stage.FIXED, "0.32.0")
    assert detected.finding_id == confirmed.finding_id == fixed.finding_id


def test_one_passing_boot_does_not_fix() -> None:
    node = Node()
    boots = [node.boot("0.30.0"), *(node.boot("0.31.0", Outcome.CRASH) for _ in range(2)), node.boot("0.32.0")]
    assert found(boots)[0].stage is Stage.CONFIRMED


def test_two_breaks_are_two_findings() -> None:
    node = Node()
    boots = [node.boot("0.1.0")]
    for number in (2, 4):
        boots += [node.boot(f"0.{number}.0", Outcome.HANG) for _ in range(2)]
        boots += [node.boot(f"0.{number + 1}.0") for _ in range(2)]
    assert [(one.release, one.fixed_in) for one in found(boots)] == [("0.2.0", "0.3.0"), ("0.4.0", "0.5.0")]


def test_a_failure_that_came_with_another_driver_stays_detected() -> None:
    node = Node()
    boots = [node.boot("0.30.0", state=STATE), *(node.boot(r, Outcome.CRASH, state=OTHER_DRIVER) for r in ("0.31.0", "0.31.0", "0.32.0"))]
    assert [one.stage for one in found(boots)] == [Stage.DETECTED]


def test_the_first_release_ever_tried_is_no_finding() -> None:
    node = Node()
    assert found([node.boot("0.30.0", Outcome.CRASH), node.boot("0.30.0", Outcome.CRASH)]) == ()


def test_a_slowdown_goes_from_detected_to_confirmed_to_fixed() -> None:
    node = Node()
    boots = node.speeds("0.30.0", scatter(50, 3, 1), session="a")
    boots += node.speeds("0.31.0", scatter(45, 3, 2), session="b")
    (detected,) = found(boots)
    assert (detected.stage, detected.subject, detected.kind) == (Stage.DETECTED, DECODE, Verdict.SLOWER)
    boots += confirmed_change(node, "0.30.0", "0.31.0", 50, 45, 10)
    (confirmed,) = found(boots)
    assert (confirmed.stage, confirmed.finding_id) == (Stage.CONFIRMED, detected.finding_id)
    boots += confirmed_change(node, "0.31.0", "0.32.0", 45, 50, 20)
    (fixed,) = found(boots)
    assert (fixed.stage, fixed.fixed_in) == (Stage.FIXED, "0.32.0")


def test_half_a_recovery_does_not_fix_a_slowdown() -> None:
    node = Node()
    boots = node.speeds("0.30.0", scatter(50, 3, 1), session="a")
    boots += confirmed_change(node, "0.30.0", "0.31.0", 50, 42, 10)
    boots += confirmed_change(node, "0.31.0", "0.32.0", 42, 46, 20)
    assert [one.stage for one in found(boots)] == [Stage.CONFIRMED]


def test_a_speedup_or_an_unchanged_release_is_no_finding() -> None:
    node = Node()
    boots = node.speeds("0.30.0", scatter(50, 3, 1), session="a") + confirmed_change(node, "0.30.0", "0.31.0", 50, 55, 10)
    assert found(boots) == ()


def ignore(release: str, after: str | None, kind: Verdict = Verdict.BROKE) -> Ignore:
    return Ignore(SERIES, OUTCOME, kind, after, release, "known, waits for the next driver")


def test_a_note_survives_the_narrowing_of_its_range() -> None:
    node = Node()
    boots = [node.boot("0.30.0"), *(node.boot("0.32.0", Outcome.CRASH) for _ in range(2))]
    note = ignore("0.32.0", "0.30.0")
    (wide,) = found(boots, note)
    assert (wide.stage, wide.note) == (Stage.IGNORED, "known, waits for the next driver")
    boots += [node.boot("0.31.0", Outcome.CRASH) for _ in range(2)]
    (narrow,) = found(boots, note)
    assert (narrow.release, narrow.stage) == ("0.31.0", Stage.IGNORED)


def test_a_note_covers_neither_another_kind_nor_a_later_break() -> None:
    node = Node()
    boots = [node.boot("0.30.0"), *(node.boot("0.32.0", Outcome.CRASH) for _ in range(2))]
    assert found(boots, ignore("0.32.0", "0.30.0", Verdict.SLOWER))[0].stage is Stage.CONFIRMED
    assert found(boots, ignore("0.30.0", None))[0].stage is Stage.CONFIRMED


def test_a_fixed_finding_keeps_its_note_and_says_fixed() -> None:
    node = Node()
    boots = [node.boot("0.30.0"), *(node.boot("0.31.0", Outcome.CRASH) for _ in range(2)), node.boot("0.32.0"), node.boot("0.32.0")]
    (fixed,) = found(boots, ignore("0.31.0", "0.30.0"))
    assert (fixed.stage, fixed.note is not None) == (Stage.FIXED, True)


def test_findings_of_different_cells_or_releases_have_different_ids() -> None:
    node = Node()
    boots = [node.boot("0.1.0"), *(node.boot("0.2.0", Outcome.CRASH) for _ in range(2)), *(node.boot("0.3.0") for _ in range(2))]
    boots += [node.boot("0.4.0", Outcome.CRASH)]
    ids = [one.finding_id for one in found(boots)]
    assert len(set(ids)) == 2
    assert all(len(one) == 12 for one in ids)


def test_no_direction_is_told_where_medians_and_most_pairs_of_boots_disagree() -> None:
    node = Node()
    boots = [*node.speeds("0.30.0", (100, 100, 130), session="a"), *node.speeds("0.31.0", (104, 90, 110), session="b")]
    number = judge_cell(history(boots)).releases[1].numbers[DECODE]
    assert (number.verdict, number.moved, number.effect, number.interval) == (Verdict.INCONCLUSIVE, True, None, None)
    assert "its medians moved +4.0%, most of its boots the other way (-10.0%); not yet confirmed" in number.reason
    assert found(boots) == ()
