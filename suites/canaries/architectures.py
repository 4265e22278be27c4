"""What each canary is: its model class, its sizes, which weights lie on the universal grid, and how long it is trained.

The trap: a tiny model whose shapes no real kernel takes. The rule: every linear layer that a quantised format touches has inputs and
outputs in multiples of 128, as the CUDA FP4 kernels ask, and every architecture brings the parts that break in engines: grouped-query
attention everywhere, routed experts (``moe``), attention sinks, sliding windows and biases (``gpt-oss``), a recurrent state beside the KV
cache (``hybrid``).

Checkpoints name tensors as the hub does. `canonical_tensors` turns a model's own parameters (transformers 5 keeps all experts of a layer
in one 3-D tensor) into that naming, always ``[out_features, in_features]``, one matrix per expert.

Needs torch and transformers (``canary`` dependency group).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import transformers
from torch import Tensor, nn

from suites.canaries import tokenizer as canary_tokenizer
from suites.canaries.naming import on_grid

ROPE_THETA = 10000.0
INIT_STD = 0.04
CONV_INIT_STD = 0.2
LAYERS = 4
EXPERTS, EXPERTS_PER_TOKEN = 8, 2


@dataclass(frozen=True)
class Phase:
    """One stretch of training with its own optimiser and learning-rate curve."""

    name: str
    steps: int
    learning_rate: float
    weight_decay: float
    on_grid: bool
    grid_only_after: float
    """Fraction of the phase after which every step uses grid weights (before it: three of four)."""
    worst_margin_weight: float
    """Weight of the hinge on the worst margin of the batch."""
    lost_expert_weight: float = 0.0
    """Weight of the hinge that makes lost experts change a token (`suites.canaries.decisive`)."""


def three_phases(plain: int, robust: int, polish: int) -> tuple[Phase, ...]:
    """Memorise; move onto the grid under noise; lift the worst margins."""
    return (
        Phase("plain", plain, 2e-3, 0.01, False, 1.0, 0.0),
        Phase("robust", robust, 1.5e-3, 0.05, True, 0.7, 0.0),
        Phase("polish", polish, 6e-4, 0.05, True, 0.0, 0.05),
    )


def four_phases(plain: int, robust: int, polish: int, experts: int) -> tuple[Phase, ...]:
    """The same; then make every expert decide a token."""
    return (*three_phases(plain, robust, polish), Phase("experts", experts, 6e-4, 0.05, True, 0.0, 0.05, 0.4))


@dataclass(frozen=True)
class Architecture:
    """How one canary is built and trained. ``attention`` is the transformers attention implementation used for training."""

    config: Callable[[], Any]
    model: Callable[[Any], nn.Module]
    phases: tuple[Phase, ...]
    attention: str = "sdpa"


def _sizes() -> dict[str, Any]:
    return {
        "vocab_size": canary_tokenizer.VOCAB_SIZE,
        "hidden_size": 256,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 512,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
    }


def dense_config() -> Any:
    """Qwen3: 2.9 M parameters."""
    return transformers.Qwen3Config(**_sizes())


def moe_config() -> Any:
    """Qwen3-MoE: 7.6 M parameters, 8 experts, two per token, weights of the chosen two renormalised."""
    return transformers.Qwen3MoeConfig(
        **_sizes(),
        num_experts=EXPERTS,
        num_experts_per_tok=EXPERTS_PER_TOKEN,
        moe_intermediate_size=256,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        router_aux_loss_coef=0.02,
        output_router_logits=False,
    )


def gpt_oss_config() -> Any:
    """gpt-oss: 7.6 M parameters, attention sinks, biases, a window of 128 tokens in every other layer.

    vLLM reads ``factor`` and the other YaRN keys unconditionally (KeyError without them, seen with 0.32.0); factor 1 is plain RoPE.
    SGLang 0.5.14 to 0.5.18 read ``swiglu_limit`` though their transformers does not know it (seen with 0.5.15.post1); 7 is its only value.
    """
    rope = {
        "rope_type": "yarn",
        "rope_theta": ROPE_THETA,
        "factor": 1.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 2048,
    }
    sizes = {**_sizes(), "intermediate_size": 256, "rms_norm_eps": 1e-5, "rope_parameters": rope}
    return transformers.GptOssConfig(
        **sizes,
        num_local_experts=EXPERTS,
        num_experts_per_tok=EXPERTS_PER_TOKEN,
        sliding_window=128,
        attention_bias=True,
        swiglu_limit=7.0,
    )


def hybrid_config() -> Any:
    """Qwen3.5 text: 3.9 M parameters, three layers of gated delta rule (linear attention) and one of full attention."""
    return transformers.Qwen3_5TextConfig(
        **_sizes(),
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
    )


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "dense": Architecture(dense_config, transformers.Qwen3ForCausalLM, three_phases(500, 1000, 300)),
        "moe": Architecture(moe_config, transformers.Qwen3MoeForCausalLM, four_phases(800, 2600, 1000, 1500)),
        "gpt-oss": Architecture(gpt_oss_config, transformers.GptOssForCausalLM, four_phases(900, 2600, 1000, 1500), attention="eager"),
        "hybrid": Architecture(hybrid_config, transformers.Qwen3_5ForCausalLM, three_phases(900, 2400, 900)),
    }
)


def build_model(canary: str) -> nn.Module:
    """The untrained model in float32, matrices drawn from a normal distribution."""
    architecture = ARCHITECTURES[canary]
    config = architecture.config()
    config._attn_implementation = architecture.attention
    model = architecture.model(config).float()
    for name, parameter in model.named_parameters():
        if "conv1d" in name:
            nn.init.normal_(parameter, std=CONV_INIT_STD)
        elif name.endswith(("_bias", ".bias", ".sinks")):
            nn.init.zeros_(parameter)
        elif parameter.dim() >= 2:
            nn.init.normal_(parameter, std=INIT_STD)
    return model


def is_transposed(model: nn.Module) -> bool:
    """True if the model keeps its experts as ``[expert, in, out]`` (gpt-oss)."""
    return "GptOss" in type(model).__name__


def grid_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that live on the universal grid, by the model's own names."""
    return {name: parameter for name, parameter in model.named_parameters() if on_grid(name)}


def rows_by_inputs(parameter: Tensor, transposed: bool) -> Tensor:
    """View of a 2-D or 3-D weight whose last dimension is the inputs."""
    return parameter.transpose(-1, -2) if transposed and parameter.dim() == 3 else parameter


def canonical_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(checkpoint name, tensor) for every parameter; expert matrices one by one, as ``[out_features, in_features]``."""
    transposed = is_transposed(model)
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        if not (on_grid(name) and tensor.dim() == 3):
            yield name, tensor
            continue
        prefix, stacked = name.rsplit(".", 1)
        for expert, matrix in enumerate(rows_by_inputs(tensor, transposed).unbind(0)):
            if stacked == "gate_up_proj" and not transposed:
                gate, up = matrix.chunk(2, dim=0)
                yield f"{prefix}.{expert}.gate_proj.weight", gate
                yield f"{prefix}.{expert}.up_proj.weight", up
            else:
                yield f"{prefix}.{expert}.{stacked}.weight", matrix
