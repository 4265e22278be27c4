"""transformers without any engine, on the CPU, greedily, one request after the other: what the weights themselves say."""

from __future__ import annotations

import gc
from typing import Any

import torch
import transformers
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


class TransformersEngine:
    """transformers alone, on the CPU, greedily, one request after the other: what the weights say without any engine."""

    def __init__(self) -> None:
        self.version = str(transformers.__version__)
        self.max_model_len: int | None = None
        self._model: Any = None
        self._tokenizer: Any = None
        self._waiting: list[tuple[str, list[int], dict[str, Any], bool]] = []

    def load(self, model: str, arguments: list[str]) -> None:
        """Load a checkpoint; `--dtype float32` or `bfloat16`, by default bfloat16 where its layers are quantised. Raises LoadFailed.

        5.19.0 computes NVFP4 layers in bfloat16 only ("expected m1 and m2 to have the same dtype"), and leaves the scales of NVFP4 experts
        out with a warning, to answer nonsense from a sound checkpoint: tensors that it does not use, or lacks, are a failure here.
        """
        keyword = "dtype" if int(self.version.split(".")[0]) >= 5 else "torch_dtype"
        try:
            config = transformers.AutoConfig.from_pretrained(model, local_files_only=True)
            usual = "float32" if getattr(config, "quantization_config", None) is None else "bfloat16"
            dtype = arguments[arguments.index("--dtype") + 1] if "--dtype" in arguments else usual
            loaded, told = transformers.AutoModelForCausalLM.from_pretrained(
                model, local_files_only=True, output_loading_info=True, **{keyword: getattr(torch, dtype)}
            )
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(model, local_files_only=True)
        except Exception as error:  # the library's own, whatever class it has
            raise LoadFailed(f"{type(error).__name__}: {error}") from error
        if left := sorted({*told.get("unexpected_keys", ()), *told.get("missing_keys", ())}):
            raise LoadFailed(f"transformers {self.version} does not load {len(left)} tensors of this checkpoint, such as {left[0]}")
        self._model = loaded.eval()
        config = getattr(loaded.config, "text_config", None) or loaded.config
        self.max_model_len = int(getattr(config, "max_position_embeddings", 2048))

    def unload(self) -> None:
        """Give everything back."""
        self._model = self._tokenizer = None
        gc.collect()

    @property
    def busy(self) -> bool:
        """Whether there is something to compute."""
        return bool(self._waiting)

    def add(self, key: str, path: str, body: dict[str, Any]) -> Any:
        """Begin a request; an answer that needs no computing comes back at once, others (None) from `step`. Raises Refusal."""
        if path == TOKENIZE:
            return tokenized(self._tokenizer, body, self.max_model_len)
        chat = path == CHAT
        self._waiting.append((key, chat_ids(self._tokenizer, body) if chat else prompt_ids(body), body, chat))
        return None

    def step(self) -> list[tuple[str, Any]]:
        """Answer the oldest request."""
        key, prompt, body, chat = self._waiting.pop(0)
        with torch.inference_mode():
            done = self._generate(prompt, body, chat=chat)
        if not body.get("stream"):
            return [(key, chat_completion(done) if chat else completion(done))]
        return [(key, [chat_chunk(done.text, None), chat_chunk("", done.finish)])]

    def _generate(self, prompt: list[int], body: dict[str, Any], *, chat: bool) -> Generated:
        model = self._model
        ends = model.generation_config.eos_token_id if model.generation_config.eos_token_id is not None else model.config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        ids: list[int] = []
        best: list[dict[int, tuple[float, str]]] = []
        prompt_best: list[dict[int, tuple[float, int]] | None] | None = None
        tokens, cache = torch.tensor([prompt]), None
        for _ in range(int(body.get("max_tokens") or 16)):
            output = model(input_ids=tokens, past_key_values=cache, use_cache=True)
            if cache is None and body.get("prompt_logprobs") is not None:
                prompt_best = _prompt_best(output.logits[0].float(), prompt)
            cache = output.past_key_values
            logprobs = torch.log_softmax(output.logits[0, -1].float(), dim=-1)
            top = logprobs.topk(2)
            token = int(logprobs.argmax())
            ids.append(token)
            values = {int(i): float(v) for v, i in zip(top.values, top.indices, strict=True)} | {token: float(logprobs[token])}
            best.append({i: (value, self._tokenizer.decode([i])) for i, value in values.items()})
            if token in ends and not body.get("ignore_eos"):
                break
            tokens = torch.tensor([[token]])
        stopped = bool(ids) and ids[-1] in ends
        text = self._tokenizer.decode(ids, skip_special_tokens=bool(body.get("skip_special_tokens", True)))
        return Generated(len(prompt), ids, text, "stop" if stopped else "length", best if body.get("logprobs") else None, prompt_best)


def _prompt_best(logits: Any, prompt: list[int]) -> list[dict[int, tuple[float, int]] | None]:
    """Per prompt token its own and the most likely id, with log-probability and rank, as vLLM's `prompt_logprobs` of 1."""
    scores: list[dict[int, tuple[float, int]] | None] = [None]
    for position, token in enumerate(prompt[1:]):
        logprobs = torch.log_softmax(logits[position], dim=-1)
        rank = int((logprobs > logprobs[token]).sum()) + 1
        top = int(logprobs.argmax())
        scores.append({token: (float(logprobs[token]), rank), **({} if rank == 1 else {top: (float(logprobs[top]), 1)})})
    return scores
