"""No judge throws on any text or any JSON that a server can send; real streams and answers are read as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.coherence.asking import Asked, read_chat, read_chat_stream
from runners.coherence.judging import Judge
from runners.coherence.known_good import KnownAnswer, KnownGood, against_known
from runners.coherence.transport import Refused, events_of
from runners.engines.base import AnswerError
from runners.engines.registry import ADAPTERS, adapter_for
from tests.runners.coherence.fake_server import make_canary

_ANSWERS = Path(__file__).parents[2] / "data" / "answers"
FRANCE = "The capital of France is Paris, a city on the river Seine."
RECORDED = {"vllm": "scoring-vllm-0.32.0-cpu.json", "sglang": "scoring-sglang-0.5.14-cpu.json"}


def body(engine: str, name: str) -> str:
    text = json.loads((_ANSWERS / RECORDED[engine]).read_text(encoding="utf-8"))[name]["body"]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("engine", RECORDED)
def test_a_recorded_stream_gives_the_text_of_the_answer_that_was_not_streamed(engine: str) -> None:
    streamed = read_chat_stream(events_of(body(engine, "chat stream").encode()))
    whole = read_chat(json.loads(body(engine, "chat logprobs")))
    assert streamed.text == whole.text == FRANCE
    assert (streamed.carried_by, streamed.finish_reason) == ("content", "stop")


@pytest.mark.parametrize("engine", RECORDED)
def test_chat_log_probabilities_spell_the_answer_and_have_a_margin_each(engine: str) -> None:
    answer = read_chat(json.loads(body(engine, "chat logprobs")))
    assert "".join(answer.tokens).startswith(FRANCE)
    assert len(answer.margins) == len(answer.tokens) >= 19
    assert min(margin for margin in answer.margins if margin is not None) > 15
    assert answer.nonfinite is None


def test_nan_of_a_real_server_is_a_finding_through_the_chat_endpoint() -> None:
    answer = read_chat(json.loads(body("sglang", "nan chat logprobs")))
    assert answer.nonfinite == 0
    assert Judge("run").chat_structure("cold", "p", answer).record.verdict == "nonfinite"
    refused = json.loads((_ANSWERS / RECORDED["vllm"]).read_text(encoding="utf-8"))["nan chat logprobs"]
    assert (refused["status"], "Out of range float" in refused["body"]) == (400, True)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'data: {"choices": []}\n\n', "ended without"),
        (b'data: {"error": {"message": "EngineDeadError", "code": 500}}\n\ndata: [DONE]\n\n', "EngineDeadError"),
        (b"data: no json\n\ndata: [DONE]\n\n", "no JSON event"),
        (b"<html>", "no stream"),
        (b"", "no stream"),
    ],
)
def test_a_stream_that_is_none_is_refused_in_words(raw: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        events_of(raw)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_refused(raw: bytes) -> None:
    try:
        events = events_of(raw + b"\n\ndata: [DONE]\n\n")
    except Refused:
        return
    assert isinstance(events, list)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_MESSAGE = st.fixed_dictionaries({}, optional={"content": _JSON, "reasoning": _JSON, "reasoning_content": _JSON})
_LOGPROBS = st.fixed_dictionaries(
    {"content": st.lists(st.fixed_dictionaries({"token": _JSON, "logprob": _JSON, "top_logprobs": _JSON}), max_size=3)}
)
_CHAT = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries({"message": _MESSAGE | _JSON, "finish_reason": _JSON, "logprobs": _LOGPROBS | _JSON}), max_size=2
        )
    }
)
_EVENTS = st.lists(
    st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"delta": _MESSAGE | _JSON, "finish_reason": _JSON}), max_size=2)})
    | _JSON,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(_CHAT | _JSON)
def test_any_json_is_a_judged_chat_answer_or_an_answer_error(data: Any) -> None:
    try:
        answer = read_chat(data)
    except AnswerError:
        return
    judged = Judge("run").chat_structure("cold", "p", answer)
    again, _ = against_known([judged, judged], KnownGood({"p": (KnownAnswer("other", ("other",), (1.0,)),)}))
    assert all(j.record.reason for j in again)
    assert Judge("run").golden_text("chat", make_canary().prompts[0], answer).record.verdict


@settings(max_examples=300, deadline=None)
@given(_EVENTS | _JSON)
def test_any_events_are_a_judged_stream_or_an_answer_error(data: Any) -> None:
    try:
        answer = read_chat_stream(data)
    except AnswerError:
        return
    assert Judge("run").chat_structure("streaming", "p", answer).record.verdict


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
@settings(max_examples=200, deadline=None)
@given(_JSON, _JSON, _JSON, _JSON)
def test_any_json_is_a_judged_greedy_answer_or_an_answer_error(engine: str, ids: Any, text: Any, values: Any, finish: Any) -> None:
    logprobs = {"token_logprobs": values, "top_logprobs": values, "tokens": ids}
    answers = (
        {"choices": [{"token_ids": ids, "text": text, "logprobs": logprobs, "finish_reason": finish}]},
        {
            "output_ids": ids,
            "text": text,
            "meta_info": {"finish_reason": finish, "output_token_logprobs": values, "output_top_logprobs": values},
        },
        {"tokens": ids, "content": text, "completion_probabilities": values, "stop_type": finish},
        ids,
    )
    canary = make_canary()
    for data in answers:
        try:
            asked = Asked(adapter_for(engine).read_greedy(data))
        except AnswerError:
            continue
        judge = Judge("run", canary.eos_token_id)
        assert judge.golden("cold", canary.prompts[0], asked).record.reason
        assert judge.structure("cold", "p", asked).record.reason
