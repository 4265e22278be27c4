"""What training and measuring compute in torch agrees with the NumPy definitions and with transformers.

Needs torch and transformers, which are no dependencies of Sparkproof: `tests/test_real_engines.py` runs it with those of an engine.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from suites.canaries import ugrid
from suites.canaries.architectures import build_model, canonical_tensors
from suites.canaries.batches import Sequence, collate
from suites.canaries.decisive import LOST_TARGET, DecisiveExperts
from suites.canaries.emulation import mxfp8_dynamic, nvfp4_static
from suites.canaries.fakequant import ActivationQuantiser, mxfp4_dynamic, power_of_two, round_to_grid
from suites.canaries.naming import on_grid
from suites.canaries.scoring import answer_logits, margins

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


@pytest.mark.parametrize("scale", [1.0, 0.04, 1e-5, 3e4])
def test_grid_rounding_in_torch_is_that_of_numpy_bit_for_bit(scale: float) -> None:
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)) * scale
    weight[3], weight[5, :128] = 0, 0
    weight[7] *= 1e-3
    assert round_to_grid(weight).numpy().tobytes() == ugrid.quantise(weight.numpy()).tobytes()


def test_grid_rounding_treats_every_expert_alike() -> None:
    weight = torch.randn(3, 8, 128, generator=torch.Generator().manual_seed(2))
    assert torch.equal(round_to_grid(weight), torch.stack([round_to_grid(expert) for expert in weight]))


def test_powers_of_two_are_exact() -> None:
    exponents = torch.arange(-126, 128)
    assert power_of_two(exponents).tolist() == [math.ldexp(1.0, e) for e in exponents.tolist()]


@pytest.mark.parametrize("amax", [1.0, math.nextafter(1024.0, 0.0), 1023.99994, 1024.0, 6.0, 0.75])
def test_mxfp4_scale_is_the_power_of_two_below_the_largest_value(amax: float) -> None:
    """Just below a power of two, log2 in float32 rounds up to it; the scale must not."""
    x = torch.zeros(1, 32)
    x[0, 0] = amax
    scale = 2.0 ** (math.floor(math.log2(float(np.float32(amax)))) - 2)
    nearest = scale * float(E2M1[np.abs(E2M1 - min(float(np.float32(amax)) / scale, 6.0)).argmin()])
    assert mxfp4_dynamic(x)[0, 0].item() == nearest


def test_nvfp4_values_lie_on_the_format_and_are_the_nearest() -> None:
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(3))
    global_scale = 256.0
    rounded = nvfp4_static(x, global_scale).reshape(4, 4, 16)
    blocks = x.reshape(4, 4, 16)
    stored = (blocks.abs().amax(-1, keepdim=True) / 6 * global_scale).to(torch.float8_e4m3fn).float()
    codes = (rounded / (stored / global_scale)).abs().numpy()
    assert np.isin(codes, E2M1).all()
    grid = torch.from_numpy(E2M1)
    distance = ((blocks.abs() / (stored / global_scale)).unsqueeze(-1) - grid).abs().amin(-1)
    assert torch.allclose(((blocks - rounded) / (stored / global_scale)).abs(), distance, atol=1e-6)


def test_a_block_whose_scale_rounds_to_zero_becomes_zero() -> None:
    x = torch.full((1, 16), 1e-6)
    assert torch.equal(nvfp4_static(x, 1.0), torch.zeros(1, 16))


def test_mxfp8_keeps_small_integers() -> None:
    x = torch.arange(-16, 16, dtype=torch.float32).reshape(1, 32)
    assert torch.equal(mxfp8_dynamic(x), x)


@pytest.mark.parametrize("canary", ["moe", "gpt-oss"])
def test_sorted_experts_give_what_transformers_gives_and_every_parameter_a_gradient(canary: str) -> None:
    torch.manual_seed(4)
    model: Any = build_model(canary)
    for name, parameter in model.named_parameters():
        if "bias" in name or "sinks" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    ids = torch.randint(0, 1000, (2, 24))
    with torch.no_grad():
        expected = model(input_ids=ids).logits
    ActivationQuantiser(model)
    logits = model(input_ids=ids).logits
    assert torch.allclose(logits, expected, atol=1e-5)
    logits.sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("canary", ["dense", "moe", "gpt-oss", "hybrid"])
def test_canonical_tensors_hold_every_parameter_once_with_matrices_as_rows_by_inputs(canary: str) -> None:
    model = build_model(canary)
    tensors = dict(canonical_tensors(model))
    assert sum(t.numel() for t in tensors.values()) == sum(p.numel() for p in model.parameters())
    for name, tensor in tensors.items():
        if on_grid(name):
            assert tensor.dim() == 2
            assert all(size % 128 == 0 for size in tensor.shape), name


@pytest.mark.parametrize("canary", ["moe", "gpt-oss"])
def test_a_lost_expert_counts_as_zero_in_its_own_row_alone(canary: str) -> None:
    torch.manual_seed(5)
    model: Any = build_model(canary)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(3.0 if ".experts." in name else 1.0)
    experts = ActivationQuantiser(model).experts
    prompts = [Sequence(name, tuple(torch.randint(2, 1000, (20,)).tolist()), 8) for name in ("first", "second")]
    decisive = DecisiveExperts(model, experts, prompts, 0)
    decisive.prompt_of = ["first" if number % 2 else "second" for number in range(len(decisive.pairs))]
    found = decisive.all_lowest_margins()
    moved = 0
    with torch.no_grad():
        for number, (layer, expert) in enumerate(decisive.pairs):
            scored = collate([p for p in prompts if p.name == decisive.prompt_of[number]], 0)
            healthy = margins(*answer_logits(model, *scored)).min().item()
            module = experts[layer].module
            lost = [p for p in (module.down_proj, getattr(module, "down_proj_bias", None)) if p is not None]
            kept = [p[expert].clone() for p in lost]
            for p in lost:
                p[expert] = 0
            expected = margins(*answer_logits(model, *scored)).min().item()
            for p, values in zip(lost, kept, strict=True):
                p[expert] = values
            assert found[number] == pytest.approx(expected, abs=1e-4)
            moved += abs(expected - healthy) > 1e-3
    assert moved >= 8, "too few experts are used by these prompts: the test says little"


def test_each_expert_gets_the_prompt_that_its_loss_moves_most_and_no_prompt_more_than_two() -> None:
    torch.manual_seed(6)
    model: Any = build_model("moe")
    prompts = [Sequence(f"p{i}", tuple(torch.randint(2, 1000, (12,)).tolist()), 6) for i in range(18)]
    decisive = DecisiveExperts(model, ActivationQuantiser(model).experts, prompts, 0)
    decisive.designate()
    shared = Counter(decisive.prompt_of)
    assert (len(decisive.prompt_of), max(shared.values())) == (32, 2)
    with torch.no_grad():
        loss = decisive.loss([0, 1]).item()
    assert loss == pytest.approx(np.mean([max(0.0, LOST_TARGET + m) for m in decisive.all_lowest_margins()[:2]]), abs=1e-4)
