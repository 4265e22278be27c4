"""The structural gate of a real model: what it asks, what it makes of BOS, refusals and known answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from results.vocabulary import Outcome
from runners.coherence.findings import POINTS_AT
from runners.coherence.gate import GateFailure, GateResult, GateTarget, gate, gate_again
from runners.coherence.known_good import KnownAnswer, KnownGood, KnownPassage
from runners.coherence.transport import NoAnswer, Refused
from runners.engines.base import HttpRequest
from runners.engines.registry import adapter_for
from suites.chat_golden import chat_golden
from suites.passages import PASSAGES
from suites.prompts import CHAT_TOKENS, LONG_NAME, MODEL_PROMPTS, RAW_TOKENS, long_text
from tests.runners.coherence.legitimate import LEGITIMATE

BOS = 2
_TEXTS = [LEGITIMATE[name] for name in ("english", "python", "chinese_with_latin", "times_table")]


def question_of(request: HttpRequest) -> str:
    """What was asked, as a text: the last message, or the ids."""
    body = request.body or {}
    return str(body["messages"][-1]["content"] if "messages" in body else body.get("prompt"))


class ModelServer:
    """A fluent model: every prompt gets a legitimate text, unless `text_for` says otherwise."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.text_for: Callable[[HttpRequest], str] = lambda request: _TEXTS[len(question_of(request)) % len(_TEXTS)]
        self.margin_for: Callable[[HttpRequest], float] = lambda _request: 8.0
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
        if "prompt_logprobs" in request.body:
            scores = [{str(token): {"logprob": -token / 400, "rank": 1}} for token in request.body["prompt"][1:]]
            return {"choices": [{"text": "", "prompt_logprobs": [None, *scores]}]}
        text, margin = self.text_for(request), self.margin_for(request)
        if request.path == "/v1/chat/completions":
            return self._chat(request.body, text, margin)
        words = text.split(" ")
        ids = [1000 + sum(map(ord, word)) for word in words]
        best = [{f"token_id:{i}": -0.01, "token_id:1": -0.01 - margin} for i in ids]
        logprobs = {"tokens": [f"token_id:{i}" for i in ids], "token_logprobs": [-0.01] * len(ids), "top_logprobs": best}
        choice = {"text": text, "token_ids": ids, "finish_reason": "length", "logprobs": logprobs}
        return {"choices": [choice]}

    def _chat(self, body: Mapping[str, Any], text: str, margin: float) -> Any:
        words = text.split(" ")
        pieces = [word if i == 0 else f" {word}" for i, word in enumerate(words)]
        if body.get("stream"):
            return [{"choices": [{"delta": {"content": piece}, "finish_reason": None}]} for piece in pieces] + [
                {"choices": [{"delta": {}, "finish_reason": "length"}]}
            ]
        best = [{"token": "x", "logprob": -0.01}, {"token": "y", "logprob": -0.01 - margin}]
        content = [{"token": piece, "logprob": -0.01, "top_logprobs": best} for piece in pieces]
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "length"}
        return {"choices": [{**choice, "logprobs": {"content": content} if body.get("logprobs") else None}]}

    def asked(self, path: str) -> list[HttpRequest]:
        return [request for request in self.requests if request.path == path]


def run(server: ModelServer, run_one: Any = gate, **target: Any) -> GateResult | GateFailure:
    goal = GateTarget("run-2", "http://server", "model", None, **{"context": 4096, **target})
    result: GateResult | GateFailure = asyncio.run(run_one(server.send, goal, adapter_for("vllm"), lambda _line: None))
    return result


def test_fluent_model_passes_and_every_prompt_is_asked() -> None:
    result = run(ModelServer())
    assert isinstance(result, GateResult)
    assert result.outcome is None, result.reason
    asked = {record.prompt_name for record in result.records}
    assert asked == {prompt.name for prompt in MODEL_PROMPTS} | {LONG_NAME} | {question.name for question in chat_golden()}
    assert {step.name for step in result.steps} | {"passages", "recheck", "bos", "chat"} == set(POINTS_AT)


