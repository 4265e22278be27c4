"""Whole measurements against a scripted server: what is kept, what is invalid, and what ends them."""

from __future__ import annotations

import gc
import re
from collections.abc import Mapping
from typing import Any

import pytest

from results.records import SampleRecord
from runners.prompts import Vocabulary
from runners.request_fields import CONTINUOUS_USAGE, TIMED_FIELDS
from runners.sse import read_trace
from runners.stream import StreamPolicy, Target
from runners.stream_trace import StreamTrace
from runners.throughput import (
    COUNTS_DIFFER,
    NO_VALID_SAMPLE,
    UNSETTLED,
    BatchDone,
    BatchStarted,
    Event,
    ThroughputPlan,
    ThroughputResult,
    WindowDone,
    measure,
)
from suites.workloads import Workload
from tests.scripted_engine import ScriptedEngine
from tests.scripted_script import Script
from tests.scripted_server import ScriptedServer
from tests.virtual_time import ScriptedTransport, virtual_time

ONE = Workload("one", prompt_tokens=40, completion_tokens=24, concurrency=1, repeats=3)
FOUR = Workload("four", prompt_tokens=40, completion_tokens=24, concurrency=4, repeats=2)
GOOD = Script(first_delay_s=0.02, step_s=0.004)
VOCABULARY = Vocabulary(1024, bos_id=1019, forbidden_ids=frozenset(range(1018, 1024)))
WARMUPS = 3


def counter(page: str) -> int | None:
    found = re.search(r"^vllm:generation_tokens_total\{[^}]*\} ([0-9.]+)$", page, re.MULTILINE)
    return int(float(found[1])) if found else None


def plan(*workloads: Workload, **changes: Any) -> ThroughputPlan:
    given: dict[str, Any] = {"accepted": frozenset(TIMED_FIELDS), "launch_bound": True, "max_warmups": WARMUPS}
    return ThroughputPlan("run-1", workloads, VOCABULARY, **(given | changes))


Events = list[Event]


def simulated(
    script: Script,
    *workloads: Workload,
    then: Mapping[int, Script] | None = None,
    count: Any = counter,
    window_counters: Any = lambda before, after: {},
    **changes: Any,
) -> tuple[ThroughputResult, Events, ScriptedEngine]:
    """A measurement in virtual time: every rate comes out exactly as scripted."""
    engine, events = ScriptedEngine(script, then=then), Events()
    target = Target("http://engine", "m", transport=ScriptedTransport(engine))
    with virtual_time() as time:
        result = measure(target, plan(*workloads, **changes), count, events.append, time.clock, window_counters)
    return result, events, engine


def measured(script: Script, *workloads: Workload, then: Mapping[int, Script] | None = None, **changes: Any) -> ThroughputResult:
    """A measurement over sockets: nothing that depends on time may be asserted."""
    with ScriptedServer(script, then=then) as server:
        return measure(Target(server.base_url, "m"), plan(*workloads, **changes), counter)


def timed(result: ThroughputResult, workload: Workload) -> list[SampleRecord]:
    return [s for s in result.samples if s.workload == workload.name and not s.cold]


def test_every_repeat_of_every_stream_is_a_sample() -> None:
    result, events, _ = simulated(GOOD, ONE, FOUR)
    assert [(s.repeat, s.stream) for s in timed(result, ONE)] == [(0, 0), (1, 0), (2, 0)]
    assert [(s.repeat, s.stream) for s in timed(result, FOUR)] == [(r, s) for r in range(2) for s in range(4)]
    assert all(s.valid and s.launch_bound and s.run_id == "run-1" and s.completion_tokens == 24 for s in result.samples)
    assert all(s.concurrency == 4 for s in timed(result, FOUR))
    assert result.failure is None
    told = [s for e in events if isinstance(e, BatchDone) for s in e.samples]
    assert told == list(result.samples)


