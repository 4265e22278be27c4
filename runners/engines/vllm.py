"""vLLM.

Trap: the `vllm` console script is missing where the wheel has another name (the CPU build), an answer with NaN log-probabilities is refused
with HTTP 400 ("Out of range float values are not JSON compliant", 0.32.0), and log-probabilities keyed by decoded text merge different
tokens that print alike. Rule: the module is started, not the script; tokens are asked for as ids; a refusal is tried again without
log-probabilities by the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runners.engines.answers import (
    AnswerLogprobs,
    at,
    counter_total,
    listed,
    no_logprobs,
    prompt_scores,
    read_logprobs,
    text_at,
    token_ids_at,
)
from runners.engines.base import AnswerError, GreedyAnswer, HttpRequest, Identity, PromptScores, ServeCommand, ServeRequest
from runners.engines.identity import read_identity
from runners.engines.launch import command, option

_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_COLOR": "0"}
_CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""1 GiB of KV cache; no pinning, because pinned threads of two servers or of the client fight for one core."""
SMALL_CACHE = ("--gpu-memory-utilization", "0.1", "--kv-cache-memory-bytes", "1000000000")
"""A canary needs no more on a GPU; the default takes nine tenths of its memory for every checkpoint anew."""
_ID_PREFIX = "token_id:"


class VllmAdapter:
    """See `EngineAdapter`."""

    name = "vllm"

    def serve_command(self, python: Path, version: str, request: ServeRequest) -> ServeCommand:
        """CUDA builds are started as `vllm serve` is, CPU builds by the API server's module, which works under any wheel name.

        Without `--enable-prompt-tokens-details` (0.10.2..0.33.0) the usage does not say how many prompt tokens were cached (M9).
        """
        module = ("vllm.entrypoints.cli.main", "serve") if request.has_cuda else ("vllm.entrypoints.openai.api_server", "--model")
        argv: tuple[str, ...] = (str(python), "-m", *module, request.model_path)
        argv += ("--served-model-name", request.served_name, "--host", request.host, "--port", str(request.port), "--seed", "0")
        argv += option("--max-model-len", request.max_model_len) + option("--max-num-seqs", request.max_num_seqs)
        argv += ("--enable-prompt-tokens-details",)
        argv += SMALL_CACHE if request.has_cuda and request.small_cache else ()
        environment = _ENVIRONMENT if request.has_cuda else {**_ENVIRONMENT, **_CPU_ENVIRONMENT}
        return command(argv, request, environment)

    def info_requests(self, version: str) -> Sequence[HttpRequest]:
        """/server_info answers in development mode only."""
        return (HttpRequest("/version"), HttpRequest("/v1/models"), HttpRequest("/server_info?config_format=json"))

    def identify(self, version: str, answers: Mapping[str, Any], log_text: str) -> Identity:
        """Version from /version; kernels and sizes from the log."""
        reported = answers.get("/version")
        info = answers.get("/server_info?config_format=json")
        return read_identity(
            self.name,
            version,
            reported=reported.get("version") if isinstance(reported, Mapping) else None,
            answers=answers,
            log_text=log_text,
            server_info=info if isinstance(info, Mapping) else None,
        )

    def greedy_request(self, model: str, prompt_ids: Sequence[int], max_tokens: int) -> HttpRequest:
        """/v1/completions from ids. Nothing is added to the prompt and nothing is hidden in the answer."""
        body = {
            "model": model,
            "prompt": list(prompt_ids),
            "max_tokens": max_tokens,
            "temperature": 0,
            "logprobs": 2,
            "return_tokens_as_token_ids": True,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "add_special_tokens": False,
        }
        return HttpRequest("/v1/completions", body)

    def read_greedy(self, answer: Any) -> GreedyAnswer:
        """`token_ids` includes the end-of-sequence token when the answer stopped by itself (seen in 0.26.0 and 0.32.0)."""
        choice = at(answer, "choices", 0)
        finish = at(choice, "finish_reason")
        logprobs = choice.get("logprobs")
        ids = token_ids_at(choice, "token_ids") if choice.get("token_ids") is not None else _ids_of_tokens(logprobs)
        read = _logprobs_of(logprobs, ids)
        return GreedyAnswer(
            token_ids=ids,
            text=text_at(choice, "text"),
            margins=read.margins,
            finish_reason=finish if isinstance(finish, str) else None,
            nonfinite=read.nonfinite,
            top1_ids=read.top1_ids,
        )

    def score_request(self, model: str, token_ids: Sequence[int]) -> HttpRequest | None:
        """`prompt_logprobs`, in all versions read and refused while streaming; 1 beside the token's own tells the most likely one."""
        body = {"model": model, "prompt": list(token_ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
        return HttpRequest("/v1/completions", {**body, "add_special_tokens": False})

    def read_score(self, answer: Any, tokens: int) -> PromptScores:
        """One object per token, the first null, from token id to log-probability and rank; the token's own id is the one not of rank 1.

        With one entry the token itself is the most likely one. Recorded from 0.32.0.
        """
        entries = listed(at(answer, "choices", 0, "prompt_logprobs"))
        return prompt_scores(tokens, [_scored(entry) for entry in entries])

    def text_request(self, model: str, text: str) -> HttpRequest | None:
        """None: `/tokenize` is there in all versions read."""
        return None

    def read_text_ids(self, answer: Any) -> tuple[int, ...]:
        """Never asked for."""
        raise AnswerError("this engine tells the ids of a text in its endpoint only")

    def generated_tokens(self, metrics_text: str) -> int | None:
        """`vllm:generation_tokens_total`, in all versions read."""
        return counter_total(metrics_text, "vllm:generation_tokens")


def _scored(entry: Any) -> tuple[Any, bool | None]:
    if not isinstance(entry, Mapping) or not entry:
        return None, None
    ranked = [(at(value, "rank"), at(value, "logprob")) for value in entry.values()]
    if not all(type(rank) is int for rank, _ in ranked):
        raise AnswerError(f"prompt_logprobs should have a rank per token: {ranked!s:.80}")
    rank, logprob = max(ranked, key=lambda pair: pair[0])
    return logprob, rank == 1


def _ids_of_tokens(logprobs: Any) -> tuple[int, ...]:
    """Ids from the `token_id:N` names of a server that takes `return_tokens_as_token_ids` but not `return_token_ids`."""
    tokens = at(logprobs, "tokens") if logprobs is not None else None
    if not isinstance(tokens, list):
        raise AnswerError("the answer has neither token_ids nor logprobs.tokens: exact ids cannot be read")
    return tuple(_id_of(token) for token in tokens)


def _id_of(token: Any) -> int:
    number = token.removeprefix(_ID_PREFIX) if isinstance(token, str) and token.startswith(_ID_PREFIX) else ""
    if not number.isascii() or not number.isdigit() or len(number) > 12:
        raise AnswerError(f"a token should be written {_ID_PREFIX}N, found {token!r:.60}")
    return int(number)


def _logprobs_of(logprobs: Any, ids: Sequence[int]) -> AnswerLogprobs:
    if logprobs is None:
        return no_logprobs(ids)
    best = at(logprobs, "top_logprobs")
    pairs = [[(_id_of(name), value) for name, value in top.items()] if isinstance(top, Mapping) else [] for top in listed(best)]
    return read_logprobs(ids, listed(at(logprobs, "token_logprobs")), pairs)
