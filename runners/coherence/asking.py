"""Ask one prompt and read what came back.

Trap: an engine with NaN logits refuses to answer when log-probabilities are asked for (vLLM: HTTP 400, "Out of range float values are not
JSON compliant"), and a gate that stops there reports a refused request in place of a broken kernel. Likewise a reasoning parser moves all
text out of `content` (vllm-project/vllm#27755), which is not an empty answer. Rule: a refusal is tried once more without log-probabilities,
and the field that carried the text is part of the answer (M5, M6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runners.coherence.transport import Refused, Send
from runners.engines.answers import at, is_nonfinite, listed, margin_of, text_at, without_logprobs
from runners.engines.base import EngineAdapter, GreedyAnswer, HttpRequest, PromptScores

TEXT_FIELDS = ("content", "reasoning", "reasoning_content")
"""Where a chat answer's text may be: SGLang has `reasoning_content`, vLLM has `reasoning` since 0.16.0 and had both before."""
CHAT = "/v1/chat/completions"
_NOT_SERIALISABLE = "out of range float"


@dataclass(frozen=True)
class Asked:
    """A greedy answer from ids. `refusal` is what the server said when log-probabilities were asked for, None if it gave them."""

    answer: GreedyAnswer
    refusal: str | None = None

    @property
    def nonfinite(self) -> int | None:
        """First token whose log-probabilities are no finite numbers; 0 if the server refused to write them for that reason."""
        return 0 if is_not_serialisable(self.refusal) else self.answer.nonfinite


@dataclass(frozen=True)
class ChatAnswer:
    """Text of a chat answer and the field that carried it (None: every field was null or empty).

    `reasoning` is text beside it in a reasoning field. `tokens` are the texts of all tokens (reasoning included) and `margins` the gaps
    between their two best log-probabilities, both empty if the server gave none; `refusal` is what it said then.
    """

    text: str
    carried_by: str | None
    finish_reason: str | None
    reasoning: str = ""
    tokens: tuple[str, ...] = ()
    margins: tuple[float | None, ...] = ()
    first_nonfinite: int | None = None
    refusal: str | None = None

    @property
    def nonfinite(self) -> int | None:
        """First token whose log-probabilities are no finite numbers; 0 if the server refused to write them for that reason."""
        return 0 if is_not_serialisable(self.refusal) else self.first_nonfinite


def is_not_serialisable(refusal: str | None) -> bool:
    """Whether a server refused because its numbers are NaN or infinite."""
    return refusal is not None and _NOT_SERIALISABLE in refusal.lower()


async def ask_greedy(send: Send, adapter: EngineAdapter, model: str, prompt_ids: Sequence[int], max_tokens: int) -> Asked:
    """Greedy answer to exact ids. Raises Refused, NoAnswer or AnswerError."""
    request = adapter.greedy_request(model, prompt_ids, max_tokens)
    answer, refusal = await _with_or_without_logprobs(send, request)
    return Asked(adapter.read_greedy(answer), refusal)


async def ask_chat(send: Send, model: str, messages: Sequence[tuple[str, str]], max_tokens: int, *, logprobs: bool = False) -> ChatAnswer:
    """Greedy answer through the chat template. Raises Refused, NoAnswer or AnswerError."""
    extra: dict[str, Any] = {"logprobs": True, "top_logprobs": 2} if logprobs else {}
    answer, refusal = await _with_or_without_logprobs(send, HttpRequest(CHAT, {**_chat_body(model, messages, max_tokens), **extra}))
    return replace(read_chat(answer), refusal=refusal)


async def ask_chat_stream(send: Send, model: str, messages: Sequence[tuple[str, str]], max_tokens: int) -> ChatAnswer:
    """The same answer, streamed. Raises Refused, NoAnswer or AnswerError."""
    events = await send(HttpRequest(CHAT, {**_chat_body(model, messages, max_tokens), "stream": True}))
    return read_chat_stream(events)


async def ask_score(send: Send, adapter: EngineAdapter, model: str, token_ids: Sequence[int]) -> PromptScores | None:
    """Log-probabilities of a given text; None if this engine scores none. Raises Refused, NoAnswer or AnswerError."""
    request = adapter.score_request(model, token_ids)
    return None if request is None else adapter.read_score(await send(request), len(token_ids))


async def _with_or_without_logprobs(send: Send, request: HttpRequest) -> tuple[Any, str | None]:
    plain_request = without_logprobs(request)
    try:
        return await send(request), None
    except Refused as refused:
        if plain_request == request:
            raise
        try:
            return await send(plain_request), str(refused)
        except Refused:
            raise refused from None


def _chat_body(model: str, messages: Sequence[tuple[str, str]], max_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in messages],
        "temperature": 0,
        "max_tokens": max_tokens,
    }


def read_chat(answer: Any) -> ChatAnswer:
    """Text, carrying field, finish reason and log-probabilities of a chat answer; raises AnswerError."""
    choice = at(answer, "choices", 0)
    message = at(choice, "message")
    finish = at(choice, "finish_reason")
    fields: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
    texts = {name: fields[name] for name in TEXT_FIELDS if isinstance(fields.get(name), str) and fields[name]}
    return replace(_with_logprobs(choice.get("logprobs")), **_carried(texts), finish_reason=finish if isinstance(finish, str) else None)


def read_chat_stream(events: Any) -> ChatAnswer:
    """The whole text of a stream of chat chunks; raises AnswerError for anything that is no list of objects."""
    texts = dict.fromkeys(TEXT_FIELDS, "")
    finish: str | None = None
    for event in listed(events):
        choices = at(event, "choices")
        if not listed(choices):
            continue
        delta, ended = at(choices, 0, "delta"), choices[0].get("finish_reason")
        finish = ended if isinstance(ended, str) else finish
        for name in TEXT_FIELDS:
            part = delta.get(name) if isinstance(delta, Mapping) else None
            texts[name] += part if isinstance(part, str) else ""
    return replace(_NOTHING, **_carried({name: text for name, text in texts.items() if text}), finish_reason=finish)


_NOTHING = ChatAnswer("", None, None)


def _carried(texts: Mapping[str, str]) -> dict[str, Any]:
    carried_by = next((name for name in TEXT_FIELDS if name in texts), None)
    reasoning = next((texts[name] for name in TEXT_FIELDS[1:] if name in texts and name != carried_by), "")
    return {"text": texts[carried_by] if carried_by else "", "carried_by": carried_by, "reasoning": reasoning}


def _with_logprobs(logprobs: Any) -> ChatAnswer:
    """Texts and margins of the tokens of a chat answer, in OpenAI's form, which both engines use."""
    if not isinstance(logprobs, Mapping) or not logprobs.get("content"):
        return _NOTHING
    tokens: list[str] = []
    margins: list[float | None] = []
    bad: int | None = None
    for i, entry in enumerate(listed(logprobs["content"])):
        tokens.append(text_at(entry, "token"))
        best = [at(top, "logprob") for top in listed(at(entry, "top_logprobs"))]
        margins.append(margin_of(0, list(enumerate(best)))[0])
        if bad is None and any(map(is_nonfinite, (at(entry, "logprob"), *best))):
            bad = i
    return replace(_NOTHING, tokens=tuple(tokens), margins=tuple(margins), first_nonfinite=bad)
