"""SGLang.

Trap: metrics and cache reports are off by default, a CPU server takes all memory for its KV pool, and NaN log-probabilities arrive as null.
Rule: what measuring needs is asked for explicitly; answers are read from /generate, the only place with exact ids in every version. Flags
that choose kernels or graphs are a backend's (`suites/backends`), never set here.
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
from runners.engines.launch import VersionedArguments, arguments_for, command, option, with_defaults

_INFO: VersionedArguments = (("..0.5.5", ("/get_server_info", "/get_model_info")), ("0.5.6..", ("/server_info", "/model_info")))
_CPU_ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1"}
_CPU_LEAST_TOKENS = 8192
_SMALL_CACHE = {"--mem-fraction-static": "0.3", "--max-total-tokens": "65536"}


class SglangAdapter:
    """See `EngineAdapter`."""

    name = "sglang"

    def serve_command(self, python: Path, version: str, request: ServeRequest) -> ServeCommand:
        """`python -m sglang.launch_server`, which every version has. A CPU server needs its KV pool stated: it would take all memory."""
        argv: tuple[str, ...] = (str(python), "-m", "sglang.launch_server", "--model-path", request.model_path)
        argv += ("--served-model-name", request.served_name, "--host", request.host, "--port", str(request.port), "--random-seed", "0")
        argv += option("--context-length", request.max_model_len) + option("--max-running-requests", request.max_num_seqs)
        argv += ("--enable-metrics", "--enable-cache-report", "--decode-log-interval", "10")
        if request.has_cuda:
            return command(argv + (with_defaults(request, _SMALL_CACHE) if request.small_cache else ()), request, {})
        pool = max(4 * (request.max_model_len or 0), _CPU_LEAST_TOKENS)
        argv += ("--device", "cpu")
        argv += with_defaults(request, {"--max-total-tokens": str(pool), "--mem-fraction-static": "0.3"})
        return command(argv, request, _CPU_ENVIRONMENT)

    def info_requests(self, version: str) -> Sequence[HttpRequest]:
        """The info pages were renamed in 0.5.6."""
        return (*(HttpRequest(path) for path in arguments_for(version, _INFO)), HttpRequest("/v1/models"))

    def identify(self, version: str, answers: Mapping[str, Any], log_text: str) -> Identity:
        """Version and resolved arguments from the info answer, kernels and sizes from it and from the log."""
        pages = (answers.get("/server_info"), answers.get("/get_server_info"))
        info = next((page for page in pages if isinstance(page, Mapping)), None)
        reported = info.get("version") if info else None
        return read_identity(self.name, version, reported=reported, answers=answers, log_text=log_text, server_info=info)

    def greedy_request(self, model: str, prompt_ids: Sequence[int], max_tokens: int) -> HttpRequest:
        """/generate from ids; `logprob_start_len` -1: log-probabilities of the answer only, the prompt is not computed twice."""
        body = {
            "input_ids": list(prompt_ids),
            "sampling_params": {"temperature": 0, "max_new_tokens": max_tokens, "skip_special_tokens": False},
            "return_logprob": True,
            "top_logprobs_num": 2,
            "logprob_start_len": -1,
        }
        return HttpRequest("/generate", body)

    def read_greedy(self, answer: Any) -> GreedyAnswer:
        """`output_ids` includes the end-of-sequence token when the answer stopped by itself (seen in 0.5.12.post1, 0.5.14 and 0.5.23)."""
        ids = token_ids_at(answer, "output_ids")
        meta = at(answer, "meta_info")
        finish = at(meta, "finish_reason")
        kind = finish.get("type") if isinstance(finish, Mapping) else finish
        read = _logprobs_of(meta, ids)
        return GreedyAnswer(
            token_ids=ids,
            text=text_at(answer, "text"),
            margins=read.margins,
            finish_reason=kind if isinstance(kind, str) else None,
            nonfinite=read.nonfinite,
            top1_ids=read.top1_ids,
        )

    def score_request(self, model: str, token_ids: Sequence[int]) -> HttpRequest | None:
        """`return_logprob` from the first token on; nothing is taken from the prefix cache then."""
        body = {
            "input_ids": list(token_ids),
            "sampling_params": {"temperature": 0, "max_new_tokens": 1},
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 1,
        }
        return HttpRequest("/generate", body)

    def read_score(self, answer: Any, tokens: int) -> PromptScores:
        """Triples [log-probability, id, text], the first log-probability null. The ids are not compared: 0.5.14 writes the last id of the
        vocabulary as 0 there."""
        meta = at(answer, "meta_info")
        best = [_best(top) for top in listed(at(meta, "input_top_logprobs"))]
        own = [_pair(triple)[1] for triple in listed(at(meta, "input_token_logprobs"))]
        if len(best) != len(own):
            raise AnswerError(f"{len(own)} log-probabilities of the prompt, but {len(best)} lists of the best")
        return prompt_scores(tokens, [(value, None if top is None else value == top) for value, top in zip(own, best, strict=True)])

    def text_request(self, model: str, text: str) -> HttpRequest | None:
        """`return_prompt_token_ids`, from 0.5.14 on; older releases answer without them."""
        body = {"text": text, "sampling_params": {"temperature": 0, "max_new_tokens": 1}, "return_prompt_token_ids": True}
        return HttpRequest("/generate", body)

    def read_text_ids(self, answer: Any) -> tuple[int, ...]:
        """`prompt_token_ids`, BOS included where the tokenizer puts one first (recorded from 0.5.14)."""
        return token_ids_at(answer, "prompt_token_ids")

    def generated_tokens(self, metrics_text: str) -> int | None:
        """`sglang:generation_tokens_total`; 0.5.23 splits it by the label is_streaming."""
        return counter_total(metrics_text, "sglang:generation_tokens")


def _best(top: Any) -> Any:
    """The highest log-probability of a list of triples; None for the first token, which has no list."""
    return _pair(top[0])[1] if isinstance(top, list) and top else None


def _logprobs_of(meta: Any, ids: Sequence[int]) -> AnswerLogprobs:
    """From [logprob, id, text] triples."""
    chosen, best = meta.get("output_token_logprobs"), meta.get("output_top_logprobs")
    if chosen is None and best is None:
        return no_logprobs(ids)
    pairs = [[_pair(triple) for triple in top] if isinstance(top, list) else [] for top in listed(best)]
    return read_logprobs(ids, [_pair(triple)[1] for triple in listed(chosen)], pairs)


def _pair(triple: Any) -> tuple[int, Any]:
    if not isinstance(triple, list) or len(triple) < 2 or not isinstance(triple[1], int):
        raise AnswerError(f"a log-probability should be [logprob, id, text], found {triple!r:.60}")
    return triple[1], triple[0]
