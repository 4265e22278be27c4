"""Reading recorded streams: any border, any framing, any answer becomes a trace or a named failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runners.rates import rates_of
from runners.sse import MAX_EVENT_BYTES, Block, RawStream, iter_events, json_or_none, read_trace
from runners.stream_trace import FailureKind, StreamFailure, StreamTrace

STREAMS = Path(__file__).parents[1] / "data" / "streams"


def raw_of(*pieces: bytes, status: int | None = 200, failure: StreamFailure | None = None) -> RawStream:
    """Piece number n arrives at 1 + n."""
    blocks = tuple(Block(1.0 + n, piece) for n, piece in enumerate(pieces))
    return RawStream(0.0, 1.0 + len(pieces), status, blocks, failure)


def event(payload: Any, newline: str = "\n") -> bytes:
    return f"data: {json.dumps(payload, ensure_ascii=False)}{newline * 2}".encode()


def text_event(text: str | None, tokens: int | None = None, finish: str | None = None) -> bytes:
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 5, "completion_tokens": tokens}}
    return event({"choices": [{"index": 0, "text": text, "finish_reason": finish}], **usage})


def delta_event(**delta: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def final_usage(**usage: Any) -> bytes:
    return event({"choices": [], "usage": usage})


DONE = b"data: [DONE]\n\n"


def loaded(name: str) -> tuple[RawStream, dict[str, Any]]:
    """A recorded stream; bytes were stored one to one as Latin-1 characters."""
    recorded = json.loads((STREAMS / f"{name}.json").read_text(encoding="utf-8"))
    blocks = tuple(Block(t, text.encode("latin-1")) for t, text in recorded["blocks"])
    return RawStream(recorded["t_sent"], recorded["t_end"], recorded["status"], blocks), recorded["request"]


def recut(raw: RawStream, sizes: list[int]) -> RawStream:
    """The same bytes in other pieces (sizes repeat), all at the time of the last block."""
    body, pieces, n = b"".join(b.data for b in raw.blocks), [], 0
    while body:
        size = sizes[n % len(sizes)]
        pieces.append(Block(raw.blocks[-1].t, body[:size]))
        body, n = body[size:], n + 1
    return RawStream(raw.t_sent, raw.t_end, raw.status, tuple(pieces), raw.failure)


def without_times(trace: StreamTrace) -> tuple[Any, ...]:
    chunks = [(dict(c.text_len), c.tokens, c.finish_reason, c.null_text) for c in trace.chunks]
    return chunks, trace.prompt_tokens, trace.completion_tokens, trace.cached_tokens, trace.failure, trace.done


@settings(deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=20), st.sampled_from(["vllm-0.32.0-cpu-chat", "sglang-0.5.14-cpu-completions"]))
def test_block_borders_do_not_matter(sizes: list[int], name: str) -> None:
    raw, _ = loaded(name)
    assert without_times(read_trace(recut(raw, sizes), 1)) == without_times(read_trace(raw, 1))


@settings(deadline=None)
@given(st.sampled_from(["\n", "\r\n", "\r"]), st.integers(1, 7))
def test_every_line_end_works_even_when_split(newline: str, size: int) -> None:
    body = text_event("é", 1) + b": keep-alive\n\n" + text_event("b", 2, "length") + final_usage(completion_tokens=2) + DONE
    body = body.replace(b"\n", newline.encode())
    trace = read_trace(raw_of(*(body[i : i + size] for i in range(0, len(body), size))), 2)
    assert [(c.text_len, c.tokens) for c in trace.chunks] == [({"text": 1}, 1), ({"text": 1}, 2)]
    assert (trace.failure, trace.done) == (None, True)


def test_event_time_is_the_arrival_of_the_byte_that_completes_its_data() -> None:
    first, second = text_event("a", 1), text_event("b", 2)
    trace = read_trace(raw_of(first[:10], first[10:-1], first[-1:] + second[:-2], second[-2:] + DONE), 2)
    assert [c.t for c in trace.chunks] == [2.0, 4.0]


def test_stream_ends_at_done_not_at_the_end_of_the_connection() -> None:
    trace = read_trace(raw_of(text_event("a", 1, "length"), DONE, b": bye\n\n"), 1)
    assert trace.t_end == 2.0


def test_events_after_done_are_not_read() -> None:
    trace = read_trace(raw_of(text_event("a", 1, "length"), DONE, text_event("b", 2)), 1)
    assert len(trace.chunks) == 1


def test_several_data_lines_are_one_event_and_other_fields_are_ignored() -> None:
    events = list(iter_events(raw_of(b"\xef\xbb\xbfid: 7\nevent: x\ndata: {\ndata:}\nretry: 5\nnonsense\n\n").blocks))
    assert [(e.event, e.data) for e in events] == [("x", "{\n}")]


def test_invalid_utf8_is_replaced_not_fatal() -> None:
    trace = read_trace(raw_of(b'data: {"choices":[{"text":"\xff\xfe"}]}\n\n' + DONE), 1)
    assert trace.chunks[0].text_len == {"text": 2}


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content"])
def test_chat_text_is_read_from_each_field(field: str) -> None:
    trace = read_trace(raw_of(delta_event(role="assistant", content=""), delta_event(**{field: "abc"}), DONE), 1)
    assert [c.text_len for c in trace.chunks] == [{}, {field: 3}]


def test_null_text_is_not_text() -> None:
    trace = read_trace(raw_of(delta_event(content=None), delta_event(content=None, reasoning="x"), delta_event(content=""), DONE), 1)
    assert [(c.has_text, c.null_text) for c in trace.chunks] == [(False, True), (True, False), (False, False)]


@pytest.mark.parametrize(
    "payload",
    [
        {"choices": []},
        {"choices": None},
        {"choices": "x"},
        {"choices": [None]},
        {"choices": {"0": 1}},
        {"usage": None, "error": None},
        {},
    ],
)
def test_event_without_a_choice_is_no_chunk(payload: dict[str, Any]) -> None:
    trace = read_trace(raw_of(event(payload), text_event("a", 1, "length"), DONE), 1)
    assert (len(trace.chunks), trace.failure) == (1, None)


@pytest.mark.parametrize(
    "usage", [None, [], "9", {"completion_tokens": "9"}, {"completion_tokens": True}, {"completion_tokens": -1}, {"completion_tokens": 1e3}]
)
def test_usage_that_is_no_count_is_no_count(usage: Any) -> None:
    trace = read_trace(raw_of(event({"choices": [{"text": "a", "finish_reason": "stop"}], "usage": usage}), DONE), 9)
    assert (trace.completion_tokens, trace.chunks[0].tokens) == (None, None)


def test_cached_tokens_come_from_the_final_usage() -> None:
    usage = {"prompt_tokens": 64, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 48}}
    trace = read_trace(raw_of(text_event("a", 1, "length"), final_usage(**usage), DONE), 1)
    assert (trace.prompt_tokens, trace.completion_tokens, trace.cached_tokens) == (64, 1, 48)


@pytest.mark.parametrize(
    ("body", "detail", "status"),
    [
        (b'event: error\ndata: {"message": "boom", "code": 500}\n\n', "boom", 500),
        (b"event: error\ndata: engine gone\n\n", "engine gone", None),
        (event({"error": {"message": "boom", "type": "x", "code": 400}}), "boom", 400),
        (event({"error": "boom"}), "boom", None),
        (event({"object": "error", "message": "boom", "code": 503}), "boom", 503),
        (event({"error": {"type": "x", "code": "y"}}), "type=x, code=y", None),
        (event({"error": {}}), "an error without a message", None),
        (event({"choices": [{"text": "", "finish_reason": "abort"}]}), "finish_reason abort", None),
    ],
)
def test_error_event_fails_the_stream(body: bytes, detail: str, status: int | None) -> None:
    trace = read_trace(raw_of(text_event("a", 1), body, text_event("b", 2, "length"), DONE), 2)
    assert trace.failure == StreamFailure(FailureKind.ERROR_EVENT, detail, status)
    assert not rates_of(trace).valid


def test_error_detail_is_short_redacted_and_without_escapes() -> None:
    secret = "hf_" + "a" * 30
    trace = read_trace(raw_of(event({"error": {"message": f"\x1b[31mtoken {secret} " + "x" * 10_000}})), 1)
    assert trace.failure is not None
    detail = trace.failure.detail
    assert (len(detail) <= 500, secret in detail, "\x1b" in detail) == (True, False, False)


@pytest.mark.parametrize(
    "body",
    [b"data: {broken\n\n", b"data: [1]\n\n", b"data: 5\n\n", b"data: " + b"[" * 100_000 + b"\n\n", b"data: " + b"9" * 5000 + b"\n\n"],
)
def test_event_that_is_no_json_object_fails_the_stream(body: bytes) -> None:
    trace = read_trace(raw_of(text_event("a", 1), body, DONE), 1)
    assert trace.failure is not None
    assert trace.failure.kind is FailureKind.MALFORMED_EVENT


def test_huge_event_is_dropped_and_named() -> None:
    trace = read_trace(raw_of(text_event("a", 1), b"data: " + b"x" * (MAX_EVENT_BYTES + 1) + b"\n\n"), 1)
    assert trace.failure is not None
    assert trace.failure.kind is FailureKind.MALFORMED_EVENT
    assert str(MAX_EVENT_BYTES) in trace.failure.detail


def test_half_an_event_at_a_drop_is_the_drop_not_a_malformed_event() -> None:
    drop = StreamFailure(FailureKind.DROPPED, "gone")
    trace = read_trace(raw_of(text_event("a", 1), b'data: {"choi', failure=drop), 1)
    assert (trace.failure, len(trace.chunks)) == (drop, 1)


def test_connection_lost_after_done_is_no_failure() -> None:
    trace = read_trace(raw_of(text_event("a", 1, "length"), DONE, failure=StreamFailure(FailureKind.DROPPED, "gone")), 1)
    assert (trace.failure, trace.done) == (None, True)


def test_end_without_finish_or_done_is_truncated() -> None:
    trace = read_trace(raw_of(text_event("a", 1)), 1)
    assert trace.failure is not None
    assert trace.failure.kind is FailureKind.TRUNCATED


def test_finish_without_done_is_complete_and_flagged() -> None:
    trace = read_trace(raw_of(text_event("a", 1, "length")), 1)
    assert (trace.failure, trace.done) == (None, False)
    assert "no_done_marker" in rates_of(trace).flags


def test_done_without_its_line_end_counts() -> None:
    assert read_trace(raw_of(text_event("a", 1, "length"), b"data: [DONE]"), 1).done


@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b'{"choices": [{"text": "not a stream"}]}'])
def test_answer_without_events_is_not_a_stream(body: bytes) -> None:
    trace = read_trace(raw_of(body), 1)
    assert trace.failure is not None
    assert trace.failure.kind is FailureKind.NOT_A_STREAM


def test_json_error_with_status_200_is_an_error() -> None:
    trace = read_trace(raw_of(b'{"error": {"message": "busy", "code": 503}}'), 1)
    assert trace.failure == StreamFailure(FailureKind.ERROR_EVENT, "busy", 503)


def test_http_error_keeps_an_excerpt_of_the_body() -> None:
    trace = read_trace(raw_of(b'{"error":"max_tokens too large"}', status=400), 1)
    assert trace.failure == StreamFailure(FailureKind.HTTP_STATUS, 'HTTP 400: {"error":"max_tokens too large"}', 400)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "text", "usage", "completion_tokens", "error", "message", "code", "finish_reason", "object"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    st.lists(st.one_of(JSON.map(event), st.binary(max_size=40), st.just(DONE), st.just(b"\n\n"), st.just(b"data: ")), max_size=12),
    st.sampled_from([200, 404]),
)
def test_no_bytes_make_the_reader_raise(pieces: list[bytes], status: int) -> None:
    trace = read_trace(raw_of(*pieces, status=status), 4)
    rates = rates_of(trace)
    assert rates.valid or rates.invalid_reason


def test_deep_json_is_refused_not_fatal() -> None:
    assert json_or_none("[" * 100_000) is None


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c))
)
@example("\ud83d")
@example([float("nan"), 1e400, 10**400])
def test_both_readers_of_json_agree(value: Any) -> None:
    """Half a surrogate pair, which the quick one refuses, included; so is text that ends too early."""
    text = json.dumps(value)
    assert repr(json_or_none(text)) == repr(json_or_none(text.encode())) == repr(json.loads(text))
    assert json_or_none(text + ",") is None


@pytest.mark.parametrize(
    ("name", "asked", "prompt", "field"),
    [
        ("vllm-0.32.0-cpu-completions", 48, 64, "text"),
        ("vllm-0.32.0-cpu-chat", 24, 7, "content"),
        ("sglang-0.5.14-cpu-completions", 48, 64, "text"),
        ("sglang-0.5.14-cpu-chat", 24, 7, "content"),
    ],
)
def test_recorded_streams_are_read_completely(name: str, asked: int, prompt: int, field: str) -> None:
    raw, request = loaded(name)
    trace = read_trace(raw, request["max_tokens"], prompt)
    rates = rates_of(trace)
    assert (request["max_tokens"], trace.completion_tokens, trace.prompt_tokens) == (asked, asked, prompt)
    assert (trace.failure, trace.done, rates.valid, rates.carried_by) == (None, True, True, field)
    assert trace.chunks[-1].finish_reason == "length"


def test_recorded_stream_has_more_tokens_than_chunks() -> None:
    """A busy engine puts several tokens into one chunk: counting chunks would undercount."""
    raw, request = loaded("vllm-0.32.0-cpu-early-stop")
    trace = read_trace(raw, request["max_tokens"])
    assert (trace.completion_tokens, sum(c.has_text for c in trace.chunks)) == (13, 3)


def test_recorded_burst_has_no_decode_rate() -> None:
    """Sixteen chunks in one read of the socket: any rate from them would be the speed of our parser."""
    raw, request = loaded("vllm-0.32.0-cpu-burst")
    trace = read_trace(raw, request["max_tokens"])
    rates = rates_of(trace)
    assert (len(trace.chunks), len({c.t for c in trace.chunks})) == (16, 1)
    assert (rates.valid, rates.decode_tok_s, rates.prefill_tok_s) == (True, None, None)


def test_recorded_warm_cache_gives_no_ttft_but_a_cold_one_does() -> None:
    """SGLang reports the BOS token, which every prompt shares, as cached: that alone is not a warm cache."""
    cold, request = loaded("sglang-0.5.14-cpu-completions")
    warm, _ = loaded("sglang-0.5.14-cpu-warm-cache")
    traces = [read_trace(raw, request["max_tokens"]) for raw in (cold, warm)]
    assert [t.cached_tokens for t in traces] == [1, 63]
    assert [rates_of(t).ttft_s is None for t in traces] == [False, True]
    assert all(rates_of(t).decode_tok_s is not None for t in traces)


def test_recorded_final_usage_alone_leaves_the_decode_rate_unknown() -> None:
    raw, request = loaded("vllm-0.32.0-cpu-final-usage")
    rates = rates_of(read_trace(raw, request["max_tokens"]))
    assert rates.valid
    assert rates.decode_tok_s is None
    assert "first_chunk_uncounted" in (rates.null_reason or "")


def test_recorded_early_stop_is_invalid() -> None:
    raw, request = loaded("vllm-0.32.0-cpu-early-stop")
    assert (rates_of(read_trace(raw, request["max_tokens"])).invalid_reason or "").startswith("token_count: asked for 200")


@pytest.mark.parametrize("name", ["vllm-0.32.0-cpu-refused", "sglang-0.5.14-cpu-refused"])
def test_recorded_refusal_is_http_400(name: str) -> None:
    raw, request = loaded(name)
    failure = read_trace(raw, request["max_tokens"]).failure
    assert failure is not None
    assert (failure.kind, failure.status) == (FailureKind.HTTP_STATUS, 400)
