"""A gate as a list of requests, and a list of answers as a gate: sweeping a machine that Sparkproof cannot be installed on.

Trap: a second, simpler gate for such machines, which sees less than the real one. Rule: the real gate is asked what it would ask, once,
with the right answers given at once; those requests, in the same groups, are the job. Its answers are then played back to the real gate.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runners.coherence.gate import GateFailure, GateResult, GateTarget, gate
from runners.coherence.transport import NoAnswer, Refused
from runners.engines.base import EngineAdapter, HttpRequest
from suites.canaries.zoo import Canary

_QUIET_TURNS = 20
"""Turns of the event loop without a new request after which everything that the gate asks at once has been asked."""


@dataclass(frozen=True)
class Wave:
    """Requests that the gate has in flight together."""

    requests: tuple[HttpRequest, ...]


class _RightAnswers:
    """A transport that answers as a correct engine would, in vLLM's dialect, and keeps what was asked in which company."""

    def __init__(self, canary: Canary) -> None:
        prompts = (*canary.prompts, *canary.bos_prompts)
        self._by_ids = {p.prompt_ids: p for p in prompts}
        self._by_messages = {p.messages: p for p in canary.prompts if p.messages}
        self._waiting: list[tuple[HttpRequest, asyncio.Future[Any]]] = []
        self.waves: list[Wave] = []

    async def send(self, request: HttpRequest) -> Any:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answered))
        return await answered

    async def serve(self) -> None:
        """Answer whole groups, until cancelled."""
        while True:
            before = len(self._waiting)
            for _ in range(_QUIET_TURNS):
                await asyncio.sleep(0)
            if self._waiting and len(self._waiting) == before:
                asked, self._waiting = self._waiting, []
                self.waves.append(Wave(tuple(request for request, _ in asked)))
                for request, answered in asked:
                    answered.set_result(self._answer(request))

    def _answer(self, request: HttpRequest) -> Any:
        body = request.body or {}
        if request.path.endswith("/chat/completions"):
            return self._chat(body)
        ids = tuple(body.get("prompt") or ())
        if body.get("prompt_logprobs") is not None:
            scores: list[Any] = [None, *({str(i): {"logprob": -0.01, "rank": 1}} for i in ids[1:])]
            return {"choices": [{"index": 0, "text": "", "token_ids": [0], "finish_reason": "length", "prompt_logprobs": scores}]}
        known = self._by_ids.get(ids)
        answer = known.answer_ids if known is not None else (0,)
        logprobs = {
            "tokens": [f"token_id:{i}" for i in answer],
            "token_logprobs": [-0.001] * len(answer),
            "top_logprobs": [{f"token_id:{i}": -0.001, f"token_id:{i + 1}": -16.0} for i in answer],
        }
        text = known.answer_text if known is not None else ""
        choice = {"text": text, "token_ids": list(answer), "finish_reason": "stop", "logprobs": logprobs}
        return {"choices": [{"index": 0, **choice}]}

    def _chat(self, body: Mapping[str, Any]) -> Any:
        messages = tuple((m["role"], m["content"]) for m in body.get("messages", ()))
        known = self._by_messages.get(messages)
        text = known.answer_text if known is not None else "x"
        if body.get("stream"):
            return [{"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]}]
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


def waves_of(target: GateTarget, canary: Canary, adapter: EngineAdapter) -> tuple[Wave, ...]:
    """Everything the gate of a canary asks, in its own groups."""
    right = _RightAnswers(canary)

    async def play() -> None:
        serving = asyncio.ensure_future(right.serve())
        try:
            await gate(right.send, target, adapter, lambda line: None)
        finally:
            serving.cancel()

    asyncio.run(play())
    return tuple(right.waves)


def key_of(request: HttpRequest) -> str:
    """What two equal requests have in common; the model's name is not part of it."""
    body = {name: value for name, value in (request.body or {}).items() if name != "model"}
    return json.dumps([request.path, body], sort_keys=True)


class Playback:
    """A transport over recorded answers: the n-th equal request gets the n-th answer to it.

    `distinct`: every request was asked once, and its one answer is given each time. That is the whole gate for an engine whose answer
    depends on nothing but the request, and says nothing about replay or repeated batches.
    """

    def __init__(self, answers: Sequence[tuple[HttpRequest, int, Any]], *, why_it_ends: str, distinct: bool = False) -> None:
        self._distinct = distinct
        self._answers: defaultdict[str, deque[tuple[int, Any]]] = defaultdict(deque)
        self._why = why_it_ends
        for request, status, answer in answers:
            self._answers[key_of(request)].append((status, answer))

    async def send(self, request: HttpRequest) -> Any:
        waiting = self._answers[key_of(request)]
        if not waiting:
            raise NoAnswer(self._why, is_hang=False)
        status, answer = waiting[0] if self._distinct else waiting.popleft()
        if status != 200:
            raise Refused(status, str(answer)[:300])
        return answer


def judge_answers(target: GateTarget, adapter: EngineAdapter, playback: Playback) -> GateResult | GateFailure:
    """The real gate over recorded answers."""
    return asyncio.run(gate(playback.send, target, adapter, lambda line: None))
