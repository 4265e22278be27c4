"""The structural gate of a real model: what it asks, what it makes of BOS, refusals and known answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from results.vocabulary import Outcome
from runners.coherence.gate import GateFailure, GateResult, GateTarget, gate, gate_again
from runners.coherence.transport import NoAnswer, Refused
from runners.engines.base import HttpRequest
from runners.engines.registry import adapter_for
from suites.prompts import CHAT_TOKENS, MODEL_PROMPTS, RAW_TOKENS
from tests.runners.coherence.legitimate import LEGITIMATE

BOS = 2
_TEXTS = [LEGITIMATE[name] for name in ("english", "python", "chinese_with_latin", "times_table")]


class ModelServer:
    """A fluent model: every prompt gets a legitimate text, unless `text_for` says otherwise."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.text_for: Callable[[HttpRequest], str] = lambda request: _TEXTS[len(self.requests) % len(_TEXTS)]
        self.refuse: Callable[[HttpRequest], Exception | None] = lambda _request: None

    async def send(self, request: HttpRequest) -> Any:
        self.requests.append(request)
        failure = self.refuse(request)
        if failure is not None:
            raise failure
        assert request.body is not None
        if request.path == "/tokenize":
            ids = [300 + len(word) for word in request.body["prompt"].split()]
            return {"tokens": [BOS, *ids] if request.body["add_special_tokens"] else ids}
        text = self.text_for(request)
        if request.path == "/v1/chat/completions":
            return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "length"}]}
        ids = [7 + i for i in range(request.body["max_tokens"])]
        choice = {"text": text, "token_ids": ids, "finish_reason": "length", "logprobs": None}
        return {"choices": [choice]}

    def asked(self, path: str) -> list[HttpRequest]:
        return [request for request in self.requests if request.path == path]


def run(server: ModelServer, run_one: Any = gate, **target: Any) -> GateResult | GateFailure:
    goal = GateTarget("run-2", "http://server", "model", None, **target)
    result: GateResult | GateFailure = asyncio.run(run_one(server.send, goal, adapter_for("vllm"), lambda _line: None))
    return result


def test_fluent_model_passes_and_every_prompt_is_asked() -> None:
    result = run(ModelServer())
    assert isinstance(result, GateResult)
    assert result.outcome is None, result.reason
    assert {record.prompt_name for record in result.records} == {prompt.name for prompt in MODEL_PROMPTS}
    assert {step.name for step in result.steps} == {"cold", "batch", "mixed", "alone_again"}


def test_raw_prompts_start_with_the_bos_token_of_the_servers_tokenizer() -> None:
    server = ModelServer()
    run(server)
    assert server.asked("/v1/completions")
    assert all(request.body and request.body["prompt"][0] == BOS for request in server.asked("/v1/completions"))


def test_recipe_that_omits_bos_sends_raw_prompts_without_it_and_no_chat() -> None:
    server = ModelServer()
    result = run(server, bos="omit")
    assert isinstance(result, GateResult)
    assert all(request.body and request.body["prompt"][0] != BOS for request in server.asked("/v1/completions"))
    assert not server.asked("/v1/chat/completions")
    assert "BOS" in result.notes[0]


@pytest.mark.parametrize("text", [" France of" * 14, "!" * 60, ""])
def test_garbage_on_one_kind_of_prompt_is_incoherent(text: str) -> None:
    server = ModelServer()
    server.text_for = lambda request: text if len(str(request.body)) > 2000 else _TEXTS[0]
    result = run(server)
    assert isinstance(result, GateResult)
    assert result.outcome is Outcome.INCOHERENT
    assert "raw_long" in result.reason


def test_known_answer_of_the_recipe_decides_where_it_lists_one() -> None:
    server = ModelServer()
    server.text_for = lambda _request: "It scatters blue light."
    assert run(server, known_answers={"chat_sky": ("It scatters blue light.",)}).reason.startswith("All ")
    result = run(server, known_answers={"chat_sky": ("It is painted blue.",)})
    assert isinstance(result, GateResult)
    assert result.outcome is Outcome.WRONG


def test_server_without_a_chat_template_is_asked_raw_prompts_only() -> None:
    server = ModelServer()
    server.refuse = lambda request: Refused(400, "no chat template") if request.path == "/v1/chat/completions" else None
    result = run(server)
    assert isinstance(result, GateResult)
    assert result.outcome is None
    assert any("no chat template" in note for note in result.notes)
    assert all(record.prompt_name.startswith("raw") for record in result.records)


def test_server_that_cannot_tokenise_is_asked_chat_prompts_only() -> None:
    server = ModelServer()
    server.refuse = lambda request: Refused(404, "Not Found") if request.path == "/tokenize" else None
    result = run(server)
    assert isinstance(result, GateResult)
    assert all(record.prompt_name.startswith("chat") for record in result.records)


def test_server_that_can_be_asked_nothing_is_a_failure() -> None:
    server = ModelServer()
    server.refuse = lambda _request: Refused(404, "Not Found")
    result = run(server)
    assert isinstance(result, GateFailure)
    assert "can be asked nothing" in result.reason


def test_server_that_dies_while_tokenising_is_a_failure() -> None:
    server = ModelServer()
    server.refuse = lambda _request: NoAnswer("connection reset", is_hang=False)
    result = run(server)
    assert isinstance(result, GateFailure)
    assert not result.is_hang


def test_recheck_of_a_model_asks_its_first_prompts() -> None:
    result = run(ModelServer(), gate_again)
    assert isinstance(result, GateResult)
    assert [record.prompt_name for record in result.records] == [prompt.name for prompt in MODEL_PROMPTS[:8]]


def test_model_prompts_are_of_many_kinds_and_one_is_long() -> None:
    assert len({prompt.name for prompt in MODEL_PROMPTS}) == len(MODEL_PROMPTS) >= 12
    assert all((prompt.text is None) != (not prompt.messages) for prompt in MODEL_PROMPTS)
    assert {prompt.max_tokens for prompt in MODEL_PROMPTS} == {RAW_TOKENS, CHAT_TOKENS}
    assert max(len((prompt.text or "").split()) for prompt in MODEL_PROMPTS) > 380
