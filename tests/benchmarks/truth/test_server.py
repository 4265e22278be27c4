"""The truth server over a socket: structure and counts; times are compared with the server's own stamps only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from benchmarks.truth.accuracy import Row, compare
from benchmarks.truth.ours import measure_scenario
from benchmarks.truth.process import RunningTruth, truth_server
from benchmarks.truth.scenarios import SCENARIOS, Scenario, Usage, scenario_named
from benchmarks.truth.schedule import truth_of

FAST = {"tok_s": 2000.0, "tokens": 24, "slow_first_s": 0.01, "streams": 2}
ALL_USAGE = {"include_usage": True, "continuous_usage_stats": True}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningTruth]:
    with truth_server() as running:
        yield running


def events(server: RunningTruth, path: str, **fields: Any) -> list[dict[str, Any]]:
    """The JSON events of one streamed answer that ended with [DONE]."""
    body = {"model": "truth", "prompt": [1, 2, 3], "max_tokens": 6, "stream": True, **fields}
    answer = httpx.post(f"{server.base_url}/v1/{path}", json=body, trust_env=False).raise_for_status()
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


def test_completion_with_usage_in_every_chunk(server: RunningTruth) -> None:
    server.choose(Scenario("s", 2000.0, "", chunk_tokens=(4,)))
    answer = events(server, "completions", stream_options=ALL_USAGE, return_token_ids=True)
    assert [e["choices"][0]["text"] for e in answer[:-1]] == [" one" * 4, " one" * 2, ""]
    assert [len(e["choices"][0].get("token_ids", ())) for e in answer[:-1]] == [4, 2, 0]
    assert [e["usage"]["completion_tokens"] for e in answer if "usage" in e] == [4, 6, 6]
    assert (answer[-1]["choices"], answer[-1]["usage"]["prompt_tokens"]) == ([], 3)


@pytest.mark.parametrize("field", ["content", "reasoning", "reasoning_content"])
def test_chat_has_its_role_chunk_first_and_its_text_where_the_scenario_says(server: RunningTruth, field: str) -> None:
    server.choose(Scenario("s", 2000.0, "", role_chunk=True, text_field=field, usage=Usage.ABSENT), piece="x", prompt_tokens=9)
    answer = events(server, "chat/completions", messages=[{"role": "user", "content": "hi"}], stream_options=ALL_USAGE)
    deltas = [e["choices"][0]["delta"] for e in answer]
    assert deltas == [{"role": "assistant", "content": ""}, *[{field: "x"}] * 6, {}]
    assert not any("usage" in e for e in answer)


def test_scenario_of_completions_asked_as_chat_answers_in_content(server: RunningTruth) -> None:
    server.choose(Scenario("s", 2000.0, ""))
    assert events(server, "chat/completions", messages=[])[0]["choices"][0]["delta"] == {"content": " one"}


def test_refused_field_is_a_400_and_no_stream(server: RunningTruth) -> None:
    server.choose(Scenario("s", 2000.0, "", refuses=("min_tokens",)))
    answer = httpx.post(f"{server.base_url}/v1/completions", json={"prompt": [1], "stream": True, "min_tokens": 3}, trust_env=False)
    assert (answer.status_code, server.sent()) == (400, ())


def test_answer_that_is_not_streamed_comes_whole_and_is_no_truth(server: RunningTruth) -> None:
    server.choose(Scenario("s", 2000.0, ""))
    answer = httpx.post(f"{server.base_url}/v1/completions", json={"prompt": [1], "max_tokens": 3}, trust_env=False).json()
    assert (answer["choices"][0]["text"], server.sent()) == (" one one one", ())


def test_body_that_is_no_json_is_a_400(server: RunningTruth) -> None:
    answer = httpx.post(f"{server.base_url}/v1/completions", content=b"{", trust_env=False, headers={"Connection": "close"})
    assert answer.status_code == 400
    assert httpx.get(f"{server.base_url}/health", trust_env=False).status_code == 200


def test_what_was_sent_is_kept_with_stamps_that_only_rise(server: RunningTruth) -> None:
    server.choose(Scenario("s", 500.0, "", jitter=0.5, stop_after=5))
    events(server, "completions", max_tokens=8)
    ((stream, prompt_tokens),) = server.sent()
    times = [stream.t_request, *(event.t for event in stream.events)]
    assert times == sorted(times)
    assert ([e.kind for e in stream.events], prompt_tokens, stream.asked_tokens) == (["text"] * 5 + ["finish"], 3, 8)
    assert truth_of(stream, prompt_tokens, burst=False).tokens == 5
    assert stream.lateness_s >= 0.0


def measured(server: RunningTruth, scenario: Scenario) -> Row:
    quick = replace(scenario, **{**FAST, "finish_delay_s": min(scenario.finish_delay_s, 0.05)})
    quick = replace(quick, stop_after=quick.stop_after and 5)
    server.choose(quick, prompt_tokens=64)
    return compare("ours", quick, measure_scenario(server.base_url, quick, 1), server.sent())


@pytest.mark.parametrize(
    "name", ["steady_60", "chunks_1_to_8", "refused_fields", "chat_role_early", "chat_reasoning", "chat_reasoning_content"]
)
def test_our_client_says_a_number_where_one_can_be_known(server: RunningTruth, name: str) -> None:
    """Its size is the benchmark's business: here the machine may be busy. Chunks that met in one read are one chunk, so some are null."""
    row = measured(server, replace(scenario_named(name), chunk_tokens=(1,)))
    assert (row.streams, row.decode_true_tok_s) == (2, pytest.approx(2000, rel=0.5))
    assert row.ttft_error_s is not None


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if not s.decode_known], ids=lambda s: s.name)
def test_our_client_says_null_with_a_reason_where_no_rate_can_be_known(server: RunningTruth, scenario: Scenario) -> None:
    row = measured(server, scenario)
    assert (row.streams, row.nulls, row.decode_said_tok_s) == (2, 2, None)
    assert row.null_reason