def test_the_long_prompt_fills_the_context_and_ends_with_the_question() -> None:
    server = ModelServer()
    run(server, context=4096)
    longest = max((request.body["prompt"] for request in server.asked("/v1/completions") if request.body), key=len)
    assert len(longest) == 4096 - 64


def test_a_context_too_short_for_a_long_prompt_is_noted() -> None:
    result = run(ModelServer(), context=512)
    assert isinstance(result, GateResult)
    assert any("chunked-prefill" in note for note in result.notes)


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
    server.text_for = lambda request: text if 2000 < len(str(request.body)) < 8000 else _TEXTS[0]
    result = run(server)
    assert isinstance(result, GateResult)
    assert result.outcome is Outcome.INCOHERENT
    assert "raw_long" in result.reason


def _known(text: str, margin: float = 8.0) -> KnownGood:
    words = text.split(" ")
    tokens = tuple(word if i == 0 else f" {word}" for i, word in enumerate(words))
    return KnownGood({"chat_sky": (KnownAnswer(text, tokens, (margin,) * len(tokens)),)})


def test_an_answer_of_the_known_good_set_passes() -> None:
    server = ModelServer()
    server.text_for = lambda _request: "It scatters blue light."
    result = run(server, known_good=_known("It scatters blue light."))
    assert isinstance(result, GateResult)
    assert result.outcome is None, result.reason
    assert {r.verdict for r in result.records if r.prompt_name == "chat_sky"} == {"match"}
    assert {r.judge for r in result.records if r.prompt_name == "chat_sky"} == {"known_good"}


def test_an_answer_outside_the_known_good_set_is_wrong_if_rounding_cannot_explain_it() -> None:
    server = ModelServer()
    server.text_for = lambda _request: "It scatters blue light."
    result = run(server, known_good=_known("It scatters red light."))
    assert isinstance(result, GateResult)
    assert (result.outcome, result.first_step) == (Outcome.WRONG, "cold")
    assert "the two tokens' gap moved by 16.00 nats at least" in result.reason
    assert "at token 2" in result.reason


def test_an_answer_outside_the_set_that_begins_at_a_near_tie_passes_and_is_recorded() -> None:
    server = ModelServer()
    server.text_for = lambda _request: "It scatters blue light."
    server.margin_for = lambda _request: 0.2
    result = run(server, known_good=_known("It scatters red light.", 0.3))
    assert isinstance(result, GateResult)
    assert result.outcome is None
    (record,) = [r for r in result.records if r.prompt_name == "chat_sky" and r.step == "cold"]
    assert (record.verdict, record.first_divergence) == ("tie", 2)


def test_without_a_reference_an_engine_that_contradicts_itself_in_a_batch_is_wrong() -> None:
    server = ModelServer()
    seen: Counter[str] = Counter()

    def stale(request: HttpRequest) -> str:
        question = question_of(request)
        seen[question] += 1
        return "A stale answer of somebody else." if "14 books" in question and seen[question] == 2 else "There are twenty-three books."

    server.text_for = stale
    result = run(server)
    assert isinstance(result, GateResult)
    assert result.outcome is Outcome.WRONG
    assert result.first_step == "batch_8"
    assert {r.judge for r in result.records if r.verdict == "wrong"} == {"self_consistency"}


def test_text_lost_in_a_stream_is_wrong() -> None:
    server = ModelServer()
    server.text_for = lambda request: "The light is scattered." if (request.body or {}).get("stream") else "The blue light is scattered."
    result = run(server)
    assert isinstance(result, GateResult)
    assert (result.outcome, result.first_step) == (Outcome.WRONG, "streaming")


