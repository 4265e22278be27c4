"""llama.cpp's server, attached to as `llamacpp==bNNNN@endpoint:URL`.

Trap: a build has a number of commits instead of a version, and a checkout without history calls itself b1; part of a prompt is taken from
the last request's cache, which changes the numbers. Rule: the build is what /props says, never sorted as a release; every request asks for
an unused cache and for raw ids.

Field names are those of the server's own documentation (tools/server/README.md); build b11434 was asked on a CPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runners.engines.answers import AnswerLogprobs, at, counter_total, listed, no_logprobs, read_logprobs, text_at, token_ids_at
from runners.engines.base import UNKNOWN, AnswerError, GreedyAnswer, HttpRequest, Identity, PromptScores, ServeCommand, ServeRequest
from runners.errors import UsageError

_BUILD = re.compile(r"(b\d{1,9})(?:-[0-9a-f]{1,40})?")
_FINISH = {"eos": "stop", "word": "stop", "limit": "length"}
_SLOTS = ("attention", "moe", "linear", "kv_cache_dtype", "graph_mode")


class LlamacppAdapter:
    """See `EngineAdapter`."""

    name = "llamacpp"

    def serve_command(self, python: Path, version: str, request: ServeRequest) -> ServeCommand:
        """Never: nothing of it is installed here. Raises UsageError."""
        raise UsageError("llama.cpp is measured only where it already runs.", todo=f"Give it as {self.name}=={version}@endpoint:URL.")

    def info_requests(self, version: str) -> Sequence[HttpRequest]:
        """Build, context and model file stand in /props."""
        return (HttpRequest("/props"), HttpRequest("/v1/models"))

    def identify(self, version: str, answers: Mapping[str, Any], log_text: str) -> Identity:
        """No answer names a kernel, so every slot is unknown. `max_model_len` is the context of one slot."""
        props = answers.get("/props")
        props = props if isinstance(props, Mapping) else {}
        settings = props.get("default_generation_settings")
        context = settings.get("n_ctx") if isinstance(settings, Mapping) else None
        return Identity(
            version=_build(props.get("build_info")),
            model=_first_id(answers.get("/v1/models")),
            max_model_len=context if type(context) is int and context > 0 else None,
            kv_cache_tokens=None,
            model_memory_bytes=None,
            kernels=dict.fromkeys(_SLOTS, UNKNOWN),
        )

    def greedy_request(self, model: str, prompt_ids: Sequence[int], max_tokens: int) -> HttpRequest:
        """/completion from ids: no BOS is added to a prompt that begins with an id."""
        body = {
            "prompt": list(prompt_ids),
            "n_predict": max_tokens,
            "temperature": 0,
            "n_probs": 2,
            "return_tokens": True,
            "cache_prompt": False,
            "stream": False,
        }
        return HttpRequest("/completion", body)

    def read_greedy(self, answer: Any) -> GreedyAnswer:
        """Ids from `tokens`, the end-of-sequence token included; margins from `completion_probabilities`, absent without `n_probs`."""
        ids = token_ids_at(answer, "tokens")
        read = _logprobs_of(answer.get("completion_probabilities"), ids)
        stop_type = at(answer, "stop_type")
        return GreedyAnswer(
            token_ids=ids,
            text=text_at(answer, "content"),
            margins=read.margins,
            finish_reason=_FINISH.get(stop_type) if isinstance(stop_type, str) else None,
            nonfinite=read.nonfinite,
            top1_ids=read.top1_ids,
        )

    def score_request(self, model: str, token_ids: Sequence[int]) -> HttpRequest | None:
        """None: the server scores generated tokens only."""
        return None

    def read_score(self, answer: Any, tokens: int) -> PromptScores:
        """Never asked for."""
        raise AnswerError("this engine scores no prompts")

    def text_request(self, model: str, text: str) -> HttpRequest | None:
        """None: `/tokenize` is there in all builds read."""
        return None

    def read_text_ids(self, answer: Any) -> tuple[int, ...]:
        """Never asked for."""
        raise AnswerError("this engine tells the ids of a text in its endpoint only")

    def generated_tokens(self, metrics_text: str) -> int | None:
        """`llamacpp:tokens_predicted_total`; the page exists only with `--metrics`."""
        return counter_total(metrics_text, "llamacpp:tokens_predicted")


def _build(info: Any) -> str | None:
    """`b6123` of `b6123-0c50a2b4`; None for `b0-unknown`, which is no number."""
    found = _BUILD.fullmatch(info) if isinstance(info, str) else None
    return found.group(1) if found else None


def _first_id(models: Any) -> str | None:
    data = models.get("data") if isinstance(models, Mapping) else None
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], Mapping) else {}
    name = first.get("id")
    return name if isinstance(name, str) else None


def _logprobs_of(entries: Any, ids: Sequence[int]) -> AnswerLogprobs:
    if entries is None:
        return no_logprobs(ids)
    chosen = [at(entry, "logprob") for entry in listed(entries)]
    best = [[(_id_of(top), at(top, "logprob")) for top in listed(at(entry, "top_logprobs"))] for entry in entries]
    return read_logprobs(ids, chosen, best)


def _id_of(top: Any) -> int:
    token = at(top, "id")
    if type(token) is not int or token < 0:
        raise AnswerError(f"top_logprobs.id is no token id: {token!r:.60}")
    return token
