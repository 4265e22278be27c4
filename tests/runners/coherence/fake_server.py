"""A server that knows every golden answer, speaks vLLM's or SGLang's dialect, and breaks where a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from runners.coherence.transport import NoAnswer, Refused
from runners.engines.base import HttpRequest
from suites.canaries.zoo import Canary, GoldenPrompt

EOS = 3
_NAN_REFUSAL = '{"error":{"message":"Out of range float values are not JSON compliant","type":"BadRequestError","param":null,"code":400}}'


def make_canary(prompts: int = 12, bos_prompts: int = 4) -> Canary:
    """A canary of short, mutually different prompts and answers; ids stand for letters."""

    def golden(name: str, seed: int, messages: bool) -> GoldenPrompt:
        length = 5 + seed % 9
        answer = tuple(10 + (seed * 7 + i * i) % 50 for i in range(length))
        text = text_of(answer)
        return GoldenPrompt(name, (1, 100 + seed, 5), (*answer, EOS), text, (("user", f"question {seed}"),) if messages else ())

    return Canary(
        name="test",
        prompts=tuple(golden(f"p{i:02d}", i, True) for i in range(prompts)),
        bos_prompts=tuple(golden(f"nobos{i}", 50 + i, False) for i in range(bos_prompts)),
        reference_margins={},
        eos_token_id=EOS,
        max_context=512,
        sha256={},
    )


def text_of(ids: tuple[int, ...] | list[int]) -> str:
    """Different words for different ids."""
    return " ".join(f"w{'abcdefghijklmnop'[i // 16]}{'abcdefghijklmnop'[i % 16]}" for i in ids if i != EOS)


class FakeServer:
    """`send` is the transport. `answer` may be replaced to change ids; counters say what was asked."""

    def __init__(self, canary: Canary) -> None:
        self.by_ids = {p.prompt_ids: p for p in (*canary.prompts, *canary.bos_prompts)}
        self.by_question = {p.messages[-1][1]: p for p in canary.prompts}
        self.asked: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.margin = 16.0
        self.break_answer: Callable[[GoldenPrompt, int], list[int] | None] = lambda _prompt, _n: None
        self.nan_logprobs = False
        self.refuse: Callable[[HttpRequest], Refused | NoAnswer | None] = lambda _request: None
        self.chat_message: Callable[[GoldenPrompt], Mapping[str, Any]] = lambda p: {"role": "assistant", "content": p.answer_text}
        self.streamed_text: Callable[[GoldenPrompt], str] = lambda p: p.answer_text
        self.score: Callable[[int], Any] = lambda token: -token / 100

    async def send(self, request: HttpRequest) -> Any:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
            failure = self.refuse(request)
            if failure is not None:
                raise failure
            assert request.body is not None
            if request.path == "/v1/chat/completions":
                return self._chat(request.body)
            return self._complete(request.body)
        finally:
            self.in_flight -= 1

    def _chat(self, body: Mapping[str, Any]) -> Any:
        prompt = self.by_question[body["messages"][-1]["content"]]
        self.asked.append(prompt.name)
        if body.get("stream"):
            parts = [{"delta": {"content": char}, "finish_reason": None} for char in self.streamed_text(prompt)]
            return [{"choices": [part]} for part in (*parts, {"delta": {}, "finish_reason": "stop"})] + [{"choices": []}]
        return {"choices": [{"index": 0, "message": dict(self.chat_message(prompt)), "finish_reason": "stop"}]}

    def _complete(self, body: Mapping[str, Any]) -> Any:
        if "prompt_logprobs" in body:
            return self._scores(body["prompt"])
        prompt = self.by_ids[tuple(body["prompt"])]
        self.asked.append(prompt.name)
        with_logprobs = "logprobs" in body
        if with_logprobs and self.nan_logprobs:
            raise Refused(400, _NAN_REFUSAL)
        broken = self.break_answer(prompt, len(self.asked))
        ids = (broken if broken is not None else list(prompt.answer_ids))[: body["max_tokens"]]
        stopped = bool(ids) and ids[-1] == EOS
        logprobs = None
        if with_logprobs:
            logprobs = {
                "tokens": [f"token_id:{i}" for i in ids],
                "token_logprobs": [-0.001] * len(ids),
                "top_logprobs": [{f"token_id:{i}": -0.001, "token_id:99": -0.001 - self.margin} for i in ids],
            }
        choice = {
            "index": 0,
            "text": text_of(ids),
            "token_ids": ids,
            "logprobs": logprobs,
            "finish_reason": "stop" if stopped else "length",
        }
        return {"choices": [choice]}

    def _scores(self, ids: list[int]) -> Any:
        if self.nan_logprobs:
            raise Refused(400, _NAN_REFUSAL)
        entries = [{str(token): {"logprob": self.score(token), "rank": 1}} for token in ids[1:]]
        return {"choices": [{"text": "", "prompt_logprobs": [None, *entries]}]}
