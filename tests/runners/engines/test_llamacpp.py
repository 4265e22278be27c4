"""Answers of a real server (build b11434 on CPU), and answers as its documentation writes them (tools/server/README.md), shortened."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from runners.engines.base import AnswerError, ServeRequest
from runners.engines.llamacpp import LlamacppAdapter
from runners.errors import UsageError

ADAPTER = LlamacppAdapter()
RECORDED = json.loads((Path(__file__).parents[2] / "data" / "answers" / "llamacpp-b11434-cpu.json").read_text())
PROPS = {
    "default_generation_settings": {"id": 0, "n_ctx": 1024, "params": {"n_predict": -1}},
    "total_slots": 1,
    "model_path": "../models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
    "build_info": "b6123-0c50a2b4",
}
MODELS = {
    "object": "list",
    "data": [
        {
            "id": "../models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
            "object": "model",
            "owned_by": "llamacpp",
            "meta": {"n_vocab": 128256, "n_ctx_train": 131072, "n_params": 8030261312, "size": 4912898304},
        }
    ],
}


def _entry(token: int, logprob: Any, *top: tuple[int, Any]) -> dict[str, Any]:
    pairs = [{"id": i, "token": "x", "bytes": [120], "logprob": value} for i, value in top]
    return {"id": token, "token": "x", "bytes": [120], "logprob": logprob, "top_logprobs": pairs}


def _answer(**changes: Any) -> dict[str, Any]:
    entries = [_entry(7, -0.1, (7, -0.1), (9, -2.5)), _entry(8, -0.25, (8, -0.25), (7, -1.5))]
    answer = {"content": " ab", "tokens": [7, 8], "stop": True, "stop_type": "limit", "completion_probabilities": entries}
    return {**answer, **changes}


def test_a_real_server_is_read() -> None:
    identity = ADAPTER.identify("b11434", {"/props": RECORDED["props"], "/v1/models": RECORDED["models"]}, "")
    assert (identity.model, identity.max_model_len) == ("gemma", 1024), "a context of 2048 shared by two slots"
    assert identity.version is None, "b0-unknown: a build that does not know itself"
    assert ADAPTER.generated_tokens(RECORDED["metrics"]) == 17


def test_a_real_answer_is_read_with_margins() -> None:
    answer = ADAPTER.read_greedy(RECORDED["limit"])
    assert answer.token_ids == answer.top1_ids == (506, 5279, 529, 506, 2891, 529, 7001, 236761)
    assert (answer.text, answer.finish_reason, answer.nonfinite) == (" the capital of the country of France.", "length", None)
    assert answer.margins[0] == pytest.approx(0.5193, abs=1e-4)


def test_a_real_answer_that_stopped_by_itself_ends_with_the_end_token() -> None:
    answer = ADAPTER.read_greedy(RECORDED["eos"])
    assert (answer.token_ids, answer.text, answer.finish_reason, answer.top1_ids) == ((1,), "", "stop", (506,))


def test_a_real_answer_without_log_probabilities_has_no_margins() -> None:
    assert ADAPTER.read_greedy(RECORDED["without_n_probs"]).margins == (None,) * 8


def test_a_real_refusal_is_an_answer_error() -> None:
    with pytest.raises(AnswerError):
        ADAPTER.read_greedy(RECORDED["refused"])


def test_build_context_and_model_are_what_the_server_says() -> None:
    identity = ADAPTER.identify("b6123", {"/props": PROPS, "/v1/models": MODELS}, "")
    assert (identity.version, identity.max_model_len, identity.model) == ("b6123", 1024, MODELS["data"][0]["id"])  # type: ignore[index]
    assert set(identity.kernels.values()) == {"unknown"}


@pytest.mark.parametrize("info", [None, 6123, "", "6123", "b", "bx-1", "b6123 (0c50a2b4)", "b" + "1" * 40])
def test_a_build_that_is_not_said_is_unknown(info: Any) -> None:
    assert ADAPTER.identify("b6123", {"/props": {**PROPS, "build_info": info}}, "").version is None


@pytest.mark.parametrize("answers", [{}, {"/props": "nginx"}, {"/props": {}, "/v1/models": {"data": []}}, {"/v1/models": {"data": None}}])
def test_a_server_that_says_nothing_is_nothing(answers: dict[str, Any]) -> None:
    identity = ADAPTER.identify("b6123", answers, "")
    assert (identity.version, identity.max_model_len, identity.model) == (None, None, None)


def test_a_request_asks_for_raw_ids_and_an_unused_cache() -> None:
    request = ADAPTER.greedy_request("m", [2, 5], 16)
    assert request.path == "/completion"
    assert request.body == {
        "prompt": [2, 5],
        "n_predict": 16,
        "temperature": 0,
        "n_probs": 2,
        "return_tokens": True,
        "cache_prompt": False,
        "stream": False,
    }


def test_ids_text_margins_and_the_end_are_read() -> None:
    answer = ADAPTER.read_greedy(_answer())
    assert (answer.token_ids, answer.text, answer.finish_reason, answer.top1_ids) == ((7, 8), " ab", "length", (7, 8))
    assert answer.margins == pytest.approx((2.4, 1.25))
    assert answer.nonfinite is None


@pytest.mark.parametrize(("stop_type", "finish"), [("eos", "stop"), ("word", "stop"), ("limit", "length"), ("none", None), (3, None)])
def test_how_it_stopped_is_read(stop_type: Any, finish: str | None) -> None:
    assert ADAPTER.read_greedy(_answer(stop_type=stop_type)).finish_reason == finish


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_log_probability_that_is_no_number_is_a_finding(value: Any) -> None:
    entries = [_entry(7, -0.1, (7, -0.1), (9, -2.5)), _entry(8, value, (8, value), (7, -1.5))]
    assert ADAPTER.read_greedy(_answer(completion_probabilities=entries)).nonfinite == 1


def test_an_answer_asked_without_log_probabilities_has_no_margins() -> None:
    answer = _answer()
    del answer["completion_probabilities"]
    assert ADAPTER.read_greedy(answer).margins == (None, None)


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        [],
        _answer(tokens=None),
        _answer(tokens=[-1]),
        _answer(content=None),
        _answer(completion_probabilities=[{"id": 1}]),
        _answer(completion_probabilities=[_entry(7, -0.1, (7, -0.1))]),
        _answer(completion_probabilities=[_entry(7, -0.1, ("x", -0.1)), _entry(8, -0.1, (8, -0.1))]),  # type: ignore[arg-type]
    ],
)
def test_an_answer_of_another_shape_is_an_answer_error(answer: Any) -> None:
    with pytest.raises(AnswerError):
        ADAPTER.read_greedy(answer)


def test_the_engine_s_own_counter_is_read() -> None:
    page = (
        "# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.\n"
        "# TYPE llamacpp:tokens_predicted_total counter\n"
        "llamacpp:tokens_predicted_total 136\n"
        "# TYPE llamacpp:tokens_predicted_seconds_total counter\n"
        "llamacpp:tokens_predicted_seconds_total 3.5\n"
    )
    assert ADAPTER.generated_tokens(page) == 136
    assert ADAPTER.generated_tokens("llamacpp:prompt_tokens_total 5\n") is None


def test_it_is_never_started_by_us() -> None:
    with pytest.raises(UsageError, match="@endpoint:URL"):
        ADAPTER.serve_command(Path("python3"), "b6123", ServeRequest("/m", "m", "127.0.0.1", 1, False))