def test_rates_are_those_of_the_engine() -> None:
    """First token after 20 ms, then one every 4 ms; 24 tokens of 40 prompt tokens."""
    result, _, _ = simulated(GOOD, ONE, FOUR)
    for sample in result.samples:
        assert sample.ttft_s == pytest.approx(0.02)
        assert sample.prefill_tok_s == pytest.approx(40 / 0.02)
        assert sample.decode_tok_s == pytest.approx(250)
        assert [sample.itl_p50_s, sample.itl_p90_s, sample.itl_p99_s] == [pytest.approx(0.004)] * 3
        assert sample.e2e_s == pytest.approx(0.02 + 23 * 0.004)
        assert sample.e2e_tok_s == pytest.approx(24 / (0.02 + 23 * 0.004))
        assert sample.aggregate_tok_s == pytest.approx(250 * sample.concurrency)
        assert sample.null_reason is None


def test_speculative_chunks_do_not_change_the_rate() -> None:
    fast = Script(first_chunk_tokens=4, chunk_tokens=4, first_delay_s=0.02, step_s=0.016)
    result, _, _ = simulated(fast, Workload("spec", 40, 64, 1, 2))
    assert [s.decode_tok_s for s in timed(result, Workload("spec", 40, 64, 1, 2))] == [pytest.approx(250)] * 2


def test_no_garbage_is_collected_while_a_batch_is_received_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    collecting: list[bool] = []

    def read(*arguments: Any) -> StreamTrace:
        collecting.append(gc.isenabled())
        return read_trace(*arguments)

    monkeypatch.setattr("runners.throughput.read_trace", read)
    simulated(GOOD, ONE)
    assert collecting
    assert not any(collecting)
    assert gc.isenabled()


def test_warmup_samples_are_cold_and_apart() -> None:
    result, events, _ = simulated(GOOD, ONE)
    cold = [s for s in result.samples if s.cold]
    assert [s.repeat for s in cold] == [0, 1], "two batches that agree are enough"
    assert [e.cold for e in events if isinstance(e, BatchStarted)] == [True, True, False, False, False]


def test_warmup_goes_on_until_two_batches_in_a_row_agree() -> None:
    compiling, cold = Script(step_s=0.1), Script(step_s=0.02)
    result, _, _ = simulated(GOOD, ONE, then={0: compiling, 1: cold}, max_warmups=6)
    rates = [s.decode_tok_s for s in result.samples if s.cold]
    assert rates == [pytest.approx(10), pytest.approx(50), pytest.approx(250), pytest.approx(250)]
    assert [s.decode_tok_s for s in timed(result, ONE)] == [pytest.approx(250)] * 3


def test_unsettled_warmup_is_flagged_on_every_timed_sample() -> None:
    steps = {n: Script(step_s=0.1 / 2**n) for n in range(WARMUPS)}
    result, _, _ = simulated(GOOD, ONE, then=steps)
    assert len([s for s in result.samples if s.cold]) == WARMUPS
    assert [UNSETTLED in s.flags for s in timed(result, ONE)] == [True] * 3
    assert [w.partition(":")[0] for w in result.warnings] == [UNSETTLED]
    settled_result, _, _ = simulated(GOOD, ONE)
    assert not any(UNSETTLED in s.flags for s in settled_result.samples)


def test_batch_starts_its_streams_together() -> None:
    """Together, four streams need the time of one; one after the other, the aggregate would be that of one."""
    result, events, _ = simulated(GOOD, FOUR)
    assert [s.aggregate_tok_s for s in timed(result, FOUR)] == [pytest.approx(1000)] * 8
    assert {e.concurrency for e in events if isinstance(e, BatchStarted)} == {4}


def test_prompts_never_hit_a_real_prefix_cache() -> None:
    """The engine keeps every prompt, page size 1, as SGLang does: only the BOS token and a chance match may be cached."""
    result, _, engine = simulated(Script(page_size=1), ONE, FOUR)
    assert all((s.cached_tokens or 0) <= 2 and s.ttft_s is not None for s in result.samples)
    prompts = [tuple(body["prompt"]) for body in engine.streamed()]
    assert len(set(prompts)) == len(prompts)
    assert {len(p) for p in prompts} == {40}


def test_warm_cache_makes_ttft_null_and_says_why() -> None:
    result, _, _ = simulated(Script(cached_tokens=32), ONE)
    for sample in timed(result, ONE):
        assert (sample.valid, sample.cached_tokens, sample.ttft_s, sample.prefill_tok_s) == (True, 32, None, None)
        assert (sample.null_reason or "").startswith("ttft_s, prefill_tok_s: warm_prefix_cache")
        assert sample.decode_tok_s is not None


