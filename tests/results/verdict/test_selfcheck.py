from __future__ import annotations

from results.verdict.selfcheck import false_alarms
from results.verdict.words import Verdict
from results.vocabulary import Outcome
from tests.results.verdict.boots import DECODE, Node, history, scatter


def test_an_unchanged_release_under_two_names_makes_no_news() -> None:
    node = Node()
    boots = [boot for number in range(20) for boot in node.speeds(f"0.{number}.0", scatter(50, 12, number, 0.02), session=f"s{number}")]
    report = false_alarms(history(boots))
    assert report.comparisons == 40
    assert report.alarms == ()


def test_a_rule_that_would_cry_wolf_is_caught() -> None:
    """Every second boot is slower: the two halves really differ, and the check must say so."""
    node = Node()
    speeds = [value for pair in zip(scatter(50, 8, 1), scatter(40, 8, 2), strict=True) for value in pair]
    report = false_alarms(history(node.speeds("0.1.0", speeds, session="a")))
    assert [(alarm.series, alarm.verdict, alarm.release) for alarm in report.alarms] == [(DECODE, Verdict.SLOWER, "0.1.0")]
    assert report.screened == 1


def test_failures_of_one_half_only_are_an_alarm() -> None:
    node = Node()
    boots = [node.boot("0.1.0", Outcome.CRASH if turn % 2 else Outcome.PASS) for turn in range(6)]
    assert [alarm.series for alarm in false_alarms(history(boots)).alarms] == ["outcome"]


def test_a_release_with_one_boot_takes_no_part() -> None:
    assert false_alarms(history([Node().boot("0.1.0", decode_tok_s=50.0)])).comparisons == 0
