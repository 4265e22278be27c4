from __future__ import annotations

import math
from dataclasses import replace

import pytest

from results.verdict.facts import (
    BadTimeError,
    ConflictingBootsError,
    Exclusion,
    MixedNodesError,
    NodeState,
    admit,
)
from results.vocabulary import Outcome
from tests.results.verdict.boots import DECODE, STATE, Node, history


def test_a_fork_build_is_left_out_and_counted() -> None:
    node = Node()
    admitted = admit(history([node.boot("0.1.dev21830+gabc", decode_tok_s=9.0), node.boot("0.11.0", decode_tok_s=50.0)]))
    assert admitted.releases == ("0.11.0",)
    assert admitted.exclusions == {Exclusion.NOT_A_RELEASE: 1}
    assert admitted.not_releases == ("0.1.dev21830+gabc",)


@pytest.mark.parametrize(
    ("value", "why"),
    [(math.nan, Exclusion.NOT_FINITE), (math.inf, Exclusion.NOT_FINITE), (0.0, Exclusion.NOT_POSITIVE), (-3.0, Exclusion.NOT_POSITIVE)],
)
def test_a_number_that_is_no_measurement_is_left_out_but_its_boot_counts(value: float, why: Exclusion) -> None:
    admitted = admit(history([Node().boot("0.11.0", decode_tok_s=value, ttft_s=0.2)]))
    assert admitted.exclusions == {why: 1}
    assert dict(admitted.boots["0.11.0"][0].metrics) == {"chat/ttft_s": 0.2}


def test_a_failed_boot_has_no_number() -> None:
    admitted = admit(history([Node().boot("0.11.0", Outcome.INCOHERENT, decode_tok_s=77.0)]))
    assert admitted.boots["0.11.0"][0].metrics == {}
    assert admitted.exclusions == {Exclusion.NUMBER_OF_A_FAILED_BOOT: 1}


def test_a_boot_handed_in_twice_counts_once() -> None:
    boot = Node().boot("0.11.0", decode_tok_s=math.nan)
    admitted = admit(history([boot, replace(boot, metrics={DECODE: math.nan})]))
    assert len(admitted.boots["0.11.0"]) == 1
    assert admitted.exclusions[Exclusion.DUPLICATE_BOOT] == 1


def test_one_run_id_with_two_contents_is_an_error() -> None:
    boot = Node().boot("0.11.0", decode_tok_s=50.0)
    with pytest.raises(ConflictingBootsError, match=boot.run_id):
        admit(history([boot, replace(boot, outcome=Outcome.CRASH)]))


def test_boots_of_two_nodes_under_one_name_are_an_error() -> None:
    node = Node()
    stranger = replace(node.boot("0.11.0"), node_id="spark-b")
    with pytest.raises(MixedNodesError, match="spark-b"):
        admit(history([node.boot("0.11.0"), stranger]))


@pytest.mark.parametrize("text", ["yesterday", "2026-11-30T12:00:00", ""])
def test_a_time_without_offset_or_sense_is_an_error(text: str) -> None:
    with pytest.raises(BadTimeError):
        admit(history([replace(Node().boot("0.11.0"), started_at=text)]))


def test_a_boot_that_ends_before_it_starts_loses_its_numbers() -> None:
    boot = Node().boot("0.11.0", decode_tok_s=50.0)
    admitted = admit(history([replace(boot, finished_at="2020-01-01T00:00:00+00:00")]))
    assert admitted.boots["0.11.0"][0].outcome is Outcome.PASS
    assert admitted.boots["0.11.0"][0].metrics == {}
    assert admitted.exclusions == {Exclusion.CLOCK_WENT_BACK: 1}


def test_overlapping_boots_of_one_session_lose_their_numbers_whatever_their_order() -> None:
    node = Node()
    first, second, third = (node.boot("0.11.0", decode_tok_s=50.0) for _ in range(3))
    set_back = replace(second, started_at=first.started_at)
    for boots in ([first, set_back, third], [third, set_back, first]):
        admitted = admit(history(boots))
        assert admitted.exclusions == {Exclusion.CLOCK_WENT_BACK: 2}
        assert [bool(boot.metrics) for boot in admitted.boots["0.11.0"]] == [False, False, True]


def test_boots_of_two_sessions_may_overlap() -> None:
    node = Node()
    first, second = node.boot("0.11.0", session="a", decode_tok_s=50.0), node.boot("0.11.0", session="b", decode_tok_s=50.0)
    assert admit(history([first, replace(second, started_at=first.started_at)])).exclusions == {}


def test_differences_name_the_field_and_both_values() -> None:
    other = replace(STATE, driver="590.10", firmware=None)
    assert STATE.differences(other) == ("driver (580.95 -> 590.10)", "firmware (1.2.3 -> unknown)")
    assert STATE.differences(STATE) == ()
    assert NodeState(driver="580").unknown() == ("kernel", "firmware", "clock_cap_mhz", "protocol", "recipe_revision", "prompts")


def test_releases_that_were_never_run_are_known() -> None:
    admitted = admit(history([Node().boot("0.11.0")], known=["0.10.0", "0.12.0", "0.13.0.dev1"]))
    assert admitted.releases == ("0.10.0", "0.11.0", "0.12.0")
    assert admitted.boots["0.12.0"] == ()