def test_a_server_without_logprobs_is_not_called_wrong_for_one_answer_outside_the_set() -> None:
    server = ModelServer()
    server.text_for = lambda _request: "It scatters blue light."
    server.refuse = lambda request: Refused(400, "logprobs are off") if (request.body or {}).get("logprobs") else None
    known = KnownGood(
        {"chat_sky": (KnownAnswer("It is red."),), **{p.name: (KnownAnswer("It scatters blue light."),) for p in MODEL_PROMPTS[:1]}}
    )
    result = run(server, known_good=known)
    assert isinstance(result, GateResult)
    assert result.outcome is None
    assert any("nothing says whether rounding explains it" in r.reason for r in result.records)


def test_most_answers_outside_the_set_without_logprobs_are_wrong_together() -> None:
    server = ModelServer()
    server.text_for = lambda _request: "It scatters blue light."
    server.refuse = lambda request: Refused(400, "logprobs are off") if (request.body or {}).get("logprobs") else None
    result = run(server, known_good=KnownGood({p.name: (KnownAnswer("It is red."),) for p in MODEL_PROMPTS}))
    assert isinstance(result, GateResult)
    assert result.outcome is Outcome.WRONG
    assert f"{len(MODEL_PROMPTS)} of {len(MODEL_PROMPTS)} prompts are answered outside the known good set" in result.reason


@pytest.mark.parametrize(("instruct", "outcome"), [(False, None), (True, Outcome.WRONG)])
def test_missed_plain_questions_are_wrong_only_for_a_model_that_knows_them(instruct: bool, outcome: Outcome | None) -> None:
    server = ModelServer()
    server.text_for = lambda _request: "I would rather not say."
    result = run(server, instruct=instruct)
    assert isinstance(result, GateResult)
    assert result.outcome is outcome
    (score,) = [score for score in result.scores if score.metric == "chat_golden_right"]
    assert score.value == 0.0


def test_right_plain_questions_pass_and_are_counted() -> None:
    server = ModelServer()
    answers = {question.ask: question.accept[0] for question in chat_golden()}
    server.text_for = lambda request: answers.get(question_of(request), _TEXTS[0])
    result = run(server, instruct=True)
    assert isinstance(result, GateResult)
    assert result.outcome is None, result.reason
    assert [score.value for score in result.scores if score.metric == "chat_golden_right"] == [1.0]


def test_fixed_texts_are_scored_and_compared_with_the_reference() -> None:
    server = ModelServer()
    ids = (BOS, *(300 + len(word) for word in PASSAGES[0].text.split()))
    same = KnownPassage((None, *(-token / 400 for token in ids[1:])), 0.01, 0.02)
    for known, outcome in ((same, None), (replace(same, logprobs=(None, *(-token / 400 - 1.5 for token in ids[1:]))), Outcome.WRONG)):
        good = KnownGood(texts={PASSAGES[0].name: ids}, passages={"bf16 / none / auto": {PASSAGES[0].name: known}})
        result = run(server, known_good=good, path="bf16 / none / auto")
        assert isinstance(result, GateResult)
        assert result.outcome is outcome, result.reason
        drifts = [score for score in result.scores if score.metric == "nll_drift_rms"]
        assert [score.value for score in drifts] == [pytest.approx(0.0 if outcome is None else 1.5)]
    assert result.first_step == "passages"
    other = run(server, known_good=good, path="bf16 / none / fp8")
    assert isinstance(other, GateResult)
    assert other.outcome is None
    assert any("not compared: the reference has scores of bf16 / none / auto" in (score.reason or "") for score in other.scores)


def test_a_server_that_refuses_a_system_message_is_asked_without_one() -> None:
    server = ModelServer()
    system = "system"
    server.refuse = lambda request: (
        Refused(400, "System role not supported") if any(m["role"] == system for m in (request.body or {}).get("messages", ())) else None
    )
    result = run(server)
    assert isinstance(result, GateResult), result
    assert any("no system message was sent" in note for note in result.notes)
    assert "system_message" not in {step.name for step in result.steps}


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
    assert all(record.prompt_name.startswith(("chat", "golden")) for record in result.records)


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
    assert len(set(long_text(500).split("\n"))) == 501
    assert max(len((prompt.text or "").split()) for prompt in MODEL_PROMPTS) > 380
