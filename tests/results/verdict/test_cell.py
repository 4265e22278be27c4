from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.verdict.cell import CellVerdict, judge_cell
from results.verdict.facts import BootFact, Exclusion
from results.verdict.metrics import RECALLED_ALL, UnknownMetricError
from results.verdict.numbers import NumberVerdict
from results.verdict.words import Verdict
from results.vocabulary import Outcome
from tests.results.verdict.boots import DECODE, STATE, Node, history, pairs, scatter

OTHER_DRIVER = replace(STATE, driver="590.10")


def number(verdict: CellVerdict, release: str, series: str = DECODE) -> NumberVerdict:
    return next(one for one in verdict.releases if one.release == release).numbers[series]


def confirmed_change(node: Node, old: str, new: str, before: float, after: float, seed: int) -> list[BootFact]:
    """Boots of `new` on record and an interleaved re-run of both in a later session."""
    record = node.speeds(new, scatter(after, 3, seed), session=f"record {new}")
    return [*record, *node.in_turns(old, new, pairs(before, after, 3, seed + 1), session=f"rerun {new}")]


def test_a_slowdown_is_detected_then_confirmed_by_a_rerun_that_takes_turns() -> None:
    node = Node()
    old, new = node.speeds("0.30.0", scatter(50, 3, 1), session="a"), node.speeds("0.31.0", scatter(47, 3, 2), session="b")
    detected = number(judge_cell(history(old, new)), "0.31.0")
    assert (detected.verdict, detected.moved) == (Verdict.INCONCLUSIVE, True)
    rerun = node.in_turns("0.30.0", "0.31.0", pairs(50, 47, 3, 3), session="b")
    confirmed = number(judge_cell(history(old, new, rerun)), "0.31.0")
    assert (confirmed.verdict, confirmed.n_rerun, confirmed.n_baseline, confirmed.n_candidate) == (Verdict.SLOWER, 3, 6, 6)


def test_boots_that_raised_the_question_never_confirm_it() -> None:
    """Both releases in turns from the start: the first three boots of the candidate are the question, not the answer."""
    node = Node()
    three = node.in_turns("0.30.0", "0.31.0", pairs(50, 45, 3, 1), session="a")
    assert number(judge_cell(history(three)), "0.31.0").verdict is Verdict.INCONCLUSIVE
    six = [*three, *node.in_turns("0.30.0", "0.31.0", pairs(50, 45, 3, 7), session="a")]
    assert number(judge_cell(history(six)), "0.31.0").verdict is Verdict.SLOWER


def test_a_session_that_ran_one_release_after_the_other_is_no_rerun() -> None:
    node = Node()
    boots = [*node.speeds("0.30.0", scatter(50, 3, 1), session="a"), *node.speeds("0.31.0", scatter(45, 3, 2), session="b")]
    boots += [*node.speeds("0.30.0", scatter(50, 5, 3), session="c"), *node.speeds("0.31.0", scatter(45, 5, 4), session="c")]
    judged = number(judge_cell(history(boots)), "0.31.0")
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert any("session c ran one release after the other" in warning for warning in judged.warnings)


@pytest.mark.parametrize("failure", [Outcome.INCOHERENT, Outcome.WRONG, Outcome.CRASH, Outcome.UNSUPPORTED, Outcome.FALLBACK])
def test_no_number_is_judged_when_the_candidate_failed(failure: Outcome) -> None:
    node = Node()
    boots = node.speeds("0.30.0", scatter(50, 5, 1), session="a")
    boots += [replace(boot, outcome=failure) for boot in node.speeds("0.31.0", scatter(77, 5, 2), session="b")]
    newest = judge_cell(history(boots)).releases[-1]
    assert newest.numbers == {}
    assert newest.suppressed is not None and str(failure) in newest.suppressed


def test_a_flaky_release_is_not_judged_and_is_no_baseline() -> None:
    node = Node()
    boots = node.speeds("0.30.0", scatter(50, 3, 1), session="a")
    boots += [*node.speeds("0.31.0", scatter(20, 3, 2), session="b"), node.boot("0.31.0", Outcome.CRASH)]
    boots += node.speeds("0.32.0", scatter(50, 3, 3), session="c")
    verdict = judge_cell(history(boots))
    assert verdict.releases[1].numbers == {}
    assert number(verdict, "0.32.0").baseline == "0.30.0"
    assert number(verdict, "0.32.0").verdict is Verdict.UNCHANGED


def test_the_baseline_is_the_last_release_that_passed() -> None:
    node = Node()
    boots = node.speeds("0.30.0", scatter(50, 3, 1), session="a")
    boots += [node.boot("0.31.0", Outcome.CRASH), node.boot("0.31.0", Outcome.CRASH)]
    boots += confirmed_change(node, "0.30.0", "0.32.0", 50, 46, 5)
    verdict = judge_cell(history(boots))
    assert [one.verdict for one in verdict.releases] == [Verdict.NEW, Verdict.BROKE, Verdict.FIXED]
    assert (number(verdict, "0.32.0").baseline, number(verdict, "0.32.0").verdict) == ("0.30.0", Verdict.SLOWER)
    assert verdict.last_passing == "0.32.0"


