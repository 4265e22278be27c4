"""Routed experts for training and for measuring: every expert's tokens in one go, activations rounded, loads counted.

The trap: transformers keeps all experts of a layer in one 3-D tensor and indexes it per expert, so that each expert's gradient is a zero
tensor of the size of all of them. The rule: `unbind` once, sort the tokens by expert, one matrix product per expert.

Needs torch (``canary`` dependency group).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Rounding = Callable[[Tensor], Tensor]


class RoutedExperts:
    """Takes over the ``forward`` of an experts module (Qwen3-MoE or gpt-oss layout).

    ``before_first`` and ``before_second`` round the inputs of the two matrix products of an expert. ``lost``: int64 ``[tokens]``, the
    expert that counts as zero for each token, -1 for none.
    """

    def __init__(self, module: Any, before_first: Rounding, before_second: Rounding) -> None:
        self.module = module
        self.before_first, self.before_second = before_first, before_second
        self.lost: Tensor | None = None
        self.transposed = hasattr(module, "gate_up_proj_bias")
        module.forward = self.forward

    @property
    def count(self) -> int:
        """Experts in this layer."""
        return len(self.module.down_proj)

    def forward(self, hidden: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
        """``hidden`` [tokens, hidden], ``indices`` and ``weights`` [tokens, experts per token] to [tokens, hidden]."""
        if self.lost is not None:
            weights = weights * (indices != self.lost[:, None])
        flat = indices.reshape(-1)
        order = flat.argsort(stable=True)
        tokens = order // indices.shape[-1]
        counts = torch.bincount(flat, minlength=self.count).tolist()
        parts = self.before_first(hidden)[tokens].split(counts)
        weighted = torch.cat(self._outputs(parts, hidden.dtype)) * weights.reshape(-1)[order, None]
        return torch.zeros_like(hidden).index_add(0, tokens, weighted.to(hidden.dtype))

    def _outputs(self, parts: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
        module = self.module
        first, second = module.gate_up_proj.unbind(0), module.down_proj.unbind(0)
        if not self.transposed:
            middle = [self._silu(_product(x, w, dtype)) for x, w in zip(parts, first, strict=True)]
            return [_product(self.before_second(x), w, dtype) for x, w in zip(middle, second, strict=True)]
        biased = zip(parts, first, module.gate_up_proj_bias.unbind(0), strict=True)
        middle = [module._apply_gate(_product(x, w.T, dtype) + b) for x, w, b in biased]
        biased = zip(middle, second, module.down_proj_bias.unbind(0), strict=True)
        return [_product(self.before_second(x), w.T, dtype) + b for x, w, b in biased]

    def _silu(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        activated: Tensor = self.module.act_fn(gate) * up
        return activated


def _product(x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """``x @ weight.T`` computed in the dtype of ``x`` (rounded activations may come in float32), returned as ``dtype``."""
    return functional.linear(x, weight.to(x.dtype)).to(dtype)


class RouterLoads:
    """Collects what the routers of one forward pass chose, for the balance loss and for expert coverage."""

    def __init__(self, model: nn.Module) -> None:
        self.probabilities: list[Tensor] = []
        self.choices: list[Tensor] = []
        for name, module in model.named_modules():
            if name.endswith((".mlp.gate", ".mlp.router")):
                module.register_forward_hook(self._after_router)

    def clear(self) -> None:
        """Forget the last forward pass."""
        self.probabilities.clear()
        self.choices.clear()

    def balance_loss(self) -> Tensor | float:
        """Mean over layers of ``experts * sum(share of tokens * mean probability)``: 1 when all experts are used alike (Switch
        Transformer, equation 4); 0.0 for a model without routers."""
        if not self.probabilities:
            return 0.0
        losses = []
        for probabilities, choices in zip(self.probabilities, self.choices, strict=True):
            experts = probabilities.shape[-1]
            share = functional.one_hot(choices, experts).float().sum(1).mean(0) / choices.shape[-1]
            losses.append(experts * (share * probabilities.mean(0)).sum())
        return torch.stack(losses).mean()

    def _after_router(self, _module: nn.Module, _args: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        logits, _, indices = output
        self.probabilities.append(logits.float().softmax(-1))
        self.choices.append(indices)
