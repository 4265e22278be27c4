"""Ask one prompt and read what came back.

Trap: an engine with NaN logits refuses to answer when log-probabilities are asked for (vLLM: HTTP 400, "Out of range float values are not
JSON compliant"), and a gate that stops there reports a refused request in place of a broken kernel. Likewise a reasoning parser moves all
text out of `content` (vllm-project/vllm#27755), which is not an empty answer. Rule: a refusal is tried once more without log-probabilities,
and the field that carried the text is part of the answer (M5, M6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runners.coherence.transport import Refused, Send
from runners.engines.answers import at, token_ids_at, without_logprobs
from runners.engines.base import EngineAdapter, GreedyAnswer, HttpRequest

TEXT_FIELDS = ("content", "reasoning", "reasoning_content")
"""Where a chat answer's text may be: SGLang has `reasoning_content`, vLLM has `reasoning` since 0.16.0 and had both before."""
_NOT_SERIALISABLE = "out of range float"


@dataclass(frozen=True)
class Asked:
    """A greedy answer from ids. `refusal` is what the server said when log-probabilities were asked for, None if it gave them."""

    answer: GreedyAnswer
    refusal: str | None = None

    @property
    def nonfinite(self) -> int | None:
        """First token whose log-probabilities are no finite numbers; 0 if the server refused to write them for that reason."""
        if self.refusal is not None and _NOT_SERIALISABLE in self.refusal.lower():
            return 0
        return self.answer.nonfinite


@dataclass(frozen=True)
class ChatAnswer:
    """Text of a chat answer and the field that carried it (None: every field was null or empty)."""

    text: str
    carried_by: str | None
    finish_reason: str | None


async def ask_greedy(send: Send, adapter: EngineAdapter, model: str, prompt_ids: Sequence[int], max_tokens: int) -> Asked:
    """Greedy answer to exact ids. Raises Refused, NoAnswer or AnswerError."""
    request = adapter.greedy_request(model, prompt_ids, max_tokens)
    try:
        return Asked(adapter.read_greedy(await send(request)))
    except Refused as refused:
        plain_request = without_logprobs(request)
        try:
            return Asked(adapter.read_greedy(await send(plain_request)), refusal=str(refused))
        except Refused:
            raise refused from None


async def ask_chat(send: Send, model: str, messages: Sequence[tuple[str, str]], max_tokens: int) -> ChatAnswer:
    """Greedy answer through the chat template. Raises Refused, NoAnswer or AnswerError."""
    body = {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in messages],
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    return read_chat(await send(HttpRequest("/v1/chat/completions", body)))


def read_chat(answer: Any) -> ChatAnswer:
    """Text, carrying field and finish reason of a chat answer; raises AnswerError."""
    choice = at(answer, "choices", 0)
    message = at(choice, "message")
    finish = at(choice, "finish_reason")
    fields: Mapping[str, Any] = message if isinstance(message, Mapping) else {}
    carried_by = next((name for name in TEXT_FIELDS if isinstance(fields.get(name), str) and fields[name]), None)
    return ChatAnswer(fields[carried_by] if carried_by else "", carried_by, finish if isinstance(finish, str) else None)


async def tokenize(send: Send, model: str, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
    """Ids of `text` from the server's own tokenizer (POST /tokenize, the same in both engines). Raises Refused, NoAnswer or AnswerError."""
    body = {"model": model, "prompt": text, "add_special_tokens": add_special_tokens}
    return token_ids_at(await send(HttpRequest("/tokenize", body)), "tokens")