def test_another_driver_makes_a_number_confounded_until_the_old_release_is_run_again() -> None:
    node = Node()
    old = node.speeds("0.30.0", scatter(50, 3, 1), session="a")
    new = node.speeds("0.31.0", scatter(46, 3, 2), session="b", state=OTHER_DRIVER)
    confounded = number(judge_cell(history(old, new)), "0.31.0")
    assert (confounded.verdict, confounded.differs) == (Verdict.CONFOUNDED, ("driver (580.95 -> 590.10)",))
    again = node.in_turns("0.30.0", "0.31.0", pairs(46, 46, 3, 5), session="c", state=OTHER_DRIVER)
    settled = number(judge_cell(history(old, new, again)), "0.31.0")
    assert settled.verdict is Verdict.UNCHANGED
    assert "3 boots under another node state were left out" in settled.warnings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("driver", None),
        ("kernel", "6.17"),
        ("firmware", "2"),
        ("clock_cap_mhz", 1000),
        ("protocol", 2),
        ("recipe_revision", "def"),
        ("prompts", "p2"),
    ],
)
def test_every_part_of_the_node_state_confounds(field: str, value: object) -> None:
    node = Node()
    old = node.speeds("0.30.0", scatter(50, 3, 1), session="a")
    new = node.speeds("0.31.0", scatter(50, 3, 2), session="b", state=replace(STATE, **{field: value}))  # type: ignore[arg-type]
    judged = number(judge_cell(history(old, new)), "0.31.0")
    assert judged.verdict is Verdict.CONFOUNDED
    assert [phrase.split()[0] for phrase in judged.differs] == [field]


def test_what_is_unknown_on_both_sides_is_said_but_does_not_confound() -> None:
    node = Node()
    dark = replace(STATE, firmware=None)
    boots = [
        *node.speeds("0.30.0", scatter(50, 3, 1), session="a", state=dark),
        *node.speeds("0.31.0", scatter(50, 3, 2), session="b", state=dark),
    ]
    judged = number(judge_cell(history(boots)), "0.31.0")
    assert judged.verdict is Verdict.UNCHANGED
    assert "not known on either side: firmware" in judged.warnings


def test_a_break_together_with_another_driver_is_confounded_and_no_alarm() -> None:
    node = Node()
    boots = [node.boot("0.30.0"), *(node.boot("0.31.0", Outcome.CRASH, state=OTHER_DRIVER) for _ in range(2))]
    newest = judge_cell(history(boots)).releases[-1]
    assert (newest.verdict, newest.outcome.verdict, newest.alarm) == (Verdict.CONFOUNDED, Verdict.BROKE, False)
    assert newest.differs == ("driver (580.95 -> 590.10)",)
    same = judge_cell(history([replace(boot, node_state=STATE) for boot in boots])).releases[-1]
    assert (same.verdict, same.alarm) == (Verdict.BROKE, True)


def test_after_a_confirmed_change_a_new_level_begins() -> None:
    node = Node()
    boots = [boot for n in range(3) for boot in node.speeds(f"0.{n}.0", scatter(50, 3, n), session=f"s{n}")]
    boots += confirmed_change(node, "0.2.0", "0.3.0", 50, 45, 20)
    boots += confirmed_change(node, "0.3.0", "0.4.0", 45, 50, 30)
    verdict = judge_cell(history(boots))
    assert number(verdict, "0.3.0").verdict is Verdict.SLOWER
    assert number(verdict, "0.3.0").n_level == 12
    assert number(verdict, "0.4.0").verdict is Verdict.FASTER
    assert number(verdict, "0.4.0").n_level == 9


def test_warnings_name_flags_and_few_boots() -> None:
    node = Node()
    boots = [
        node.boot(release, session=release, flags=["throttled"], decode_tok_s=50.0 + n / 100)
        for release in ("0.1.0", "0.2.0")
        for n in range(3)
    ]
    warnings = number(judge_cell(history(boots)), "0.2.0").warnings
    assert "6 boots flagged throttled" in warnings
    assert "few boots: 3 on the smaller side" in warnings


def test_exclusions_are_counted_in_the_verdict() -> None:
    node = Node()
    boots = [node.boot("0.1.dev21830+gabc", decode_tok_s=9.0), node.boot("0.30.0", decode_tok_s=float("nan"))]
    verdict = judge_cell(history(boots, boots[:1]))
    assert verdict.exclusions == {Exclusion.NOT_A_RELEASE: 1, Exclusion.DUPLICATE_BOOT: 1, Exclusion.NOT_FINITE: 1}
    assert verdict.not_releases == ("0.1.dev21830+gabc",)
    assert [one.release for one in verdict.releases] == ["0.30.0"]


def test_a_metric_without_direction_is_refused() -> None:
    node = Node()
    boots = [node.boot(release, smell=1.0) for release in ("0.1.0", "0.2.0")]
    with pytest.raises(UnknownMetricError, match="smell"):
        judge_cell(history(boots))


