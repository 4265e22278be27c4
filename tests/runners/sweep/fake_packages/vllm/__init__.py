"""As much of vLLM as the sweep's worker touches, with a canary's golden answers; `FAKE_FAULT` breaks it for one checkpoint.

`crash:PART`, `hang:PART`, `refuse:PART`: while loading a checkpoint whose path contains PART. `wrong:PART`: its answers. `dies:PART`: in
its third step. `leaves:PART`: every checkpoint after it in the same process answers wrongly.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, os.environ["FAKE_REPOSITORY"])

from suites.canaries import zoo

__version__ = os.environ.get("FAKE_VERSION", "0.32.0")
_LEFT_BEHIND: list[str] = []


@dataclass
class SamplingParams:
    temperature: float = 1.0
    max_tokens: int = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    output_kind: str = "final"


@dataclass
class EngineArgs:
    model: str
    max_model_len: int | None = None
    disable_log_stats: bool = False

    @staticmethod
    def add_cli_args(parser: Any) -> Any:
        for flag in ("--model", "--seed", "--kv-cache-dtype", "--gpu-memory-utilization", "--kv-cache-memory-bytes"):
            parser.add_argument(flag)
        for flag in ("--max-model-len", "--max-num-seqs", "--max-num-batched-tokens"):
            parser.add_argument(flag, type=int)
        parser.add_argument("--enforce-eager", action="store_true")
        return parser

    @classmethod
    def from_cli_args(cls, namespace: Any) -> EngineArgs:
        return cls(namespace.model, namespace.max_model_len)


@dataclass
class _Logprob:
    logprob: float
    rank: int
    decoded_token: str = "x"


@dataclass
class LLMEngine:
    args: EngineArgs
    fault: str
    known: dict[tuple[int, ...], Any]
    margins: dict[str, tuple[float, ...]]
    waiting: list[tuple[str, list[int], SamplingParams]] = field(default_factory=list)
    steps: int = 0
    streamed: set[str] = field(default_factory=set)

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> LLMEngine:
        kind, _, part = os.environ.get("FAKE_FAULT", "").partition(":")
        fault = kind if part and part in args.model else ""
        print(
            f"INFO 11-30 13:00:00 [core.py:1] Initializing a V1 LLM engine (v{__version__}) with config: model='{args.model}'", flush=True
        )
        if fault == "crash":
            print("Traceback (most recent call last):\n  File 'core.py', line 2, in load\n    kernel()", flush=True)
            print("RuntimeError: the fake engine crashes on this checkpoint", flush=True)
            os._exit(17)
        if fault == "hang":
            time.sleep(600)
        if fault == "refuse":
            raise ValueError("Failed to find a kernel that can implement the MXFP4 linear layer.")
        if _LEFT_BEHIND:
            fault = "wrong"
        if fault == "leaves":
            _LEFT_BEHIND.append(args.model)
        canary = zoo.load(Path(args.model).name.rpartition("-")[0])
        known = {p.prompt_ids: p for p in (*canary.prompts, *canary.bos_prompts)}
        return cls(args, fault, known, dict(canary.reference_margins["bfloat16"]))

    @property
    def model_config(self) -> Any:
        return SimpleNamespace(max_model_len=self.args.max_model_len or 2048)

    @property
    def engine_core(self) -> Any:
        return SimpleNamespace(shutdown=lambda: None)

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def add_request(self, key: str, prompt: dict[str, Any], params: SamplingParams) -> None:
        self.waiting.append((key, prompt["prompt_token_ids"], params))

    def step(self) -> list[Any]:
        self.steps += 1
        if self.fault == "dies" and self.steps == 3:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        outputs = [self._output(*request) for request in self.waiting]
        self.waiting = [r for r, o in zip(self.waiting, outputs, strict=True) if not o.finished]
        return outputs

    def _output(self, key: str, prompt: list[int], params: SamplingParams) -> Any:
        known = self.known.get(tuple(prompt))
        ids, text = (list(known.answer_ids), known.answer_text) if known is not None else ([7], "x")
        if self.fault == "wrong" and len(ids) > 2:
            ids = [*ids[:1], ids[1] + 1, *ids[2:]]
            text = text[::-1]
        ids = ids[: params.max_tokens]
        finished = True
        if params.output_kind == "delta" and key not in self.streamed:
            self.streamed.add(key)
            text, finished = text[:1], False
        elif params.output_kind == "delta":
            text = text[1:]
        gaps = (*self.margins.get(known.name if known is not None else "", ()), *(16.0,) * len(ids))
        best = [{i: _Logprob(-0.001, 1), i + 1: _Logprob(-0.001 - gap, 2)} for i, gap in zip(ids, gaps, strict=False)]
        scores = [None, *({i: _Logprob(-0.01, 1)} for i in prompt[1:])] if params.prompt_logprobs else None
        done = SimpleNamespace(
            token_ids=ids, text=text, finish_reason="stop" if finished else None, logprobs=best if params.logprobs else None
        )
        return SimpleNamespace(request_id=key, outputs=[done], finished=finished, prompt_logprobs=scores, prompt_token_ids=prompt)
