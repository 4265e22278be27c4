"""What the truth server plans to send, and what is true of what it sent."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.truth.scenarios import QUICK, SCENARIOS, Scenario, Usage, scenario_named
from benchmarks.truth.schedule import Sent, SentStream, plan_of, truth_of, usage_asked, usage_of

CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
scenarios = st.builds(
    Scenario,
    name=st.just("any"),
    tok_s=st.floats(1, 5000),
    trap=st.just(""),
    chunk_tokens=st.lists(st.integers(1, 8), min_size=1, max_size=4).map(tuple),
    jitter=st.floats(0, 1),
    role_chunk=st.booleans(),
    finish_delay_s=st.floats(0, 3),
    burst=st.booleans(),
    stop_after=st.none() | st.integers(1, 50),
)


@given(scenarios, st.integers(0, 99), st.integers(1, 200))
def test_plan_sends_every_token_once_and_never_goes_back_in_time(scenario: Scenario, seed: int, asked: int) -> None:
    plan = plan_of(scenario, seed, asked)
    text = [event for event in plan if event.kind == "text"]
    assert sum(event.new_tokens for event in text) == min(asked, scenario.stop_after or asked)
    assert [event.tokens for event in text] == [sum(e.new_tokens for e in text[: i + 1]) for i in range(len(text))]
    assert all(later.after_s >= earlier.after_s for earlier, later in pairwise(plan))
    assert (plan[-1].kind, plan[0].kind == "role") == ("finish", scenario.role_chunk)


def test_steady_plan_has_exactly_its_rate() -> None:
    text = [e for e in plan_of(Scenario("s", 50.0, "", slow_first_s=0.3), 0, 101) if e.kind == "text"]
    assert text[0].after_s == pytest.approx(0.3)
    assert text[-1].after_s - text[0].after_s == pytest.approx(100 / 50)


def test_chunks_are_due_when_their_last_token_is_generated() -> None:
    text = [e for e in plan_of(Scenario("s", 10.0, "", chunk_tokens=(4,), slow_first_s=0.0), 0, 8) if e.kind == "text"]
    assert [(e.after_s, e.tokens) for e in text] == [(pytest.approx(0.3), 4), (pytest.approx(0.7), 8)]


def test_burst_sends_everything_at_the_end_but_the_role_chunk() -> None:
    plan = plan_of(Scenario("s", 10.0, "", burst=True, role_chunk=True, slow_first_s=0.0), 0, 11)
    assert [e.after_s for e in plan] == [0.0, *[pytest.approx(1.0)] * 12]


def sent(*events: tuple[float, int], t_request: float = 10.0, unread_s: float = 0.0) -> SentStream:
    total, text = 0, []
    for t, new in events:
        total += new
        text.append(Sent(t, "text", new, total, took_s=0.001))
    return SentStream("k", t_request, (*text, Sent(events[-1][0] + 9, "finish", 0, total)), 0.0, unread_s)


def test_truth_leaves_out_the_tokens_of_the_first_chunk_and_the_late_finish() -> None:
    truth = truth_of(sent((10.5, 4), (11.0, 4), (11.5, 4)), 64, burst=False)
    assert (truth.ttft_s, truth.decode_tok_s, truth.tokens, truth.prefill_tok_s) == (0.5, 8.0, 12, 128.0)


def test_truth_of_one_chunk_and_of_a_burst_has_no_decode_rate() -> None:
    assert truth_of(sent((10.5, 4)), 64, burst=False).decode_tok_s is None
    assert truth_of(sent((10.5, 4), (10.6, 4)), 64, burst=True).decode_tok_s is None


def test_doubt_is_the_unread_time_and_the_time_inside_the_sends() -> None:
    truth = truth_of(sent((10.5, 1), (12.5, 1), unread_s=0.004), 64, burst=False)
    assert truth.ttft_doubt_s == pytest.approx(0.005)
    assert truth.decode_doubt == pytest.approx(0.002 / 2.0)


@pytest.mark.parametrize(
    ("has", "asked", "seen"),
    [
        (Usage.CONTINUOUS, CONTINUOUS, Usage.CONTINUOUS),
        (Usage.CONTINUOUS, {"stream_options": {"include_usage": True}}, Usage.AT_END),
        (Usage.CONTINUOUS, {}, Usage.ABSENT),
        (Usage.AT_END, CONTINUOUS, Usage.AT_END),
        (Usage.ABSENT, CONTINUOUS, Usage.ABSENT),
    ],
)
def test_usage_is_what_was_asked_and_never_more_than_there_is(has: Usage, asked: dict[str, object], seen: Usage) -> None:
    assert usage_asked(Scenario("s", 1.0, "", usage=has), asked) is seen


def test_usage_at_the_end_is_in_the_finish_event_only() -> None:
    plan = plan_of(Scenario("s", 10.0, ""), 0, 5)
    told = [event.kind for event in plan if usage_of(event, 7, Usage.AT_END)]
    assert told == ["finish"]
    assert usage_of(plan[-1], 7, Usage.AT_END) == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


def test_scenario_names_are_unique_and_every_subset_exists() -> None:
    names = [s.name for s in SCENARIOS]
    assert len(set(names)) == len(names)
    assert set(QUICK) <= set(names)
    with pytest.raises(KeyError, match="known: "):
        scenario_named("none such")
