"""Rates: exact where they can be known, None with a reason where they cannot."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.rates import (
    CACHE_UNREPORTED,
    CLIENT_LAG,
    CLIENT_LAG_UNMEASURED,
    NO_DONE,
    PROMPT_TOKENS_DIFFER,
    TOKENS_AFTER_WINDOW,
    aggregate_tok_s,
    counts_agree,
    decode_tok_s,
    inter_token_latencies,
    rates_of,
    settled,
    weighted_percentile,
)
from runners.stream_trace import Chunk, FailureKind, StreamFailure, StreamTrace

RATES = ("ttft_s", "decode_tok_s", "prefill_tok_s", "itl_p50_s", "itl_p90_s", "itl_p99_s", "e2e_s", "e2e_tok_s")


def text_chunk(t: float, tokens: int | None, field: str = "text") -> Chunk:
    return Chunk(t, {field: 3}, tokens)


def trace_of(chunks: list[Chunk], **changes: Any) -> StreamTrace:
    """A complete, valid stream of `chunks`, sent at 0, ended with the last of them."""
    total = max((c.tokens or 0 for c in chunks), default=0)
    base = StreamTrace(
        t_sent=0.0,
        t_end=chunks[-1].t if chunks else 1.0,
        asked_tokens=total,
        chunks=tuple(chunks),
        prompt_tokens=128,
        completion_tokens=total,
        cached_tokens=0,
        client_lag_s=0.0,
    )
    return replace(base, **changes)


def steady(sizes: list[int], rate: float = 50.0, first_token_at: float = 0.5, field: str = "text") -> list[Chunk]:
    """Token i is made at `first_token_at + i / rate`; a chunk leaves when its last token is made."""
    ends = list(accumulate(sizes))
    return [text_chunk(first_token_at + (end - 1) / rate, end, field) for end in ends]


SIZES = st.lists(st.integers(1, 8), min_size=12, max_size=80)


@settings(deadline=None)
@given(SIZES, st.floats(1.0, 5000.0), st.floats(0.0, 10.0))
def test_steady_emission_gives_its_true_rate_whatever_the_chunk_sizes(sizes: list[int], rate: float, ttft_in_windows: float) -> None:
    window = (sum(sizes) - sizes[0]) / rate
    rates = rates_of(trace_of(steady(sizes, rate, 0.001 + ttft_in_windows * window)))
    assert rates.valid
    assert rates.decode_tok_s == pytest.approx(rate, rel=1e-6)
    assert rates.itl_p50_s == pytest.approx(1 / rate, rel=1e-5)
    assert rates.itl_p99_s == pytest.approx(1 / rate, rel=1e-5)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 1000)), min_size=1, max_size=60), st.integers(1, 3000))
def test_any_schedule_gives_the_exact_rate_or_a_reason(schedule: list[tuple[int, int]], first_ms: int) -> None:
    """Gaps are whole multiples of 1/1024 s, so that floating point is exact."""
    times = list(accumulate([gap for _, gap in schedule[1:]], initial=first_ms))
    counts = list(accumulate(k for k, _ in schedule))
    trace = trace_of([text_chunk(t / 1024, n) for t, n in zip(times, counts, strict=True)])
    decode, reason = decode_tok_s(trace)
    arrivals = sorted(set(times))
    last_of_first = max(n for t, n in zip(times, counts, strict=True) if t == times[0])
    window = times[-1] - times[0]
    if decode is None:
        early = max(n for t, n in zip(times, counts, strict=True) if t <= times[0] + window / 20) - last_of_first
        assert reason is not None
        assert len(arrivals) < 8 or window * 20 < times[-1] or early * 4 > counts[-1] - last_of_first
    else:
        assert Fraction(decode) == Fraction(float(Fraction((counts[-1] - last_of_first) * 1024, window)))


@settings(deadline=None)
@given(SIZES, st.sampled_from(["none", "last", "all_but_first"]))
def test_decode_rate_is_unknown_unless_the_first_chunk_is_counted(sizes: list[int], counted: str) -> None:
    chunks = steady(sizes)
    counted_from = {"none": len(chunks), "last": len(chunks) - 1, "all_but_first": 1}[counted]
    blind = [c._replace(tokens=c.tokens if i >= counted_from else None) for i, c in enumerate(chunks)]
    rates = rates_of(trace_of(blind, asked_tokens=sum(sizes), completion_tokens=sum(sizes)))
    assert rates.valid
    assert (rates.decode_tok_s, rates.itl_p50_s, rates.itl_p90_s, rates.itl_p99_s) == (None, None, None, None)
    assert "decode_tok_s, itl_s: first_chunk_uncounted" in (rates.null_reason or "")
    assert rates.ttft_s == pytest.approx(chunks[0].t)


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Chunk,
            t=st.floats(0, 100),
            text_len=st.dictionaries(st.sampled_from(["content", "reasoning", "text"]), st.integers(0, 5), max_size=2),
            tokens=st.none() | st.integers(0, 300),
            finish_reason=st.sampled_from([None, None, None, "length"]),
            null_text=st.booleans(),
        ),
        max_size=40,
    ),
    st.none() | st.integers(0, 300),
)
def test_no_stream_crashes_and_every_missing_rate_has_a_reason(chunks: list[Chunk], completion: int | None) -> None:
    trace = trace_of(sorted(chunks, key=lambda c: c.t), completion_tokens=completion, asked_tokens=completion or 1, t_end=100.0)
    rates = rates_of(trace)
    missing = [name for name in RATES if getattr(rates, name) is None]
    if not rates.valid:
        assert rates.invalid_reason
        assert missing == list(RATES)
    else:
        assert rates.null_reason is not None or set(missing) <= {"e2e_tok_s"}
        assert rates.decode_tok_s is None or rates.decode_tok_s > 0


def test_usage_only_in_the_middle_still_gives_a_rate_but_no_latencies() -> None:
    chunks = [c if i in (0, 5, 15) else c._replace(tokens=None) for i, c in enumerate(steady([1] * 16, rate=40))]
    rates = rates_of(trace_of(chunks))
    assert rates.decode_tok_s == pytest.approx(40)
    assert rates.itl_p50_s is None
    assert "itl_s: running_usage_incomplete" in (rates.null_reason or "")


def test_first_chunk_of_many_tokens_does_not_raise_the_rate() -> None:
    """32 tokens in chunks of 4: (32 - 1) / window would read 110.7."""
    rates = rates_of(trace_of(steady([4] * 8, rate=100)))
    assert rates.decode_tok_s == pytest.approx(100)


def test_role_chunk_does_not_end_ttft() -> None:
    role = Chunk(0.01, {}, 0)
    rates = rates_of(trace_of([role, *steady([1] * 20, first_token_at=0.5, field="content")]))
    assert rates.ttft_s == pytest.approx(0.5)
    assert rates.prefill_tok_s == pytest.approx(128 / 0.5)


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content", "text"])
def test_text_in_any_field_ends_ttft_and_is_named(field: str) -> None:
    rates = rates_of(trace_of(steady([1] * 20, first_token_at=0.5, field=field)))
    assert (rates.ttft_s, rates.carried_by) == (0.5, field)


def test_reasoning_then_content_is_one_window() -> None:
    chunks = steady([1] * 20, rate=50, field="reasoning")
    chunks = [*chunks[:10], *(c._replace(text_len={"content": 3}) for c in chunks[10:])]
    rates = rates_of(trace_of(chunks))
    assert rates.decode_tok_s == pytest.approx(50)
    assert rates.carried_by == "content+reasoning"


@pytest.mark.parametrize("late_s", [0.0, 5.0])
def test_late_finish_chunk_does_not_extend_the_window(late_s: float) -> None:
    chunks = steady([1] * 20, rate=50)
    end = chunks[-1].t + late_s
    rates = rates_of(trace_of([*chunks, Chunk(end, {}, 20, "length", null_text=True)], t_end=end))
    assert rates.decode_tok_s == pytest.approx(50)
    assert rates.e2e_s == end


def test_finish_chunk_with_text_is_part_of_the_window() -> None:
    chunks = steady([1] * 20, rate=50)
    rates = rates_of(trace_of([*chunks[:-1], chunks[-1]._replace(finish_reason="length")]))
    assert rates.decode_tok_s == pytest.approx(50)


def test_invisible_tokens_are_tokens() -> None:
    """A token of half a character has no text; it must count, in the rate and in the latencies."""
    chunks = [c._replace(text_len={}) if i % 2 else c for i, c in enumerate(steady([1] * 20, rate=50))]
    rates = rates_of(trace_of(chunks))
    assert rates.decode_tok_s == pytest.approx(50)
    assert rates.itl_p99_s == pytest.approx(1 / 50)


def test_invisible_first_token_leaves_prefill_unknown() -> None:
    chunks = steady([1] * 20)
    rates = rates_of(trace_of([chunks[0]._replace(text_len={}), *chunks[1:]]))
    assert rates.ttft_s == chunks[1].t
    assert rates.prefill_tok_s is None
    assert "prefill_tok_s: first_token_invisible" in (rates.null_reason or "")


def test_role_chunk_that_already_counts_the_first_token_is_not_an_invisible_token() -> None:
    chunks = steady([1] * 20, field="content")
    rates = rates_of(trace_of([Chunk(chunks[0].t - 0.0001, {}, 1), *chunks]))
    assert rates.prefill_tok_s == pytest.approx(128 / chunks[0].t)


@pytest.mark.parametrize(("ttft_s", "known"), [(0.0099, False), (0.0101, True)])
def test_a_first_text_after_some_milliseconds_leaves_prefill_unknown(ttft_s: float, known: bool) -> None:
    """64 streams with their first text after 5 ms read 4 to 9 % too little prefill: that much was HTTP and this client."""
    rates = rates_of(trace_of(steady([1] * 20, first_token_at=ttft_s)))
    assert rates.ttft_s == pytest.approx(ttft_s)
    assert (rates.prefill_tok_s is not None) is known
    assert ("prefill_tok_s: too_short" in (rates.null_reason or "")) is not known


def test_burst_has_no_decode_rate() -> None:
    """256 tokens in a microsecond after 10 s would read 690,000,000 tok/s or so."""
    rates = rates_of(trace_of([text_chunk(10 + i * 1e-9, i + 1) for i in range(256)]))
    assert rates.valid
    assert (rates.decode_tok_s, rates.prefill_tok_s, rates.itl_p50_s) == (None, None, None)
    assert "one_burst" in (rates.null_reason or "")


@pytest.mark.parametrize(("chunks", "known"), [(7, False), (8, True)])
def test_fewer_than_eight_token_chunks_have_no_rate(chunks: int, known: bool) -> None:
    assert (rates_of(trace_of(steady([8] * chunks))).decode_tok_s is not None) is known


def test_chunks_of_one_instant_count_once() -> None:
    chunks = [text_chunk(0.5 + (i // 4) * 0.1, i + 1) for i in range(28)]
    assert rates_of(trace_of(chunks)).decode_tok_s is None
    assert rates_of(trace_of([text_chunk(0.5 + (i // 4) * 0.1, i + 1) for i in range(32)])).decode_tok_s == pytest.approx(28 / 0.7)


@pytest.mark.parametrize(("share", "known"), [(0.049, False), (0.051, True)])
def test_window_under_five_percent_of_the_request_has_no_rate(share: float, known: bool) -> None:
    window = 19 / 50
    chunks = steady([1] * 20, rate=50, first_token_at=window / share - window)
    assert (rates_of(trace_of(chunks)).decode_tok_s is not None) is known


def test_tokens_held_back_before_the_window_give_no_rate() -> None:
    """200 tokens made before the first was shown, then 56 at 20 tok/s: counting them all would read 91 tok/s."""
    held = [text_chunk(10 + i * 1e-6, i + 1) for i in range(200)]
    rest = [text_chunk(10 + (i + 1) / 20, 200 + i + 1) for i in range(56)]
    rates = rates_of(trace_of([*held, *rest]))
    assert rates.decode_tok_s is None
    assert "held_back" in (rates.null_reason or "")


def test_held_back_tokens_in_one_first_chunk_spoil_prefill_only() -> None:
    rates = rates_of(trace_of([text_chunk(10, 200), *(text_chunk(10 + (i + 1) / 20, 201 + i) for i in range(56))]))
    assert rates.decode_tok_s == pytest.approx(20)
    assert rates.prefill_tok_s is None
    assert "prefill_tok_s: held_back" in (rates.null_reason or "")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"failure": StreamFailure(FailureKind.ERROR_EVENT, "EngineCore died")}, "error_event: EngineCore died"),
        ({"failure": StreamFailure(FailureKind.IDLE_TIMEOUT, "nothing")}, "idle_timeout"),
        ({"completion_tokens": None}, "usage_missing"),
        ({"completion_tokens": 19}, "usage_inconsistent"),
        ({"asked_tokens": 21}, "token_count: asked for 21 completion tokens, got 20"),
        ({"asked_tokens": 19}, "token_count"),
    ],
)
def test_invalid_stream_has_a_named_reason_and_no_rates(changes: dict[str, Any], name: str) -> None:
    rates = rates_of(trace_of(steady([1] * 20), **changes))
    assert not rates.valid
    assert (rates.invalid_reason or "").startswith(name)
    assert [getattr(rates, r) for r in RATES] == [None] * len(RATES)


def test_running_count_that_falls_is_invalid() -> None:
    chunks = steady([1] * 20)
    chunks[10] = chunks[10]._replace(tokens=5)
    assert (rates_of(trace_of(chunks)).invalid_reason or "").startswith("usage_inconsistent")


def test_null_text_is_a_named_outcome() -> None:
    chunks = [Chunk(c.t, {}, c.tokens, None, null_text=True) for c in steady([1] * 20)]
    assert (rates_of(trace_of(chunks)).invalid_reason or "").startswith("null_text: 20 tokens")


def test_empty_text_leaves_ttft_unknown_but_tokens_countable() -> None:
    rates = rates_of(trace_of([Chunk(c.t, {}, c.tokens) for c in steady([1] * 20, rate=50)]))
    assert rates.decode_tok_s == pytest.approx(50)
    assert rates.ttft_s is None
    assert "ttft_s, prefill_tok_s: empty_text" in (rates.null_reason or "")


@pytest.mark.parametrize(("cached", "warm"), [(0, False), (2, False), (3, True), (112, True)])
def test_warm_prefix_cache_spoils_ttft_and_prefill_only(cached: int, warm: bool) -> None:
    rates = rates_of(trace_of(steady([1] * 20, rate=50), cached_tokens=cached))
    assert rates.valid
    assert rates.decode_tok_s == pytest.approx(50)
    assert (rates.ttft_s is None, rates.prefill_tok_s is None) == (warm, warm)
    assert ("ttft_s, prefill_tok_s: warm_prefix_cache" in (rates.null_reason or "")) is warm


def test_unmatched_prompt_tokens_unreported_cache_and_missing_done_are_flagged() -> None:
    trace = trace_of(steady([1] * 20), cached_tokens=None, done=False, asked_prompt_tokens=127, client_lag_s=None)
    assert set(rates_of(trace).flags) == {CACHE_UNREPORTED, NO_DONE, PROMPT_TOKENS_DIFFER, CLIENT_LAG_UNMEASURED}
    assert rates_of(trace_of(steady([1] * 20), asked_prompt_tokens=128)).flags == ()


@pytest.mark.parametrize(("lag_s", "flagged"), [(0.0002, False), (0.00021, True)])
def test_client_lag_over_one_percent_of_itl_is_flagged(lag_s: float, flagged: bool) -> None:
    trace = trace_of([text_chunk(0.5 + i / 64, i + 1) for i in range(20)], client_lag_s=lag_s * (1000 / 64) / 20)
    assert (CLIENT_LAG in rates_of(trace).flags) is flagged


def test_tokens_after_the_window_are_flagged_not_counted() -> None:
    chunks = steady([1] * 20, rate=50)
    rates = rates_of(trace_of([*chunks, Chunk(chunks[-1].t + 1, {}, 21, "length")]))
    assert rates.decode_tok_s == pytest.approx(50)
    assert TOKENS_AFTER_WINDOW in rates.flags


def test_latencies_weigh_each_token_of_a_chunk() -> None:
    """Eight chunks of 1 token after 10 ms, then one chunk of 8 tokens after 160 ms: half the tokens took 20 ms each."""
    chunks = [text_chunk(1 + i * 0.01, i + 1) for i in range(9)]
    itl, _ = inter_token_latencies(trace_of([*chunks, text_chunk(1.08 + 0.16, 17)]))
    assert sorted((round(dt, 9), k) for dt, k in itl) == [*[(0.01, 1)] * 8, (0.02, 8)]
    assert weighted_percentile(itl, 50) == pytest.approx(0.01)
    assert weighted_percentile(itl, 90) == pytest.approx(0.02)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 4)), min_size=1, max_size=30), st.sampled_from([50, 90, 99, 100]))
def test_weighted_percentile_is_the_nearest_rank_of_the_expanded_list(pairs: list[tuple[int, int]], percent: int) -> None:
    expanded = sorted(v for v, k in pairs for _ in range(k))
    rank = -(-percent * len(expanded) // 100)
    assert weighted_percentile([(float(v), k) for v, k in pairs], percent) == expanded[rank - 1]


def test_percentile_of_nothing_is_unknown() -> None:
    assert weighted_percentile([], 50) is None


@settings(deadline=None)
@given(SIZES, st.floats(1.0, 1000.0))
def test_aggregate_of_one_stream_is_its_decode_rate(sizes: list[int], rate: float) -> None:
    trace = trace_of(steady(sizes, rate))
    decode, reason = decode_tok_s(trace)
    assert aggregate_tok_s([trace]) == (decode, None if reason is None else f"stream 0: {reason}")


@settings(deadline=None)
@given(st.lists(st.tuples(SIZES, st.floats(10.0, 500.0), st.floats(0.0, 5.0)), min_size=2, max_size=6))
def test_aggregate_never_exceeds_the_sum_of_decode_rates(streams: list[tuple[list[int], float, float]]) -> None:
    traces = [trace_of(steady(sizes, rate, 0.1 + start)) for sizes, rate, start in streams]
    decodes = [decode_tok_s(t)[0] for t in traces]
    aggregate, reason = aggregate_tok_s(traces)
    if None in decodes:
        assert aggregate is None
        assert reason is not None
    else:
        assert aggregate is not None
        assert aggregate <= sum(d for d in decodes if d is not None) * (1 + 1e-9)


def test_aggregate_leaves_out_every_first_chunk() -> None:
    """Two streams of 8 chunks of 4 tokens, the second 0.1 s later: (28 + 28) tokens from t = 1.0 to t = 1.8."""
    first = [text_chunk(1 + i * 0.1, 4 * (i + 1)) for i in range(8)]
    second = [text_chunk(1.1 + i * 0.1, 4 * (i + 1)) for i in range(8)]
    assert aggregate_tok_s([trace_of(first), trace_of(second)])[0] == pytest.approx(56 / 0.8)


@pytest.mark.parametrize("bad", [{"asked_tokens": 99}, {"failure": StreamFailure(FailureKind.DROPPED, "gone")}])
def test_aggregate_with_an_invalid_stream_is_unknown(bad: dict[str, Any]) -> None:
    good = trace_of(steady([1] * 20))
    value, reason = aggregate_tok_s([good, replace(good, **bad)])
    assert value is None
    assert (reason or "").startswith("stream 1: ")


def test_aggregate_of_no_streams_is_unknown() -> None:
    assert aggregate_tok_s([]) == (None, "no streams")


@pytest.mark.parametrize(
    ("previous", "latest", "agree"),
    [(100, 95, True), (95, 100, True), (100, 94.9, False), (None, 100, False), (100, None, False), (None, None, False)],
)
def test_warmup_settles_when_two_known_rates_agree_within_five_percent(previous: float | None, latest: float | None, agree: bool) -> None:
    assert settled(previous, latest) is agree


@pytest.mark.parametrize(
    ("client", "engine", "agree"),
    [(980, 1000, True), (979, 1000, False), (1021, 1000, False), (None, 1000, None), (5, None, None), (5, 0, False)],
)
def test_counts_agree_within_two_percent_or_are_unknown(client: int | None, engine: int | None, agree: bool | None) -> None:
    assert counts_agree(client, engine) is agree


def test_trace_with_time_running_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="monotonic"):
        trace_of([text_chunk(2, 1), text_chunk(1, 2)])


def test_steady_helper_is_a_truth_of_its_own() -> None:
    """The oracle must not use the code under test: the helper's tokens really are 1/rate apart."""
    chunks = steady([2, 3, 1], rate=10, first_token_at=1.0)
    assert [c.t for c in chunks] == [1.1, 1.4, 1.5]
    assert [b.tokens - a.tokens for a, b in pairwise(chunks) if a.tokens and b.tokens] == [3, 1]
