"""The scripted engine itself: what it answers to a request, without any transport.

`ScriptedServer` puts it behind a socket, `ScriptedTransport` hands it to httpx within one event loop, where virtual time makes it exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.scripted_script import Script, Step, StreamRequest, refused_fields, stream_steps


@dataclass(frozen=True)
class Answer:
    """One greedy generation. `margins[i]` is the gap between the two best log-probabilities at token i."""

    token_ids: tuple[int, ...]
    text: str
    margins: tuple[float, ...]
    finish_reason: str = "stop"


Answerer = Callable[[tuple[int, ...], int], Answer]
"""From prompt ids and max_tokens to the answer."""


def counting_answer(prompt: tuple[int, ...], max_tokens: int) -> Answer:
    """The default answer: ids 10, 11, 12 ..., certain of each."""
    ids = tuple(10 + n % 200 for n in range(max_tokens))
    return Answer(ids, "".join(f" t{n}" for n in range(max_tokens)), (16.0,) * max_tokens, "length")


@dataclass(frozen=True)
class Profile:
    """What the engine says it is."""

    engine: str = "vllm"
    version: str = "0.32.0"
    model: str = "canary"
    max_model_len: int = 1024
    token_capacity: int = 4096


@dataclass(frozen=True)
class Reply:
    """`answer` (text or JSON) with `status`, or the steps of a stream."""

    status: int = 200
    answer: Any = None
    steps: Iterator[Step] | None = None


class ScriptedEngine:
    """`script` for every stream, except that stream number n (from 0) follows `then[n]` if there is one."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        then: Mapping[int, Script] | None = None,
        profile: Profile | None = None,
        answer: Answerer = counting_answer,
    ) -> None:
        self.script, self.then, self.profile, self.answer = script or Script(), dict(then or {}), profile or Profile(), answer
        self.requests: list[tuple[str, Any]] = []
        """(path, JSON body or None) of every request, in order of arrival."""
        self.scored: Mapping[tuple[int, ...], Sequence[float]] = {}
        """Log-probabilities of known texts: token ids to one value per token but the first."""
        self.generated = 0
        self.drafts, self.draft_tokens, self.accepted_tokens = 0, 0, 0
        self._streams = 0
        self._prompts: list[tuple[int, ...]] = []

    def streamed(self) -> list[Any]:
        """Bodies of the streaming requests."""
        return [body for _, body in self.requests if isinstance(body, dict) and body.get("stream")]

    def reply(self, method: str, path: str, body: Any) -> Reply:
        """What the engine answers."""
        self.requests.append((path, body))
        if method == "GET":
            return self._info(path)
        if path in ("/v1/completions", "/v1/chat/completions") and isinstance(body, dict):
            chat = "chat" in path
            if body.get("prompt_logprobs") is not None and self.script.scores in _SCORES_REFUSED:
                return Reply(400, {"error": {"message": _SCORES_REFUSED[self.script.scores], "type": "BadRequestError", "code": 400}})
            return self._stream(body, chat) if body.get("stream") else Reply(answer=self._completion(body, chat))
        if path == "/generate" and isinstance(body, dict) and self.profile.engine == "sglang":
            return Reply(answer=self._generate(body))
        if path == "/completion" and isinstance(body, dict) and self.profile.engine == "llamacpp":
            return Reply(answer=self._llamacpp_completion(body))
        return Reply(404, {"detail": "Not Found"})

    def _info(self, path: str) -> Reply:
        model = {"id": self.profile.model, "object": "model", "max_model_len": self.profile.max_model_len}
        pages: dict[str, Any] = {"/health": "", "/v1/models": {"object": "list", "data": [model]}, "/metrics": self._metrics()}
        if self.profile.engine == "sglang":
            memory = {"token_capacity": self.profile.token_capacity}
            info = {"version": self.profile.version, "internal_states": [{"memory_usage": memory}]}
            pages |= {"/health_generate": "", "/server_info": info, "/get_server_info": info}
        elif self.profile.engine == "llamacpp":
            settings = {"n_ctx": self.profile.max_model_len}
            pages |= {"/props": {"build_info": f"{self.profile.version}-0c50a2b4", "default_generation_settings": settings}}
        else:
            pages |= {"/version": {"version": self.profile.version}}
        return Reply(200, pages[path]) if path in pages else Reply(404, {"detail": "Not Found"})

    def _metrics(self) -> str:
        name = _COUNTERS[self.profile.engine]
        value = float(round(self.generated * self.script.metrics_factor))
        labels = f'{{model_name="{self.profile.model}"}}'
        page = f"# HELP {name}_total Number of generated tokens.\n# TYPE {name}_total counter\n{name}_total{labels} {value}\n"
        if not self.script.draft_tokens or self.profile.engine != "vllm":
            return page
        drafted = {"drafts": self.drafts, "draft_tokens": self.draft_tokens, "accepted_tokens": self.accepted_tokens}
        return page + "".join(f"vllm:spec_decode_num_{what}_total{labels} {float(count)}\n" for what, count in drafted.items())

    def _stream(self, body: dict[str, Any], chat: bool) -> Reply:
        known = self.answer(_prompt_ids(body.get("prompt") or body.get("messages")), int(body.get("max_tokens") or 16))
        if chat and known.finish_reason == "stop":
            return self._streamed(body, chat, known)
        script = self.then.get(self._streams, self.script)
        self._streams += 1
        refused = refused_fields(script, body)
        if script.status is not None or refused:
            status = script.status or script.refuse_status
            message = f"fields refused: {', '.join(refused)}" if refused else "scripted failure"
            return Reply(status, {"error": {"message": message, "type": "BadRequestError", "code": status}})
        prompt = _prompt_ids(body.get("prompt") or body.get("messages"))
        cached = script.cached_tokens if script.page_size is None else _cached(prompt, self._prompts, script.page_size)
        self._prompts.append(prompt)
        pieces = _pieces(known, int(body.get("max_tokens") or 16)) if known.finish_reason == "stop" else ()
        request = StreamRequest(body, chat, len(prompt) + script.extra_prompt_tokens, cached, pieces)
        return Reply(steps=self._counted(stream_steps(script, request)))

    def _streamed(self, body: dict[str, Any], chat: bool, answer: Answer) -> Reply:
        """A known answer as a stream, word by word, at once: scripts of streams are about timed ones."""
        words = answer.text.split(" ")
        pieces = [word if i == 0 else f" {word}" for i, word in enumerate(words)]
        if self.script.streamed == "loses":
            pieces[2:3] = [""]
        prompt = _prompt_ids(body.get("prompt") or body.get("messages"))
        request = StreamRequest(body, chat, len(prompt), 0, tuple(pieces))
        return Reply(steps=self._counted(stream_steps(Script(first_delay_s=0.0, step_s=0.0), request)))

    def _counted(self, steps: Iterator[Step]) -> Iterator[Step]:
        for step in steps:
            self.generated += step.tokens
            if step.tokens and self.script.draft_tokens:
                self.drafts += 1
                self.draft_tokens += self.script.draft_tokens
                self.accepted_tokens += step.tokens - 1
            yield step

    def _greedy(self, prompt: Sequence[int], max_tokens: int) -> Answer:
        answer = self.answer(tuple(prompt), max_tokens)
        ids, text = answer.token_ids[:max_tokens], answer.text
        if self.script.greedy == "flood":
            ids, text = (0,) * max_tokens, "!" * max_tokens
        elif self.script.greedy == "wrong" and ids:
            ids = (*ids[:-1], ids[-1] + 1)
        self.generated += len(ids)
        margins = (*answer.margins, *(16.0,) * max_tokens)[: len(ids)]
        return Answer(ids, text, margins, "length" if len(ids) == max_tokens else answer.finish_reason)

    def _completion(self, body: Mapping[str, Any], chat: bool) -> dict[str, Any]:
        prompt = _prompt_ids(body.get("prompt") or body.get("messages"))
        answer = self._greedy(prompt, int(body.get("max_tokens") or 16))
        choice: dict[str, Any] = {"index": 0, "finish_reason": answer.finish_reason}
        choice |= {"message": {"role": "assistant", "content": answer.text}} if chat else {"text": answer.text}
        if body.get("return_token_ids"):
            choice |= {"token_ids": list(answer.token_ids), "prompt_token_ids": list(prompt)}
        if body.get("logprobs") and not chat:
            choice["logprobs"] = _logprobs(answer)
        if body.get("prompt_logprobs") is not None:
            choice["prompt_logprobs"] = [None, *({str(i): {"logprob": v, "rank": 1}} for i, v in self._scored(prompt))]
        counts = {"prompt_tokens": len(prompt), "completion_tokens": len(answer.token_ids)}
        return {"object": "text_completion", "model": self.profile.model, "choices": [choice], "usage": counts}

    def _scored(self, prompt: tuple[int, ...]) -> list[tuple[int, float]]:
        """(token, log-probability) of every token but the first."""
        known = self.scored.get(prompt) or [-(token % 7) / 4 for token in prompt[1:]]
        drift = 2.0 if self.script.scores == "drift" else 0.0
        return [(token, value - drift) for token, value in zip(prompt[1:], known, strict=True)]

    def _llamacpp_completion(self, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt = _prompt_ids(body.get("prompt"))
        answer = self._greedy(prompt, int(body.get("n_predict") or 16))
        said = {"content": answer.text, "tokens": list(answer.token_ids), "tokens_evaluated": len(prompt)}
        said |= {"stop_type": "limit" if answer.finish_reason == "length" else "eos"}
        if not body.get("n_probs"):
            return said
        best = [[{"id": i, "logprob": -0.001}, {"id": i + 1, "logprob": -0.001 - m}] for i, m in zip(*_pairs(answer), strict=True)]
        return said | {"completion_probabilities": [{"logprob": top[0]["logprob"], "top_logprobs": top} for top in best]}

    def _generate(self, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt = _prompt_ids(body.get("input_ids"))
        answer = self._greedy(prompt, int((body.get("sampling_params") or {}).get("max_new_tokens") or 16))
        pairs = list(zip(answer.token_ids, answer.margins, strict=True))
        meta = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(answer.token_ids),
            "finish_reason": {"type": answer.finish_reason},
            "output_token_logprobs": [[-0.001, i, None] for i, _ in pairs],
            "input_token_logprobs": [[None, prompt[0], None], *([value, i, None] for i, value in self._scored(prompt))],
            "input_top_logprobs": [None, *([[value, i, None]] for i, value in self._scored(prompt))],
            "output_top_logprobs": [[[-0.001, i, None], [-0.001 - margin, i + 1, None]] for i, margin in pairs],
        }
        return {"text": answer.text, "output_ids": list(answer.token_ids), "meta_info": meta}


_SCORES_REFUSED = {
    "nan": "Out of range float values are not JSON compliant",
    "refused": "Requested prompt logprobs of 1, which is greater than max allowed: 0 (parameter=prompt_logprobs, value=1)",
}


def _pieces(answer: Answer, max_tokens: int) -> tuple[str, ...]:
    """The text of a known answer in as many pieces as tokens were asked for: one character each, the rest with the last token."""
    return (*answer.text[: max_tokens - 1], answer.text[max_tokens - 1 :]) if len(answer.text) >= max_tokens else ()


_COUNTERS = {"vllm": "vllm:generation_tokens", "sglang": "sglang:generation_tokens", "llamacpp": "llamacpp:tokens_predicted"}


def _prompt_ids(prompt: Any) -> tuple[int, ...]:
    """The ids of a prompt of ids; for text or messages one id per byte, which is as good as any tokenizer here."""
    if isinstance(prompt, list) and all(isinstance(i, int) for i in prompt):
        return tuple(prompt)
    return tuple(str(prompt or "").encode())


def _pairs(answer: Answer) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return answer.token_ids, answer.margins


def _cached(prompt: tuple[int, ...], earlier: Sequence[tuple[int, ...]], page_size: int) -> int:
    """Tokens of the longest prefix shared with an earlier prompt, in whole pages; the last token is never cached."""
    longest = 0
    for other in earlier:
        shared = next((n for n, (a, b) in enumerate(zip(prompt, other, strict=False)) if a != b), min(len(prompt), len(other)))
        longest = max(longest, shared)
    return min(longest, len(prompt) - 1) // page_size * page_size


def _logprobs(answer: Answer) -> dict[str, Any]:
    pairs = list(zip(answer.token_ids, answer.margins, strict=True))
    return {
        "tokens": [f"token_id:{i}" for i, _ in pairs],
        "token_logprobs": [-0.001] * len(pairs),
        "top_logprobs": [{f"token_id:{i}": -0.001, f"token_id:{i + 1}": -0.001 - margin} for i, margin in pairs],
        "text_offset": [0] * len(pairs),
    }
