"""The numeric paths of an engine, emulated exactly in transformers: rounded activations, FP8 KV cache, fp32 accumulation.

The trap: a W4A4 canary judged by what training's noisy quantiser does, or by nothing at all, because no FP4 hardware is at hand. The rule:
every rounding that a correct engine must make is made here as the format defines it, and nothing else is rounded: products and sums of the
quantised layers are float32, as tensor cores accumulate. Formats are defined by scales and rounding; engines may still differ in where they
round to bf16 between layers. Nothing validates the FP4 activation paths on silicon yet.

* ``fp8``: one scale per token, amax mapped to 448.
* ``nvfp4``: e4m3 scale per 16 inputs under the checkpoint's static global scale, e2m1 values, ties to even.
* ``mxfp4``, ``mxfp8``: a power of two per 32 inputs from the largest of them (OCP Microscaling 1.0, section 6.3), e2m1 or e4m3 values.

Needs torch and transformers (``canary`` dependency group).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from suites.canaries.experts import RoutedExperts
from suites.canaries.fakequant import fp8_per_token, mxfp4_dynamic, power_of_two, round_e2m1, round_e4m3
from suites.canaries.naming import on_grid

ACTIVATIONS = ("none", "fp8", "nvfp4", "mxfp4", "mxfp8")
KV_DTYPES = ("auto", "fp8")
_ATTENTION = {"auto": "canary_kv_auto", "fp8": "canary_kv_fp8"}
_NVFP4_RANGE = 448.0 * 6.0
_E4M3_TOP_EXPONENT = 8

Rounding = Callable[[Tensor], Tensor]


def nvfp4_static(x: Tensor, global_scale: float) -> Tensor:
    """Float32 ``x`` rounded to NVFP4 under a given global scale; a block whose scale rounds to zero becomes zero."""
    blocks = x.unflatten(-1, (-1, 16))
    stored = round_e4m3(blocks.abs().amax(-1, keepdim=True) / 6.0 * global_scale)
    scale = torch.where(stored > 0, stored / global_scale, 1.0)
    return torch.where(stored > 0, round_e2m1(blocks / scale) * scale, 0.0).flatten(-2)


def mxfp8_dynamic(x: Tensor) -> Tensor:
    """MXFP8: e4m3 values in blocks of 32 with scale ``2**(floor(log2(amax)) - 8)``."""
    blocks = x.unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-20)
    scale = power_of_two(torch.frexp(amax).exponent - 1 - _E4M3_TOP_EXPONENT)
    return (round_e4m3(blocks / scale) * scale).flatten(-2)


def _rounding(activation_format: str, input_scale: float) -> Rounding:
    """bf16 or float32 tensor to rounded float32; for ``none`` the tensor itself."""
    if activation_format == "none":
        return lambda x: x
    if activation_format == "nvfp4":
        return lambda x: nvfp4_static(x.float(), input_scale)
    dynamic = {"fp8": fp8_per_token, "mxfp4": mxfp4_dynamic, "mxfp8": mxfp8_dynamic}[activation_format]
    return lambda x: dynamic(x.float())


def install(model: Any, activation_format: str, kv_cache_dtype: str, input_scales: Mapping[str, float]) -> None:
    """Put a freshly loaded model on a path; it cannot be taken off again.

    In gpt-oss only the experts are quantised, so only their inputs are rounded.
    """
    model.config._attn_implementation = _ATTENTION[kv_cache_dtype]
    experts_only = model.config.model_type == "gpt_oss"
    for name, module in model.named_modules():
        if name.endswith(".mlp.experts"):
            first, second = (
                _rounding(activation_format, input_scales.get(f"{name}.{part}", 1.0)) for part in ("gate_up_proj", "down_proj")
            )
            RoutedExperts(module, first, second)
        elif isinstance(module, nn.Linear) and on_grid(name) and activation_format != "none" and not experts_only:
            module.forward = _rounded_linear(module, _rounding(activation_format, input_scales.get(name, 1.0)))


def _rounded_linear(module: nn.Linear, rounding: Rounding) -> Callable[[Tensor], Tensor]:
    weight = module.weight.detach().float()
    bias = None if module.bias is None else module.bias.detach().float()
    return lambda x: functional.linear(rounding(x), weight, bias).to(x.dtype)


def calibrate(model: Any, run: Callable[[], object]) -> dict[str, float]:
    """Largest input of every quantised linear layer while ``run`` uses the model, as the power of two that maps it into NVFP4's range.

    Rounding down to a power of two leaves up to a factor of two of headroom.
    """
    largest: dict[str, float] = {}

    def watch(name: str, x: Tensor) -> Tensor:
        if x.numel():
            largest[name] = max(largest.get(name, 0.0), x.detach().abs().max().item())
        return x

    def before_linear(name: str, _module: nn.Module, args: tuple[Tensor, ...]) -> None:
        watch(name, args[0])

    for name, module in model.named_modules():
        if name.endswith(".mlp.experts"):
            RoutedExperts(module, partial(watch, f"{name}.gate_up_proj"), partial(watch, f"{name}.down_proj"))
        elif isinstance(module, nn.Linear) and on_grid(name):
            module.register_forward_pre_hook(partial(before_linear, name))
    run()
    return {name: power_of_two(torch.frexp(torch.tensor(_NVFP4_RANGE / amax)).exponent - 1).item() for name, amax in largest.items()}


def _attention(rounds_kv: bool) -> Callable[..., tuple[Tensor, None]]:
    """Attention with float32 scores and softmax, as kernels compute it; with sinks if the layer has them."""

    def forward(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float, **kwargs: Any
    ) -> tuple[Tensor, None]:
        if rounds_kv:
            key, value = (round_e4m3(t.float()).to(t.dtype) for t in (key, value))
        groups = module.num_key_value_groups
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        scores = query.float() @ key.float().transpose(2, 3) * scaling
        if attention_mask is not None:
            scores = scores + attention_mask[..., : key.shape[2]].float()
        sinks = kwargs.get("s_aux")
        if sinks is not None:
            scores = torch.cat([scores, sinks.float().reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)], dim=-1)
        weights = scores.softmax(-1)[..., : key.shape[2]].to(value.dtype)
        return (weights @ value).transpose(1, 2).contiguous(), None

    return forward


for _dtype, _name in _ATTENTION.items():
    AttentionInterface.register(_name, _attention(_dtype == "fp8"))
    AttentionMaskInterface.register(_name, eager_mask)
