"""Which tensors lie on the grid is decided by name alone."""

import pytest

from suites.canaries.naming import on_grid


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.3.mlp.down_proj.weight",
        "model.layers.3.mlp.experts.7.gate_proj.weight",
        "model.layers.3.mlp.experts.gate_up_proj",
        "model.layers.0.linear_attn.in_proj_qkv.weight",
        "model.layers.0.linear_attn.in_proj_z.weight",
        "model.layers.0.linear_attn.out_proj.weight",
        "model.layers.0.self_attn.q_proj",
    ],
)
def test_linear_weights_inside_a_layer_are_on_the_grid(name: str) -> None:
    assert on_grid(name)


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.embed_tokens.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.router.weight",
        "model.layers.0.self_attn.q_proj.bias",
        "model.layers.0.mlp.experts.gate_up_proj_bias",
        "model.layers.0.linear_attn.in_proj_a.weight",
        "model.layers.0.linear_attn.in_proj_b.weight",
        "model.layers.0.linear_attn.conv1d.weight",
        "model.layers.0.linear_attn.A_log",
        "model.layers.0.self_attn.q_norm.weight",
    ],
)
def test_routers_biases_norms_and_small_projections_are_not(name: str) -> None:
    assert not on_grid(name)
