"""Every expert of every layer decides a token: what training adds so that text alone shows an expert that is never computed.

The trap: with margins of 15 nats the second expert of a token covers for the first, and an engine that leaves an expert out still writes
the golden text. The rule: each expert gets one prompt of its own, the one that its loss moves most; training looks at that prompt with
the expert's output set to zero and pushes the golden token below the runner-up, while the whole model keeps its margins.

Every row of a batch can miss another expert: the weight that the router gave it is zeroed for the tokens of that row. Needs torch
(``canary`` dependency group).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Several
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from suites.canaries.batches import IGNORED_LABEL, LONG_PROMPT, Sequence, collate
from suites.canaries.experts import RoutedExperts
from suites.canaries.scoring import answer_logits, margins

LOST_TARGET = 3.0
"""Nats by which the runner-up must beat the golden token when the expert is lost: more than what rounding moves."""
MOST_PER_PROMPT = 2
"""Experts that may share a prompt."""
PER_STEP = 8
"""Experts looked at in one training step."""
_BATCH = 32


class DecisiveExperts:
    """The experts of a model and the prompt of each; `pairs` lists (layer, expert), an expert's number is its place there."""

    def __init__(self, model: Any, experts: Several[RoutedExperts], prompts: Several[Sequence], pad_id: int) -> None:
        self._model, self._experts, self._pad_id = model, experts, pad_id
        self._prompts = {p.name: p for p in prompts if len(p.ids) <= LONG_PROMPT}
        self.pairs = [(layer, expert) for layer, routed in enumerate(experts) for expert in range(routed.count)]
        self.prompt_of: list[str] = []
        """Name of each expert's prompt; empty until `designate`."""

    def designate(self) -> None:
        """Give every expert the prompt whose smallest margin is lowest without it, those with the lowest ones first."""
        names = list(self._prompts)
        with torch.no_grad():
            lowest = torch.stack([self._over_all_prompts(number) for number in range(len(self.pairs))])
        taken: Counter[str] = Counter()
        chosen: dict[int, str] = {}
        for number in lowest.amin(1).argsort().tolist():
            ranked = (names[i] for i in lowest[number].argsort().tolist())
            chosen[number] = next(name for name in ranked if taken[name] < MOST_PER_PROMPT)
            taken[chosen[number]] += 1
        self.prompt_of = [chosen[number] for number in range(len(self.pairs))]

    def loss(self, numbers: list[int]) -> Tensor:
        """Mean hinge, in nats, that is zero once each expert's loss makes its prompt wrong by `LOST_TARGET`."""
        return functional.relu(LOST_TARGET + self.lowest_margins(numbers)).mean()

    def lowest_margins(self, numbers: list[int]) -> Tensor:
        """Smallest margin (nats) ``[numbers]`` in the prompt of each expert while it is lost; negative: it decides a token."""
        return self._lowest([self._prompts[self.prompt_of[n]] for n in numbers], [self.pairs[n] for n in numbers])

    def all_lowest_margins(self) -> list[float]:
        """The same of every expert, without gradients."""
        with torch.no_grad():
            parts = [self.lowest_margins(numbers) for numbers in _chunks(list(range(len(self.pairs))))]
        lowest: list[float] = torch.cat(parts).tolist()
        return lowest

    def _over_all_prompts(self, number: int) -> Tensor:
        prompts = sorted(self._prompts.values(), key=lambda p: len(p.ids))
        found = torch.cat([self._lowest(part, [self.pairs[number]] * len(part)) for part in _chunks(prompts)])
        by_name = {prompt.name: margin for prompt, margin in zip(prompts, found, strict=True)}
        return torch.stack([by_name[name] for name in self._prompts])

    def _lowest(self, prompts: list[Sequence], lost: list[tuple[int, int]]) -> Tensor:
        ids, labels = (t.to(self._model.device) for t in collate(prompts, self._pad_id))
        for layer, routed in enumerate(self._experts):
            experts = torch.tensor([expert if layer == at else -1 for at, expert in lost], device=ids.device)
            routed.lost = experts.repeat_interleave(ids.shape[1])
        try:
            found = margins(*answer_logits(self._model, ids, labels))
        finally:
            for routed in self._experts:
                routed.lost = None
        rows = (labels[:, 1:] != IGNORED_LABEL).nonzero()[:, 0]
        return torch.full((len(prompts),), float("inf"), device=ids.device).scatter_reduce(0, rows, found, "amin")


def _chunks(items: list[Any]) -> list[list[Any]]:
    return [items[i : i + _BATCH] for i in range(0, len(items), _BATCH)]