def test_request_has_only_accepted_fields() -> None:
    _, _, engine = simulated(GOOD, ONE, accepted=frozenset(TIMED_FIELDS) - {"min_tokens"})
    (keys,) = {frozenset(body) for body in engine.streamed()}
    assert keys == {"model", "prompt", "max_tokens", "temperature", "stream", "stream_options", "ignore_eos", "skip_special_tokens"}


def test_without_running_usage_rates_are_null_but_samples_stay() -> None:
    result, _, _ = simulated(GOOD, ONE, accepted=frozenset(TIMED_FIELDS) - {CONTINUOUS_USAGE})
    for sample in timed(result, ONE):
        assert (sample.valid, sample.decode_tok_s, sample.aggregate_tok_s) == (True, None, None)
        assert sample.ttft_s == pytest.approx(0.02)
        assert "decode_tok_s, itl_s: first_chunk_uncounted" in (sample.null_reason or "")
        assert "aggregate_tok_s: stream 0: first_chunk_uncounted" in (sample.null_reason or "")


def test_token_counts_of_client_and_engine_are_compared() -> None:
    result, _, _ = simulated(GOOD, ONE)
    assert result.client_token_count == 24 * len(result.samples)
    assert result.engine_token_count == result.client_token_count
    assert result.warnings == ()


def test_engine_that_counts_otherwise_is_a_warning() -> None:
    result, _, engine = simulated(Script(metrics_factor=1.1), ONE)
    assert result.engine_token_count == round(1.1 * engine.generated)
    assert [w.partition(":")[0] for w in result.warnings] == [COUNTS_DIFFER]


def test_engine_counters_cover_the_timed_repeats_alone() -> None:
    """Warm-up tokens are not in the window, and every workload has a window of its own."""
    windows: list[tuple[int, int]] = []

    def counted(before: str, after: str) -> dict[str, float]:
        windows.append((counter(before) or 0, counter(after) or 0))
        return {"generation_tokens": float(windows[-1][1] - windows[-1][0])}

    result, events, _ = simulated(GOOD, ONE, FOUR, window_counters=counted)
    assert [(c.workload, c.metric, c.value) for c in result.counters] == [
        ("one", "generation_tokens", 24.0 * 3),
        ("four", "generation_tokens", 24.0 * 4 * 2),
    ]
    assert windows[0][0] == 24 * 2, "the window begins after the warm-up"
    told = [c for e in events if isinstance(e, WindowDone) for c in e.counters]
    assert told == list(result.counters)


def test_a_workload_that_failed_has_no_engine_counters() -> None:
    result, _, _ = simulated(Script(drop_after=3), ONE, window_counters=lambda before, after: {"generation_tokens": 1.0})
    assert result.failure is not None
    assert result.counters == ()


def test_engine_that_counts_late_is_asked_again() -> None:
    """The counter is right only a second after the last token."""
    engine = ScriptedEngine(GOOD)
    with virtual_time() as time:
        ended = 0.0

        def late(page: str) -> int:
            return (counter(page) or 0) if time.clock() >= ended + 1.0 else 0

        def on_event(event: Event) -> None:
            nonlocal ended
            ended = time.clock()

        result = measure(Target("http://engine", "m", transport=ScriptedTransport(engine)), plan(ONE), late, on_event, time.clock)
    assert (result.client_token_count, result.engine_token_count, result.warnings) == (120, 120, ())


@pytest.mark.parametrize(("at_first", "later"), [(None, None), (500, 20)])
def test_engine_without_a_usable_counter_is_unknown_not_a_warning(at_first: int | None, later: int | None) -> None:
    """No counter, or one that fell because the engine started anew."""
    result, _, _ = simulated(GOOD, ONE, count=lambda page: later if counter(page) else at_first)
    assert (result.client_token_count, result.engine_token_count, result.warnings) == (120, None, ())


