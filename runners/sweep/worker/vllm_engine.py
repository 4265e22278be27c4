"""vLLM's engine in this very process. `VLLM_ENABLE_V1_MULTIPROCESSING=0` must be set before this is imported.

The trap: the engine says once a process which kernel it chose, so that every checkpoint but the first one seems to have none. The rule:
what it keeps for "once" is cleared before each load.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from typing import Any

import vllm
from dialect import (
    CHAT,
    TOKENIZE,
    Generated,
    LoadFailed,
    chat_chunk,
    chat_completion,
    chat_ids,
    completion,
    prompt_ids,
    tokenized,
)
from transformers import AutoTokenizer
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.sampling_params import RequestOutputKind

try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser


@dataclass
class _Asked:
    """A request that is being answered; `events` collects those of a stream."""

    prompt_tokens: int
    chat: bool
    events: list[dict[str, Any]] | None


class VllmEngine:
    """vLLM's engine in this process (`VLLM_ENABLE_V1_MULTIPROCESSING=0` must be set before it is imported)."""

    def __init__(self) -> None:
        self.version = str(vllm.__version__)
        self.max_model_len: int | None = None
        self._engine: Any = None
        self._model = ""
        self._tokenizer: Any = None
        self._asked: dict[str, _Asked] = {}

    def load(self, model: str, arguments: list[str]) -> None:
        """Load a checkpoint with serve arguments; raises LoadFailed."""
        _forget_what_was_said_once()
        try:
            namespace = EngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(["--model", model, *arguments])
            engine_args = EngineArgs.from_cli_args(namespace)
            engine_args.disable_log_stats = True
            self._engine = LLMEngine.from_engine_args(engine_args)
        except SystemExit as error:
            raise LoadFailed(f"the arguments were refused (exit code {error.code}): {' '.join(arguments)}") from error
        except Exception as error:  # the engine's own, whatever class it has: its words are the result
            raise LoadFailed(f"{type(error).__name__}: {error}") from error
        self._model, self._tokenizer = model, None
        self.max_model_len = int(self._engine.model_config.max_model_len)

    def unload(self) -> None:
        """Give everything back, as far as this process can."""
        engine, self._engine, self._tokenizer = self._engine, None, None
        self._asked.clear()
        if engine is not None:
            engine.engine_core.shutdown()
        del engine
        gc.collect()
        cleanup_dist_env_and_memory()

    @property
    def busy(self) -> bool:
        """Whether there is something to compute."""
        return self._engine is not None and bool(self._engine.has_unfinished_requests())

    def add(self, key: str, path: str, body: dict[str, Any]) -> Any:
        """Begin a request. An answer that needs no computing comes back at once, others (None) from `step`. Raises Refusal."""
        if path == TOKENIZE:
            return tokenized(self._hf_tokenizer(), body, self.max_model_len)
        chat = path == CHAT
        ids = chat_ids(self._hf_tokenizer(), body) if chat else prompt_ids(body)
        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=int(body.get("max_tokens") or 16),
            min_tokens=int(body.get("min_tokens") or 0),
            ignore_eos=bool(body.get("ignore_eos")),
            logprobs=(body.get("top_logprobs") if body.get("logprobs") else None) if chat else body.get("logprobs"),
            prompt_logprobs=body.get("prompt_logprobs"),
            skip_special_tokens=bool(body.get("skip_special_tokens", True)),
            output_kind=RequestOutputKind.DELTA if body.get("stream") else RequestOutputKind.FINAL_ONLY,
        )
        self._engine.add_request(key, {"prompt_token_ids": ids}, parameters)
        self._asked[key] = _Asked(len(ids), chat, [] if body.get("stream") else None)
        return None

    def step(self) -> list[tuple[str, Any]]:
        """Compute one step; (key, answer) of what is finished, for a stream its events. An exception here is a crash of the engine."""
        finished: list[tuple[str, Any]] = []
        for output in self._engine.step():
            key, asked, done = output.request_id, self._asked[output.request_id], output.outputs[0]
            if asked.events is not None:
                asked.events.append(chat_chunk(done.text, done.finish_reason))
            if output.finished:
                del self._asked[key]
                whole = completion if not asked.chat else chat_completion
                finished.append((key, whole(_generated(output, asked.prompt_tokens)) if asked.events is None else asked.events))
        return finished

    def _hf_tokenizer(self) -> Any:
        if self._tokenizer is None:
            self._tokenizer = AutoTokenizer.from_pretrained(self._model)
        return self._tokenizer


def _forget_what_was_said_once() -> None:
    """Lines that vLLM writes once a process (which kernel runs) must be written for every checkpoint."""
    for name in ("vllm.logger", "vllm.v1.attention.selector", "vllm.attention.selector"):
        for value in vars(sys.modules[name]).values() if name in sys.modules else ():
            if callable(clear := getattr(value, "cache_clear", None)):
                clear()
    for name in [name for name in sys.modules if name.startswith("vllm.model_executor.layers.quantization.")]:
        for value in list(vars(sys.modules[name]).values()):
            said = getattr(value, "_kernel_backends_being_used", None)
            if isinstance(value, type) and isinstance(said, set):
                said.clear()


def _generated(output: Any, prompt_tokens: int) -> Generated:
    done = output.outputs[0]
    best = prompt_best = None
    if done.logprobs is not None:
        best = [{i: (float(v.logprob), v.decoded_token or "") for i, v in top.items()} for top in done.logprobs]
    if output.prompt_logprobs is not None:
        prompt_best = [None if top is None else {i: (float(v.logprob), v.rank) for i, v in top.items()} for top in output.prompt_logprobs]
    return Generated(prompt_tokens, [int(i) for i in done.token_ids], done.text, done.finish_reason, best, prompt_best)