CONTEXT = "chat/verified_context_tokens"


def recalled(node: Node, release: str, *tokens: int, all_asked: bool) -> list[BootFact]:
    """Boots that recalled so much, and were asked no more or failed beyond."""
    flags = [RECALLED_ALL] if all_asked else []
    return [node.boot(release, session=release, flags=flags, verified_context_tokens=value) for value in tokens]


def test_a_boot_that_recalled_all_it_was_asked_is_not_worse_than_one_asked_deeper() -> None:
    node = Node()
    old = recalled(node, "0.30.0", 1_938, 1_938, 1_938, all_asked=True)
    new = [*recalled(node, "0.31.0", 1_024, 1_024, all_asked=True), *recalled(node, "0.31.0", 1_024, all_asked=False)]
    verdict = number(judge_cell(history(old, new)), "0.31.0", CONTEXT)
    assert (verdict.verdict, verdict.moved, verdict.effect) == (Verdict.UNCHANGED, False, 0.0)
    assert "compared up to 1,024: a boot of them was asked no more" in verdict.warnings
    assert not any(RECALLED_ALL in warning for warning in verdict.warnings)


def test_a_context_that_is_forgotten_is_told_whatever_the_others_were_asked_at_most() -> None:
    node = Node()
    old = recalled(node, "0.30.0", 16_384, 16_384, 4_096, all_asked=True)
    new = recalled(node, "0.31.0", 1_024, 1_024, 1_024, all_asked=False)
    verdict = number(judge_cell(history(old, new)), "0.31.0", CONTEXT)
    assert (verdict.moved, verdict.effect) == (True, pytest.approx(-0.75))


def test_bounds_that_are_alike_are_no_warning() -> None:
    node = Node()
    boots = [recalled(node, release, 4_096, 4_096, all_asked=True) for release in ("0.30.0", "0.31.0")]
    assert not any("asked no more" in warning for warning in number(judge_cell(history(*boots)), "0.31.0", CONTEXT).warnings)


def test_the_headline_is_the_outcome_then_the_worst_number() -> None:
    node = Node()
    boots = node.speeds("0.30.0", scatter(50, 3, 1), session="a") + confirmed_change(node, "0.30.0", "0.31.0", 50, 46, 5)
    boots += [node.boot("0.32.0", Outcome.HANG)]
    verdict = judge_cell(history(boots, known=["0.33.0"]))
    assert [one.headline for one in verdict.releases] == [Verdict.NEW, Verdict.SLOWER, Verdict.BROKE, None]
    assert verdict.newest is not None and verdict.newest.release == "0.32.0"


RELEASES = ("0.1.0", "0.2.0", "0.3.0", "0.4.0")


@st.composite
def some_boots(draw: st.DrawFn) -> list[BootFact]:
    node = Node()
    chance = random.Random(draw(st.integers()))
    boots = []
    for _ in range(draw(st.integers(0, 24))):
        outcome = draw(st.sampled_from([Outcome.PASS] * 6 + [Outcome.CRASH, Outcome.INFRASTRUCTURE, Outcome.UNSUPPORTED]))
        state = draw(st.sampled_from([STATE, STATE, STATE, OTHER_DRIVER]))
        speed = draw(st.sampled_from([50.0, 45.0])) * (1 + chance.gauss(0, 0.005))
        release, session = draw(st.sampled_from(RELEASES)), draw(st.sampled_from("abc"))
        boots.append(node.boot(release, outcome, session=session, state=state, decode_tok_s=speed))
    return boots


@settings(max_examples=80, deadline=None)
@given(some_boots(), st.integers())
def test_the_order_in_which_boots_are_handed_in_changes_nothing(boots: list[BootFact], seed: int) -> None:
    shuffled = random.Random(seed).sample(boots, len(boots))
    assert judge_cell(history(boots)) == judge_cell(history(shuffled))


@settings(max_examples=80, deadline=None)
@given(some_boots())
def test_a_number_is_never_judged_where_a_side_failed(boots: list[BootFact]) -> None:
    verdict = judge_cell(history(boots))
    states = {one.release: one.outcome.state for one in verdict.releases}
    for one in verdict.releases:
        for judged in one.numbers.values():
            assert states[one.release] is Outcome.PASS
            assert judged.baseline is None or states[judged.baseline] is Outcome.PASS


@settings(max_examples=80, deadline=None)
@given(some_boots(), st.sampled_from(RELEASES))
def test_an_infrastructure_boot_more_changes_no_verdict(boots: list[BootFact], release: str) -> None:
    extra = replace(
        Node().boot(release, Outcome.INFRASTRUCTURE),
        run_id="extra",
        session_id="extra",
        started_at="2027-01-01T00:00:00+00:00",
        finished_at=None,
    )
    before, after = judge_cell(history(boots, known=RELEASES)), judge_cell(history([*boots, extra], known=RELEASES))
    assert [(one.verdict, one.numbers) for one in before.releases] == [(one.verdict, one.numbers) for one in after.releases]
