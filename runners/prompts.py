"""Prompts for timing: exactly N token ids that no earlier request can have left in a prefix cache.

Trap: a fixed prompt, or a fixed seed, is answered from the prefix cache the second time: TTFT 49 times too good (vllm-project/vllm#54227,
seen on a GB10). Rule: each timed prompt starts, after the BOS token, with a nonce derived from run, workload, repeat and stream (M9); the
rest depends on the workload alone, so that every repeat does the same work. Prompts are sent as ids: no tokenizer decides their length.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

NONCE_TOKENS = 24
"""With 256 usable ids, two nonces agree in their first three ids once in 16 million pairs; no cache page shorter than that matters."""

MIN_USABLE_IDS = 256


@dataclass(frozen=True)
class Vocabulary:
    """Ids a prompt may use: `0 <= id < size`, except `bos_id` and `forbidden_ids` (special tokens, image placeholders, unused slots).

    `size` is the tokenizer's length, not the padded height of the embedding. `bos_id` is what the recipe starts prompts with, or None.
    """

    size: int
    bos_id: int | None = None
    forbidden_ids: frozenset[int] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        unusable = {i for i in (*self.forbidden_ids, self.bos_id) if i is not None and 0 <= i < self.size}
        if self.size - len(unusable) < MIN_USABLE_IDS:
            raise ValueError(f"vocabulary of {self.size} ids leaves {self.size - len(unusable)} for prompts, {MIN_USABLE_IDS} needed")
        if self.bos_id is not None and not 0 <= self.bos_id < self.size:
            raise ValueError(f"BOS id {self.bos_id} is outside the vocabulary of {self.size} ids")


@dataclass(frozen=True)
class PromptKey:
    """What makes a timed prompt unique. `cold` marks warm-up requests, which count their repeats apart."""

    run_id: str
    workload: str
    repeat: int
    stream: int
    cold: bool = False


def timed_prompt(key: PromptKey, tokens: int, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Exactly `tokens` ids: BOS if there is one, `NONCE_TOKENS` ids of `key`, then ids of the workload. Same input, same ids, anywhere."""
    start = () if vocabulary.bos_id is None else (vocabulary.bos_id,)
    if tokens < len(start) + NONCE_TOKENS:
        raise ValueError(f"a timed prompt needs at least {len(start) + NONCE_TOKENS} tokens, workload {key.workload} has {tokens}")
    nonce = _ids(["nonce", key.run_id, key.workload, key.repeat, key.stream, key.cold], NONCE_TOKENS, vocabulary)
    return (*start, *nonce, *_body(key.workload, tokens - len(start) - NONCE_TOKENS, vocabulary))


@lru_cache(maxsize=16)
def _body(workload: str, count: int, vocabulary: Vocabulary) -> tuple[int, ...]:
    """Kept: every stream of a workload has it."""
    return _ids(["body", workload], count, vocabulary)


def _ids(seed: list[str | int | bool], count: int, vocabulary: Vocabulary) -> tuple[int, ...]:
    numbers = _numbers(json.dumps(seed).encode())
    ids: list[int] = []
    while len(ids) < count:
        candidate = next(numbers) % vocabulary.size
        if candidate != vocabulary.bos_id and candidate not in vocabulary.forbidden_ids:
            ids.append(candidate)
    return tuple(ids)


def _numbers(seed: bytes) -> Iterator[int]:
    """Endless 64-bit numbers from SHA-256 in counter mode; the bias of a remainder below 2**20 is under 2**-44."""
    counter = 0
    while True:
        digest = sha256(counter.to_bytes(8, "big") + seed).digest()
        for offset in range(0, len(digest), 8):
            yield int.from_bytes(digest[offset : offset + 8], "big")
        counter += 1
