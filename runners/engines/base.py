"""What an engine must be able to say about itself.

Trap: engine differences leak into the pipeline as if-chains. Rule: an adapter only *builds* requests and *reads* answers (pure functions);
processes, sockets and clocks belong to the pipeline. A new engine is one module here and one folder of facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

UNKNOWN = "unknown"
"""The value of anything an engine did not say. It is never replaced by what was configured."""


@dataclass(frozen=True)
class ServeRequest:
    """What shall be served, in engine-neutral words. `arguments` and `environment` come from recipe and backend.

    `small_cache`: a GPU's server takes what a canary needs, not most of the card; nothing will be timed.
    """

    model_path: str
    served_name: str
    host: str
    port: int
    has_cuda: bool
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    small_cache: bool = False


@dataclass(frozen=True)
class ServeCommand:
    """Exact argv and the environment variables we set on top of the inherited ones."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class HttpRequest:
    """One request to the server: path such as "/v1/completions" and the JSON body (None: GET)."""

    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GreedyAnswer:
    """One greedy generation, exact ids.

    `margins[i]` is the top1-top2 log-probability gap at answer token i (nats), None where the engine gave none; `nonfinite` is the
    first position whose log-probabilities held NaN or inf (M17), None if there is none. `finish_reason` is the engine's own word
    ("stop", "length").
    """

    token_ids: tuple[int, ...]
    text: str
    margins: tuple[float | None, ...]
    finish_reason: str | None
    nonfinite: int | None = None
    top1_ids: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class PromptScores:
    """A given text scored by the model, one value per token, without generating anything (M18: it does not branch).

    `logprobs[i]` is the log-probability (nats) of token i given those before it; None for the first, and where it is no finite number.
    `top1[i]` says whether token i is the most likely one, None where that is not known. `nonfinite` is the first position whose
    log-probability is NaN, inf or null (M17), None if there is none.
    """

    logprobs: tuple[float | None, ...]
    top1: tuple[bool | None, ...]
    nonfinite: int | None = None


@dataclass(frozen=True)
class Identity:
    """What the server itself says it is.

    `kernels` maps slots (attention, moe, linear, kv_cache_dtype, graph_mode) to names or "unknown".
    """

    version: str | None
    model: str | None
    max_model_len: int | None
    kv_cache_tokens: int | None
    model_memory_bytes: int | None
    kernels: Mapping[str, str]
    unparsed: tuple[str, ...] = ()
    """Log lines that carry a known anchor but not its known pattern: reported, never defaulted."""


class EngineAdapter(Protocol):
    """One engine. Every method is pure: no I/O, no clock. Answers that cannot be read raise `AnswerError`."""

    name: str

    def serve_command(self, python: Path, version: str, request: ServeRequest) -> ServeCommand:
        """Exact command and environment that serve `request` with this version."""
        ...

    def info_requests(self, version: str) -> Sequence[HttpRequest]:
        """GET requests whose answers `identify` wants (a refusal of one is not an error)."""
        ...

    def identify(self, version: str, answers: Mapping[str, Any], log_text: str) -> Identity:
        """Read the identity from info answers (path -> JSON or text) and the boot log."""
        ...

    def greedy_request(self, model: str, prompt_ids: Sequence[int], max_tokens: int) -> HttpRequest:
        """Greedy generation from exact ids, with the two best log-probabilities, stopping at the engine's own stop."""
        ...

    def read_greedy(self, answer: Any) -> GreedyAnswer:
        """Read the answer to `greedy_request`; raises AnswerError on anything else a server may send."""
        ...

    def score_request(self, model: str, token_ids: Sequence[int]) -> HttpRequest | None:
        """Log-probabilities of every token of a given text; None if this engine has no such request."""
        ...

    def read_score(self, answer: Any, tokens: int) -> PromptScores:
        """Read the answer to `score_request` for a text of `tokens` tokens; raises AnswerError on anything else a server may send."""
        ...

    def text_request(self, model: str, text: str) -> HttpRequest | None:
        """A text whose answer tells its token ids, where `/tokenize` does not; None if this engine has no such request."""
        ...

    def read_text_ids(self, answer: Any) -> tuple[int, ...]:
        """The ids of the text of `text_request`, with those that the engine put before it; raises AnswerError for anything else."""
        ...

    def generated_tokens(self, metrics_text: str) -> int | None:
        """The engine's own counter of generated tokens from a Prometheus page, summed over labels; None if it has none."""
        ...


class AnswerError(Exception):
    """A server's answer that does not have the expected shape; the message names the path into the JSON and what was there."""
