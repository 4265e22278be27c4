"""The engine's own metrics over a window: recorded pages of real servers, spellings per version, and pages that are no pages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.engines.counters import KINDS, counter_facts, read_series, window_counters
from runners.engines.flag_registry import ENGINES, registry

VLLM = (
    'vllm:generation_tokens_total{{engine="0"}} {tokens}\n'
    'vllm:time_to_first_token_seconds_sum{{engine="0"}} {ttft}\nvllm:time_to_first_token_seconds_count{{engine="0"}} {requests}\n'
    'vllm:spec_decode_num_drafts_total{{engine="0"}} {drafts}\nvllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafted}\n'
    'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}\n'
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} 999\n'
)
BEFORE = VLLM.format(tokens=100.0, ttft=4.0, requests=2, drafts=10.0, drafted=40.0, accepted=39.0)
AFTER = VLLM.format(tokens=400.0, ttft=5.0, requests=7, drafts=110.0, drafted=440.0, accepted=139.0)


def test_acceptance_is_that_of_the_window_alone() -> None:
    """100 drafts of 4 tokens of which 100 are accepted; before the window nearly all were."""
    found = window_counters("vllm", "0.32.0", BEFORE, AFTER)
    assert found == {
        "generation_tokens": 300.0,
        "ttft_mean_s": pytest.approx(0.2),
        "spec_acceptance_rate": pytest.approx(0.25),
        "spec_accepted_length": pytest.approx(2.0),
    }


@pytest.mark.parametrize(("version", "length"), [("0.5.14", 3.0), ("0.5.23", 3.0), ("0.5.12", 2.5), ("0.5.5", 2.5)])
def test_sglang_counts_verifications_from_0_5_13_and_shows_a_gauge_before(version: str, length: float) -> None:
    gauges = "sglang:spec_accept_length{} 2.5\nsglang:spec_accept_rate{} 0.4\n"
    before = "sglang:generation_tokens_total{} 10\nsglang:spec_verify_calls_total{} 4\n" + gauges
    after = "sglang:generation_tokens_total{} 310\nsglang:spec_verify_calls_total{} 104\n" + gauges
    found = window_counters("sglang", version, before, after)
    assert found == {"generation_tokens": 300.0, "spec_accepted_length": length, "spec_acceptance_rate": 0.4}


def test_gauges_of_a_server_that_does_not_speculate_say_nothing() -> None:
    page = "sglang:spec_accept_length{} 0.0\nsglang:spec_accept_rate{} 0.0\nsglang:spec_verify_calls_total{} 0\n"
    assert window_counters("sglang", "0.5.14", page, page) == {}
    assert window_counters("sglang", "0.5.9", page, page) == {}


def test_series_that_begin_inside_the_window_count_from_zero() -> None:
    found = window_counters("vllm", "0.32.0", "", AFTER)
    assert found["spec_acceptance_rate"] == pytest.approx(139 / 440)


def test_a_counter_that_fell_says_nothing() -> None:
    assert window_counters("vllm", "0.32.0", AFTER, BEFORE) == {}


def test_labels_are_summed() -> None:
    page = 'sglang:generation_tokens_total{is_streaming="true"} 7\nsglang:generation_tokens_total{is_streaming="false"} 5\n'
    assert window_counters("sglang", "0.5.23", "", page) == {"generation_tokens": 12.0}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "no-such-engine"])
@given(before=st.text(max_size=300), after=st.text(max_size=300))
def test_no_page_whatever_breaks_it_or_gives_a_number_that_is_none(engine: str, before: str, after: str) -> None:
    after += "\nvllm:generation_tokens_total{ broken\nvllm:generation_tokens_total{} NaN\nllamacpp:tokens_predicted_total +Inf\n"
    assert all(math.isfinite(value) for value in window_counters(engine, "0.32.0", before, after).values())


@pytest.mark.parametrize("engine", [*ENGINES, "llamacpp"])
def test_every_row_can_be_read_and_says_where_it_is_from(engine: str) -> None:
    facts = counter_facts(engine)
    assert facts
    for fact in facts:
        assert fact.kind in KINDS
        assert (fact.per is not None) == (fact.kind == "ratio")
        assert fact.source
        assert all(name.startswith(f"{engine}:") for name in fact.names())


@pytest.mark.parametrize("engine", ENGINES)
def test_every_version_read_has_a_spelling_of_acceptance(engine: str) -> None:
    for version in registry(engine).versions_read:
        named = {fact.metric for fact in counter_facts(engine) if fact.versions.contains(version)}
        assert named >= {"generation_tokens", "spec_acceptance_rate", "spec_accepted_length", "ttft_mean_s", "itl_mean_s"}, version


def test_an_unknown_version_is_read_as_any() -> None:
    assert window_counters("vllm", "unknown", BEFORE, AFTER) == window_counters("vllm", "0.32.0", BEFORE, AFTER)
    assert window_counters("vllm", "nightly", BEFORE, AFTER)["spec_accepted_length"] == pytest.approx(2.0)


def test_series_are_found_by_their_whole_name() -> None:
    assert read_series("a_total 1\nab_total 2\na_created 5\n", ["a"]) == {"a": 1.0}
