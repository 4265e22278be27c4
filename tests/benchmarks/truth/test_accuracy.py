"""Who is right, who is wrong, and who says nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.truth.accuracy import PeerSaid, Row, Said, compare, compare_peer
from benchmarks.truth.scenarios import Scenario
from benchmarks.truth.schedule import Sent, SentStream

STEADY = Scenario("steady", 10.0, "")
UNKNOWABLE = replace(STEADY, decode_known=False)
BURST = replace(STEADY, burst=True, decode_known=False)


def stream(key: str, ttft_s: float = 0.1, rate: float = 10.0, unread_s: float = 0.0) -> tuple[SentStream, int]:
    events = tuple(Sent(ttft_s + i / rate, "text", 1, i + 1) for i in range(11))
    return SentStream(key, 0.0, events, 0.0, unread_s), 64


def ours(decode: float | None, ttft: float | None = 0.1, scenario: Scenario = STEADY, unread_s: float = 0.0) -> Row:
    reason = None if decode is not None else "because"
    return compare("ours", scenario, [Said("a", ttft, decode, 640.0, reason)], [stream("a", unread_s=unread_s)])


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (ours(10.04), "right"),
        (ours(10.06), "wrong"),
        (ours(10.0, 0.1019), "right"),
        (ours(10.0, 0.1021), "wrong"),
        (ours(10.0, 0.1021, unread_s=0.001), "right"),
        (ours(None), "missing"),
        (ours(10.0, None), "missing"),
        (ours(None, scenario=UNKNOWABLE), "right"),
        (ours(10.0, scenario=UNKNOWABLE), "right"),
        (ours(12.0, scenario=UNKNOWABLE), "wrong"),
        (ours(10.0, scenario=BURST), "wrong"),
        (ours(None, scenario=BURST), "right"),
        (compare("ours", STEADY, [], []), "nothing"),
    ],
)
def test_verdict(row: Row, verdict: str) -> None:
    assert row.verdict == verdict


def test_errors_are_those_of_the_worst_stream() -> None:
    said = [Said("a", 0.1, 10.0, 640.0, None), Said("b", 0.15, 9.9, 640.0, None)]
    row = compare("ours", STEADY, said, [stream("a"), stream("b")])
    assert row.decode_error == pytest.approx(0.01)
    assert row.ttft_error_s == pytest.approx(0.05)
    assert (row.streams, row.nulls, row.prefill_error) == (2, 0, pytest.approx(0))


def test_stream_that_was_never_sent_is_a_fault_of_the_benchmark() -> None:
    with pytest.raises(ValueError, match="1 of 1 streams were never sent"):
        compare("ours", STEADY, [Said("x", None, None, None, None)], [stream("a")])


def test_peer_is_compared_with_the_streams_after_its_warm_up() -> None:
    row = compare_peer("peer", STEADY, PeerSaid(2, (20.0, 10.0), (0.1, 0.1)), [stream("w", rate=99.0), stream("a"), stream("b", rate=20.0)])
    assert (row.verdict, row.decode_error) == ("right", pytest.approx(0))


def test_peer_with_a_median_alone_is_compared_with_the_median() -> None:
    row = compare_peer("peer", STEADY, PeerSaid(3, (10.0,), (0.1,) * 3), [stream("a"), stream("b"), stream("c", rate=30.0)])
    assert (row.verdict, row.decode_error) == ("right", pytest.approx(0))


@pytest.mark.parametrize(
    ("said", "scenario", "verdict"),
    [
        (PeerSaid(1, (11.0,), (0.1,)), STEADY, "wrong"),
        (PeerSaid(1, (690e6,), (0.1,)), BURST, "wrong"),
        (PeerSaid(1, (), (0.1,)), STEADY, "missing"),
        (PeerSaid(1, (10.0,), (0.1,), (640.0 * 399,)), STEADY, "wrong"),
        (PeerSaid(1, (), (), failed=1, trouble="exit 0, no numbers"), STEADY, "missing"),
    ],
)
def test_peer_verdicts(said: PeerSaid, scenario: Scenario, verdict: str) -> None:
    assert compare_peer("peer", scenario, said, [stream("a")]).verdict == verdict


def test_peer_whose_requests_were_all_refused_said_nothing() -> None:
    row = compare_peer("peer", STEADY, PeerSaid(3, failed=3, trouble="exit 0, no numbers"), [])
    assert (row.verdict, row.null_reason) == ("nothing", "exit 0, no numbers")
