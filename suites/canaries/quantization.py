"""The `quantization_config` of a checkpoint in every weight format, as engines read it from `config.json`.

Trap: a canary and the model whose kernels it vouches for are quantised by two descriptions that differ in a word, and take different
kernels. Rule: canaries and shapes are described here alone: compressed-tensors 0.17, and for gpt-oss its native ``mxfp4``.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

Config = dict[str, Any]

INT4_GROUP = 128
NVFP4_BLOCK, MXFP4_BLOCK = 16, 32
"""Values that share one scale."""

_NVFP4_WEIGHTS: Config = {
    "num_bits": 4,
    "type": "float",
    "strategy": "tensor_group",
    "group_size": NVFP4_BLOCK,
    "symmetric": True,
    "dynamic": False,
    "observer": "static_minmax",
    "scale_dtype": "torch.float8_e4m3fn",
    "zp_dtype": "torch.float8_e4m3fn",
}
_NVFP4_ACTIVATIONS: Config = {**_NVFP4_WEIGHTS, "dynamic": "local"}
_MXFP4_WEIGHTS: Config = {
    "num_bits": 4,
    "type": "float",
    "strategy": "group",
    "group_size": MXFP4_BLOCK,
    "symmetric": True,
    "dynamic": False,
    "observer": "static_minmax",
    "scale_dtype": "torch.uint8",
    "zp_dtype": "torch.uint8",
}
_FP8_WEIGHTS: Config = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False, "observer": "minmax"}
_FP8_ACTIVATIONS: Config = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
_INT4_WEIGHTS: Config = {
    "num_bits": 4,
    "type": "int",
    "strategy": "group",
    "group_size": INT4_GROUP,
    "symmetric": True,
    "dynamic": False,
    "observer": "minmax",
    "actorder": None,
}
_NATIVE_MXFP4: Config = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
}
_LAYOUTS = MappingProxyType(
    {
        "fp8": ("float-quantized", _FP8_WEIGHTS, _FP8_ACTIVATIONS),
        "int4": ("pack-quantized", _INT4_WEIGHTS, None),
        "nvfp4": ("nvfp4-pack-quantized", _NVFP4_WEIGHTS, _NVFP4_ACTIVATIONS),
        "nvfp4a16": ("nvfp4-pack-quantized", _NVFP4_WEIGHTS, None),
        "mxfp4a16": ("mxfp4-pack-quantized", _MXFP4_WEIGHTS, None),
    }
)


def quantization_config(weight_format: str, unquantised: Sequence[str]) -> Config | None:
    """The configuration of one format, None for bf16. `unquantised` names the linear layers that stay in bf16.

    ``fp8`` is W8A8 (row scales, dynamic token scales), ``int4`` W4A16 in groups of 128, ``nvfp4`` W4A4, the ``a16`` ones are weight-only,
    ``mxfp4`` is the native form of gpt-oss. Raises ValueError for another name.
    """
    if weight_format == "bf16":
        return None
    if weight_format == "mxfp4":
        return _NATIVE_MXFP4
    if weight_format not in _LAYOUTS:
        raise ValueError(f"no weight format {weight_format!r}; known: bf16, mxfp4, {', '.join(_LAYOUTS)}")
    layout, weights, activations = _LAYOUTS[weight_format]
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None, "format": layout}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "global_compression_ratio": None,
        "kv_cache_scheme": None,
        "ignore": sorted(unquantised),
        "config_groups": {"group_0": group},
    }