def test_one_error_event_costs_one_sample() -> None:
    result, _, _ = simulated(GOOD, ONE, then={3: Script(error_after=5)})
    invalid = [s for s in timed(result, ONE) if not s.valid]
    assert [s.repeat for s in invalid] == [1]
    assert (invalid[0].invalid_reason or "").startswith("error_event")
    assert invalid[0].decode_tok_s is None
    assert (len(timed(result, ONE)), result.failure) == (3, None)
    assert result.client_token_count is None, "tokens of a failed stream are unknown"


def test_early_stop_everywhere_leaves_no_valid_sample_and_that_is_a_failure() -> None:
    result, _, _ = simulated(Script(stop_after_tokens=13), ONE)
    assert len(timed(result, ONE)) == 3
    assert not any(s.valid for s in result.samples)
    assert result.failure is not None
    assert result.failure.kind == NO_VALID_SAMPLE
    assert "token_count: asked for 24 completion tokens, got 13" in result.failure.reason


@pytest.mark.parametrize("limit", ["first_byte_s", "idle_s", "total_s"])
def test_hang_costs_its_limit_and_not_more(limit: str) -> None:
    """With the real limits of minutes, in no time."""
    policy = StreamPolicy(first_byte_s=300, idle_s=60, total_s=900)
    fault = {
        "first_byte_s": Script(hang_after=0),
        "idle_s": Script(hang_after=5),
        "total_s": Script(step_s=50, first_delay_s=50),
    }[limit]
    result, _, _ = simulated(fault, ONE, policy=policy)
    assert result.failure is not None
    assert result.failure.is_hang
    assert f"{getattr(policy, limit):g} s" in result.failure.detail
    assert len(result.samples) == 1


@pytest.mark.parametrize("fields", ["stream_options", "prompt"])
def test_server_that_refuses_everything_is_a_failure(fields: str) -> None:
    result = measured(Script(refuses=frozenset({fields})), ONE)
    assert result.failure is not None
    assert result.failure.kind == "http_status"
    assert len(result.samples) == 2, "two batches in a row that failed entirely are enough"


@pytest.mark.parametrize(
    ("fault", "kind", "hang", "lost"),
    [
        (Script(hang_after=5), "idle_timeout", True, False),
        (Script(hang_after=0), "first_byte_timeout", True, False),
        (Script(drop_after=5), "dropped", False, True),
        (Script(die_after=5), "dropped", False, True),
    ],
)
def test_fault_in_the_middle_ends_the_measurement_and_keeps_what_was_measured(fault: Script, kind: str, hang: bool, lost: bool) -> None:
    policy = StreamPolicy(first_byte_s=1.0, idle_s=1.0)
    result = measured(GOOD, ONE, FOUR, then={3: fault}, max_warmups=2, policy=policy)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.workload, result.failure.repeat, result.failure.cold) == (kind, "one", 1, False)
    assert (result.failure.is_hang, result.failure.is_lost) == (hang, lost)
    assert result.failure.reason.startswith(f"workload one, repeat 1: {kind}: ")
    assert [s.valid for s in result.samples] == [True, True, True, False]
    assert not timed(result, FOUR)
    assert (result.client_token_count, result.engine_token_count is None) == (None, fault.die_after is not None)


def test_server_that_is_not_there_is_a_failure_with_no_valid_sample() -> None:
    with ScriptedServer() as gone:
        address = gone.base_url
    result = measure(Target(address, "m"), plan(ONE), counter)
    assert result.failure is not None
    assert (result.failure.kind, result.failure.cold, len(result.samples)) == ("connect_failed", True, 1)


def test_workload_that_does_not_fit_the_context_is_refused_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="workload one needs 64 tokens of context, the server has 63"):
        plan(ONE, max_model_len=63)
    assert plan(ONE, max_model_len=64).max_model_len == 64


def test_prompt_too_short_for_its_nonce_is_refused_before_anything_starts() -> None:
    with ScriptedServer() as server, pytest.raises(ValueError, match="needs at least 25 tokens"):
        measure(Target(server.base_url, "m"), plan(Workload("tiny", 8, 8, 1, 1)), counter)
    assert server.engine.requests == []


def test_one_warmup_batch_cannot_agree_with_anything() -> None:
    with pytest.raises(ValueError, match="max_warmups is 1"):
        plan(ONE, max_warmups=1)
