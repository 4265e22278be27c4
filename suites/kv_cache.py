"""What the KV cache of one sequence holds, from a model's configuration.

Trap: a model with sliding windows, latent or linear attention is counted as if every layer kept every token, and is refused though it
fits. Rule: each kind of layer is counted as what it keeps; a kind that is not known here gives no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from suites.toml_files import SOURCE, SuiteModel

KV_BITS = {"auto": 16.0, "bfloat16": 16.0, "bf16": 16.0, "float16": 16.0, "fp8": 8.0, "fp8_e4m3": 8.0, "fp8_e5m2": 8.0, "nvfp4": 4.5}
"""Bits per stored value by the engines' names of KV-cache types. `auto`: the model's 16-bit type; nvfp4: 16 values share an 8-bit scale."""


class KvShape(SuiteModel):
    """What the KV cache of one sequence holds, per attention kind, as the model's config names it.

    `full_layers` keep every token, `sliding_layers` at most `sliding_window` tokens; both keep K and V of `kv_heads` x `head_dim`.
    `latent_layers` (MLA) keep one vector of `latent_dim` per token instead. `constant_layers` (linear attention) do not grow with context.
    `uncounted` names what a cache also holds and this shape does not count (indexer keys, recurrent states).
    """

    full_layers: int = Field(default=0, ge=0)
    sliding_layers: int = Field(default=0, ge=0)
    sliding_window: int | None = Field(default=None, gt=0)
    kv_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    latent_layers: int = Field(default=0, ge=0)
    latent_dim: int | None = Field(default=None, gt=0)
    constant_layers: int = Field(default=0, ge=0)
    uncounted: str = ""
    source: str = Field(pattern=SOURCE)

    @model_validator(mode="after")
    def _is_complete(self) -> KvShape:
        if (self.full_layers or self.sliding_layers) and (self.kv_heads is None or self.head_dim is None):
            raise ValueError("full_layers and sliding_layers need kv_heads and head_dim")
        if self.sliding_layers and self.sliding_window is None:
            raise ValueError("sliding_layers need sliding_window")
        if self.latent_layers and self.latent_dim is None:
            raise ValueError("latent_layers need latent_dim")
        return self


def kv_bytes(shape: KvShape, tokens: int, kv_cache_dtype: str = "auto") -> int | None:
    """Bytes of KV cache for one sequence of `tokens`; None for a cache type whose size is not known here.

    2 x kv_heads x head_dim values per token in each full-attention layer, the same for at most `sliding_window` tokens in a sliding one,
    and `latent_dim` values per token in a latent (MLA) layer. Linear-attention states do not grow and are not counted.
    """
    bits = KV_BITS.get(kv_cache_dtype.lower())
    if bits is None:
        return None
    per_head_layer = 2 * (shape.kv_heads or 0) * (shape.head_dim or 0)
    values = per_head_layer * shape.full_layers * tokens
    values += per_head_layer * shape.sliding_layers * min(tokens, shape.sliding_window or 0)
    values += (shape.latent_dim or 0) * shape.latent_layers * tokens
    return int(values * bits / 8)


def kv_shape_from_config(config: Mapping[str, Any], source: str) -> KvShape | None:
    """The shape that a checkpoint's `config.json` describes; None if a field is missing or an attention kind is not known here."""
    text = config.get("text_config")
    text = text if isinstance(text, Mapping) else config
    layers = _count(text, "num_hidden_layers")
    if layers is None:
        return None
    latent = _count(text, "kv_lora_rank")
    kinds = _kinds(text, layers, "latent" if latent is not None else "full_attention")
    if kinds is None:
        return None
    heads = _count(text, "num_attention_heads")
    hidden = _count(text, "hidden_size")
    head_dim = _count(text, "head_dim") or (hidden // heads if hidden and heads else None)
    try:
        return KvShape(
            full_layers=kinds.count("full_attention"),
            sliding_layers=kinds.count("sliding_attention"),
            sliding_window=_count(text, "sliding_window"),
            kv_heads=_count(text, "num_key_value_heads") or heads,
            head_dim=head_dim,
            latent_layers=kinds.count("latent"),
            latent_dim=None if latent is None else latent + (_count(text, "qk_rope_head_dim") or 0),
            constant_layers=kinds.count("linear_attention"),
            source=source,
        )
    except ValueError:  # kv_heads, head_dim or sliding_window is missing for a kind of layer that needs it
        return None


def _kinds(text: Mapping[str, Any], layers: int, default: str) -> list[str] | None:
    given = text.get("layer_types")
    if given is None:
        return [default] * layers
    if not isinstance(given, list) or len(given) != layers:
        return None
    kinds = [default if kind == "full_attention" else kind for kind in given]
    return kinds if set(kinds) <= {"full_attention", "sliding_attention", "linear_attention", "latent"} else None


def _count(text: Mapping[str, Any], name: str) -> int | None:
    value = text.get(name)
    return value if type(value) is int and value > 0 else None
