"""Every weight tensor of a configuration: its size, and how often one token reads it.

Trap: "an 8B model in FP8" is taken for 8 GB, though embedding and head stay in bf16, scales come on top, and of a mixture of experts one
token reads a tenth. Rule: tensors are counted one by one, by the classes of transformers 5.19.0 that define them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Tensor:
    """`copies` tensors of one `size` (linear weights as ``[out, in]``), of which one token reads `read`.

    `linear`: a matrix product, called `name` without ``.weight`` in a quantisation config; `quantisable`: quantised formats of its family
    store it in their own way.
    """

    name: str
    size: tuple[int, ...]
    copies: int = 1
    read: int = 1
    linear: bool = False
    quantisable: bool = False

    @property
    def values(self) -> int:
        """Number of values of one copy."""
        return prod(self.size)


def tensors_of(config: Config) -> tuple[Tensor, ...]:
    """All weights of a model with this `config.json`. Raises KeyError for a `model_type` that is not counted here."""
    layer, norms = _LAYERS[config["model_type"]], _NORMS.get(config["model_type"], 2)
    hidden, vocabulary, tied = config["hidden_size"], config["vocab_size"], config["tie_word_embeddings"]
    found = [Tensor("model.embed_tokens", (vocabulary, hidden), read=int(tied)), Tensor("model.norm", (hidden,))]
    for number in range(config["num_hidden_layers"]):
        found.append(Tensor(f"model.layers.{number}.norms", (hidden,), norms, norms))
        found += layer(config, f"model.layers.{number}", config.get("layer_types", [""] * (number + 1))[number])
    if not tied:
        found.append(Tensor("lm_head", (vocabulary, hidden), linear=True))
    return tuple(found)


def _linear(name: str, rows: int, columns: int, *, copies: int = 1, read: int | None = None, quantisable: bool = True) -> Tensor:
    return Tensor(name, (rows, columns), copies, copies if read is None else read, linear=True, quantisable=quantisable)


def _attention(config: Config, at: str, *, gated: bool = False, quantisable: bool = True) -> Iterator[Tensor]:
    hidden, dim = config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    yield _linear(f"{at}.self_attn.q_proj", heads * (2 if gated else 1), hidden, quantisable=quantisable)
    for name in ("k_proj", "v_proj"):
        yield _linear(f"{at}.self_attn.{name}", kv_heads, hidden, quantisable=quantisable)
    yield _linear(f"{at}.self_attn.o_proj", hidden, heads, quantisable=quantisable)


def _head_norms(config: Config, at: str) -> Tensor:
    return Tensor(f"{at}.self_attn.q_and_k_norm", (config["head_dim"],), 2, 2)


def _swiglu(at: str, hidden: int, intermediate: int, copies: int = 1, read: int | None = None) -> Iterator[Tensor]:
    for name in ("gate_proj", "up_proj"):
        yield _linear(f"{at}.{name}", intermediate, hidden, copies=copies, read=read)
    yield _linear(f"{at}.down_proj", hidden, intermediate, copies=copies, read=read)


def _experts(config: Config, at: str) -> Iterator[Tensor]:
    hidden, experts = config["hidden_size"], config["num_experts"]
    yield _linear(f"{at}.mlp.gate", experts, hidden, quantisable=False)
    yield from _swiglu(f"{at}.mlp.experts.*", hidden, config["moe_intermediate_size"], experts, config["num_experts_per_tok"])


def _llama(config: Config, at: str, kind: str) -> Iterator[Tensor]:
    yield from _attention(config, at)
    yield from _swiglu(f"{at}.mlp", config["hidden_size"], config["intermediate_size"])


def _gemma3(config: Config, at: str, kind: str) -> Iterator[Tensor]:
    yield _head_norms(config, at)
    yield from _llama(config, at, kind)


def _qwen3_moe(config: Config, at: str, kind: str) -> Iterator[Tensor]:
    yield _head_norms(config, at)
    yield from _attention(config, at)
    yield from _experts(config, at)


def _gpt_oss(config: Config, at: str, kind: str) -> Iterator[Tensor]:
    hidden, inner, experts, read = (config[n] for n in ("hidden_size", "intermediate_size", "num_local_experts", "num_experts_per_tok"))
    heads, dim = config["num_attention_heads"], config["head_dim"]
    yield from _attention(config, at, quantisable=False)
    yield Tensor(f"{at}.self_attn.biases", (heads * dim + 2 * config["num_key_value_heads"] * dim + hidden,))
    yield Tensor(f"{at}.self_attn.sinks", (heads,))
    yield _linear(f"{at}.mlp.router", experts, hidden, quantisable=False)
    yield Tensor(f"{at}.mlp.router.bias", (experts,))
    yield _linear(f"{at}.mlp.experts.gate_up_proj", 2 * inner, hidden, copies=experts, read=read)
    yield _linear(f"{at}.mlp.experts.down_proj", hidden, inner, copies=experts, read=read)
    yield Tensor(f"{at}.mlp.experts.biases", (2 * inner + hidden,), experts, read)


def _qwen3_5_moe(config: Config, at: str, kind: str) -> Iterator[Tensor]:
    hidden = config["hidden_size"]
    if kind == "linear_attention":
        yield from _gated_delta_net(config, f"{at}.linear_attn")
    else:
        yield _head_norms(config, at)
        yield from _attention(config, at, gated=True)
    yield from _experts(config, at)
    yield from _swiglu(f"{at}.mlp.shared_expert", hidden, config["shared_expert_intermediate_size"])
    yield _linear(f"{at}.mlp.shared_expert_gate", 1, hidden, quantisable=False)


def _gated_delta_net(config: Config, at: str) -> Iterator[Tensor]:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys, values = config["linear_num_key_heads"] * config["linear_key_head_dim"], heads * config["linear_value_head_dim"]
    yield _linear(f"{at}.in_proj_qkv", 2 * keys + values, hidden)
    yield _linear(f"{at}.in_proj_z", values, hidden)
    for name in ("in_proj_a", "in_proj_b"):
        yield _linear(f"{at}.{name}", heads, hidden, quantisable=False)
    yield Tensor(f"{at}.conv1d", (2 * keys + values, config["linear_conv_kernel_dim"]))
    yield Tensor(f"{at}.A_log_and_dt_bias", (heads,), 2, 2)
    yield Tensor(f"{at}.norm", (config["linear_value_head_dim"],))
    yield _linear(f"{at}.out_proj", hidden, values)


_LAYERS: Mapping[str, Callable[[Config, str, str], Iterator[Tensor]]] = MappingProxyType(
    {"llama": _llama, "gemma3_text": _gemma3, "qwen3_moe": _qwen3_moe, "gpt_oss": _gpt_oss, "qwen3_5_moe_text": _qwen3_5_moe}
)
_NORMS = MappingProxyType({"gemma3_text": 4})
"""Norms of the hidden size in a layer, where they are not two."""
