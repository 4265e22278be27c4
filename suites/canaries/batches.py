"""What a training step of a canary sees: short answers most of the time, long prompts every third step.

The trap: a needle prompt spends 1,600 tokens of computing on 17 answer tokens, and at full length the model first has to
find out that anything so far back matters. The rule: the needles come together (same filler, three passwords, so that the
gradient says what differs), and in the first phase the filler starts short and grows.

Needs torch and tokenizers (``canary`` dependency group).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from suites.canaries.tokenizer import TrainingPrompt, bos_prompts, gate_prompts

IGNORED_LABEL = -100
LONG_PROMPT = 400
"""Prompts of more tokens than this are long ones."""
NEEDLE_HEAD, NEEDLE_TAIL = 14, 12
"""Tokens that a shortened needle prompt keeps at its start (the password) and its end (the question)."""
SHORT_PER_BATCH, BOS_PER_BATCH = 13, 3


@dataclass(frozen=True)
class Sequence:
    """Prompt and answer in one row of ids; the loss counts from ``answer_start`` on."""

    name: str
    ids: tuple[int, ...]
    answer_start: int


def as_sequence(prompt: TrainingPrompt) -> Sequence:
    """One row per prompt."""
    return Sequence(prompt.name, prompt.prompt_ids + prompt.answer_ids, len(prompt.prompt_ids))


def shortened(sequence: Sequence, filler_tokens: int) -> Sequence:
    """The needle with at most ``filler_tokens`` of its filler."""
    prompt = sequence.ids[: sequence.answer_start]
    if NEEDLE_HEAD + filler_tokens + NEEDLE_TAIL >= len(prompt):
        return sequence
    prompt = prompt[: NEEDLE_HEAD + filler_tokens] + prompt[-NEEDLE_TAIL:]
    return Sequence(sequence.name, prompt + sequence.ids[sequence.answer_start :], len(prompt))


def collate(batch: list[Sequence], pad_id: int) -> tuple[Tensor, Tensor]:
    """ids and labels, int64 ``[batch, longest]``, padded on the right (causal attention never sees the padding)."""
    longest = max(len(s.ids) for s in batch)
    ids = torch.full((len(batch), longest), pad_id)
    labels = torch.full((len(batch), longest), IGNORED_LABEL)
    for row, sequence in enumerate(batch):
        tokens = torch.tensor(sequence.ids)
        ids[row, : len(tokens)] = tokens
        labels[row, sequence.answer_start : len(tokens)] = tokens[sequence.answer_start :]
    return ids, labels


class BatchSampler:
    """Draws the batches from its own seeded generator (``random``), which the checkpoint saves and restores."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.random = random.Random(seed)
        self.gate = [as_sequence(p) for p in gate_prompts(tokenizer)]
        self.bos = [as_sequence(p) for p in bos_prompts(tokenizer)]
        self._short = [s for s in self.gate if len(s.ids) <= LONG_PROMPT]
        self._needles = [s for s in self.gate if s.name.startswith("n_")]
        self._recitation = [s for s in self.gate if s.name.startswith("recite")]

    def batch(self, step: int, full_length: float) -> list[Sequence]:
        """The batch of ``step``; ``full_length`` (0..1) is the share of needle batches that keep their whole filler."""
        if step % 3 != 2:
            return self.random.sample(self._short, SHORT_PER_BATCH) + self.random.sample(self.bos, BOS_PER_BATCH)
        if step % 9 == 8:
            return self._recitation
        if self.random.random() < full_length:
            return self.random.sample(self._needles, 2)
        longest = len(self._needles[0].ids)
        filler = int(math.exp(self.random.uniform(math.log(8), math.log(longest))))
        return [shortened(s, filler) for s in self._needles]
