"""The engines' HTTP dialect, as far as judging needs it: requests from ids or messages, answers with ids and the best
log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

COMPLETIONS, CHAT, TOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize"


class Refusal(Exception):
    """A request that this server does not answer: HTTP 400 with the reason."""


class LoadFailed(Exception):
    """The engine did not load the checkpoint; the reason is the engine's own."""


def prompt_ids(body: dict[str, Any]) -> list[int]:
    """The prompt of a completion; raises Refusal."""
    prompt = body.get("prompt")
    if body.get("stream"):
        raise Refusal("this server streams chats only")
    if not isinstance(prompt, list) or not prompt or not all(isinstance(i, int) for i in prompt):
        raise Refusal("the prompt must be a list of token ids")
    return prompt


def chat_ids(tokenizer: Any, body: dict[str, Any]) -> list[int]:
    """The ids of a chat through the checkpoint's own template; raises Refusal."""
    try:
        text = tokenizer.apply_chat_template(body.get("messages"), add_generation_prompt=True, tokenize=False)
    except Exception as error:  # no template, or one that refuses these messages: as a server would say
        raise Refusal(f"the chat template does not take the messages: {type(error).__name__}: {error}") from error
    return list(tokenizer(text, add_special_tokens=False).input_ids)


@dataclass(frozen=True)
class Generated:
    """One finished generation. `best[i]` maps the best ids at token i to (log-probability, text); None if none were asked for."""

    prompt_tokens: int
    ids: list[int]
    text: str
    finish: str | None
    best: list[dict[int, tuple[float, str]]] | None = None
    prompt_best: list[dict[int, tuple[float, int]] | None] | None = None
    """Per prompt token its id and the best one, with log-probability and rank."""


def completion(done: Generated) -> dict[str, Any]:
    """The answer of /v1/completions."""
    logprobs = None
    if done.best is not None:
        logprobs = {
            "tokens": [f"token_id:{i}" for i in done.ids],
            "token_logprobs": [best[i][0] for i, best in zip(done.ids, done.best, strict=True)],
            "top_logprobs": [{f"token_id:{i}": value for i, (value, _) in best.items()} for best in done.best],
        }
    prompt = None
    if done.prompt_best is not None:
        prompt = [
            None if best is None else {str(i): {"logprob": value, "rank": rank} for i, (value, rank) in best.items()}
            for best in done.prompt_best
        ]
    choice = {"text": done.text, "token_ids": done.ids, "finish_reason": done.finish, "logprobs": logprobs, "prompt_logprobs": prompt}
    return {"object": "text_completion", "choices": [{"index": 0, **choice}], "usage": _usage(done)}


def chat_completion(done: Generated) -> dict[str, Any]:
    """The answer of /v1/chat/completions."""
    logprobs = None
    if done.best is not None:
        logprobs = {"content": [_token(i, best) for i, best in zip(done.ids, done.best, strict=True)]}
    choice = {"message": {"role": "assistant", "content": done.text}, "finish_reason": done.finish, "logprobs": logprobs}
    return {"object": "chat.completion", "choices": [{"index": 0, **choice}], "usage": _usage(done)}


def chat_chunk(text: str, finish: str | None) -> dict[str, Any]:
    """One event of a streamed chat."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def _token(token: int, best: dict[int, tuple[float, str]]) -> dict[str, Any]:
    ranked = sorted(best.items(), key=lambda item: -item[1][0])[:2]
    tops = [{"token": text, "logprob": value} for _, (value, text) in ranked]
    return {"token": best[token][1], "logprob": best[token][0], "top_logprobs": tops}


def _usage(done: Generated) -> dict[str, int]:
    new = len(done.ids)
    return {"prompt_tokens": done.prompt_tokens, "completion_tokens": new, "total_tokens": done.prompt_tokens + new}


def tokenized(tokenizer: Any, body: dict[str, Any], max_model_len: int | None) -> dict[str, Any]:
    """The answer of /tokenize."""
    ids = list(tokenizer(str(body.get("prompt") or ""), add_special_tokens=bool(body.get("add_special_tokens", True))).input_ids)
    return {"count": len(ids), "max_model_len": max_model_len, "tokens": ids}
