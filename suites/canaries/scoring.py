"""Teacher-forced scores of a canary: greedy text is exact if and only if no answer token has a margin of zero or less.

The trap: a mean loss near zero with one token wrong. The rule: every answer token is scored, and what is reported is the number of wrong
ones and the smallest margins. Needs torch (``canary`` dependency group).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from suites.canaries.batches import IGNORED_LABEL, LONG_PROMPT, Sequence, collate

_BATCH = 16
_LONG_BATCH = 4


@dataclass(frozen=True)
class Evaluation:
    """``wrong`` counts answer tokens; margins in nats."""

    loss: float
    answer_tokens: int
    wrong: int
    wrong_prompts: tuple[str, ...]
    min_margin: float
    p1_margin: float
    median_margin: float


def answer_logits(model: Any, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """float32 logits ``[answer tokens, vocab]`` and the ids ``[answer tokens]`` they must give."""
    targets = labels[:, 1:]
    wanted = targets != IGNORED_LABEL
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][wanted]
    return functional.linear(hidden.float(), model.lm_head.weight.float()), targets[wanted]


def margins(logits: Tensor, targets: Tensor) -> Tensor:
    """Golden logit minus the best other logit, per token; negative means that greedy decoding goes wrong here."""
    golden = logits.gather(1, targets[:, None])[:, 0]
    best_other = logits.scatter(1, targets[:, None], float("-inf")).amax(1)
    return golden - best_other


def evaluate(model: Any, sequences: list[Sequence], pad_id: int) -> Evaluation:
    """Score every sequence, in batches of similar length, on the model's device."""
    model.eval()
    all_margins: list[Tensor] = []
    loss_sum, wrong_prompts = 0.0, []
    for batch in _batches(sequences):
        ids, labels = (t.to(model.device) for t in collate(batch, pad_id))
        with torch.no_grad():
            logits, targets = answer_logits(model, ids, labels)
        margin = margins(logits, targets)
        loss_sum += functional.cross_entropy(logits, targets, reduction="sum").item()
        rows = (labels[:, 1:] != IGNORED_LABEL).nonzero()[:, 0]
        wrong_prompts += [batch[row].name for row in rows[~(margin > 0)].unique().tolist()]
        all_margins.append(margin)
    margin = torch.cat(all_margins)
    return Evaluation(
        loss=loss_sum / len(margin),
        answer_tokens=len(margin),
        wrong=int((~(margin > 0)).sum()),
        wrong_prompts=tuple(sorted(wrong_prompts)),
        min_margin=margin.min().item(),
        p1_margin=torch.quantile(margin, 0.01).item(),
        median_margin=margin.median().item(),
    )


def _batches(sequences: list[Sequence]) -> list[list[Sequence]]:
    """Similar lengths together; long sequences a few at a time, because attention scores grow with the square."""
    ordered = sorted(sequences, key=lambda s: len(s.ids))
    short = [s for s in ordered if len(s.ids) <= LONG_PROMPT]
    long = [s for s in ordered if len(s.ids) > LONG_PROMPT]
    return [*_chunks(short, _BATCH), *_chunks(long, _LONG_BATCH)]


def _chunks(sequences: list[Sequence], size: int) -> list[list[Sequence]]:
    return [sequences[i : i + size] for i in range(0, len(sequences), size)]
