"""Rounding in torch: activation quantisers in front of every linear layer, and weights onto the universal grid.

The trap: a canary trained in full precision gives the right text in bf16 and a different text under FP4 activations, and
nobody can tell the format's own rounding from a kernel fault. The rule: training sees the rounding of every activation
format (and plain noise), and learns margins that no honest format can cross.

Weights need no emulation per format: they lie on the universal grid (`suites.canaries.ugrid`), exact in every format. `round_to_grid` is
`ugrid.quantise` for tensors on any device. Needs torch (``canary`` dependency group).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from suites.canaries.experts import RoutedExperts
from suites.canaries.ugrid import GROUP_SIZE

_E4M3_MAX = 448.0
_E2M1_MAX = 6.0
_TINY = 1e-12
_SMALLEST_EXPONENT, _LARGEST_EXPONENT = -100, 100
_NOT_QUANTISED = (".in_proj_a", ".in_proj_b")


def power_of_two(exponent: Tensor) -> Tensor:
    """``2**exponent`` of an integer tensor, exact on every device (``exp2`` need not be); exponents within -126..127."""
    return (exponent.to(torch.int32) + 127).bitwise_left_shift(23).view(torch.float32)


def round_to_grid(weight: Tensor) -> Tensor:
    """Nearest point of the universal grid, groups of 128 along the last dimension: what `suites.canaries.ugrid.quantise` gives.

    Exponents beyond -100..100 saturate here, where `ugrid.quantise` refuses.
    """
    groups = weight.unflatten(-1, (-1, GROUP_SIZE))
    mantissa, exponent = torch.frexp(groups.abs().amax(-1, keepdim=True))
    k = torch.where(mantissa <= 7.5 / 8, exponent - 3, exponent - 2).clamp(_SMALLEST_EXPONENT, _LARGEST_EXPONENT)
    scaled = groups * power_of_two(-k)
    magnitude = scaled.abs()
    rounded = torch.where(magnitude < 4.5, magnitude.round(), torch.where(magnitude < 5, 4.0, 6.0))
    return (torch.where(rounded > 0, torch.copysign(rounded, scaled), 0.0) * power_of_two(k)).flatten(-2)


def round_e4m3(values: Tensor) -> Tensor:
    """Nearest FP8 e4m3 value, saturating at 448."""
    return values.clamp(-_E4M3_MAX, _E4M3_MAX).to(torch.float8_e4m3fn).to(torch.float32)


def round_e2m1(values: Tensor) -> Tensor:
    """Nearest FP4 e2m1 value (0, 0.5, 1, 1.5, 2, 3, 4, 6 with sign), saturating at 6."""
    magnitude = values.abs().clamp(max=_E2M1_MAX)
    fine, middle, coarse = torch.round(magnitude * 2) / 2, torch.round(magnitude), torch.round(magnitude / 2) * 2
    return torch.copysign(torch.where(magnitude < 2, fine, torch.where(magnitude < 4, middle, coarse)), values)


def fp8_per_token(x: Tensor) -> Tensor:
    """Dynamic FP8: one float scale per token (last dimension), amax mapped to 448."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=_TINY) / _E4M3_MAX
    return round_e4m3(x / scale) * scale


def nvfp4_dynamic(x: Tensor) -> Tensor:
    """NVFP4: e2m1 blocks of 16 with e4m3 scales under one global scale (amax of the tensor mapped to 448 * 6)."""
    blocks = x.unflatten(-1, (-1, 16))
    global_scale = _E4M3_MAX * _E2M1_MAX / x.abs().amax().clamp(min=_TINY)
    block_scale = round_e4m3(blocks.abs().amax(-1, keepdim=True) / _E2M1_MAX * global_scale).clamp(min=2.0**-9)
    scale = block_scale / global_scale
    return (round_e2m1(blocks / scale) * scale).flatten(-2)


def mxfp4_dynamic(x: Tensor) -> Tensor:
    """MXFP4: e2m1 blocks of 32 with scale 2**(floor(log2(amax)) - 2) (OCP Microscaling 1.0, section 6.3)."""
    blocks = x.unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-20)
    scale = power_of_two(torch.frexp(amax).exponent - 3)
    return (round_e2m1(blocks / scale) * scale).flatten(-2)


ACTIVATION_FORMATS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "none": None,
    "fp8": fp8_per_token,
    "nvfp4": nvfp4_dynamic,
    "mxfp4": mxfp4_dynamic,
}


class ActivationQuantiser:
    """Rounds (and disturbs) the input of every linear layer of the decoder; gradients pass straight through."""

    def __init__(self, model: nn.Module) -> None:
        self.activation_format = "none"
        self.noise = 0.0
        """Gaussian noise, as a fraction of the token's RMS."""
        self.experts: list[RoutedExperts] = []
        """Those of each layer."""
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and ".layers." in name and not name.endswith(_NOT_QUANTISED):
                module.register_forward_pre_hook(self._before_linear)
            elif name.endswith(".mlp.experts"):
                self.experts.append(RoutedExperts(module, self.rounded, self.rounded))

    def off(self) -> None:
        """Back to exact activations."""
        self.activation_format, self.noise = "none", 0.0

    def _before_linear(self, _module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.rounded(args[0]), *args[1:])

    def rounded(self, x: Tensor) -> Tensor:
        """``x`` as the next matrix product sees it."""
        if (self.activation_format == "none" and not self.noise) or not x.numel():
            return x
        quantise = ACTIVATION_FORMATS[self.activation_format]
        with torch.no_grad():
            exact = x.float()
            rounded = exact if quantise is None else quantise(exact)
            if self.noise:
                rms = rounded.pow(2).mean(-1, keepdim=True).sqrt()
                rounded = rounded + self.noise * rms * torch.randn_like(rounded)
            difference = (rounded - exact).to(x.dtype)
        return x + difference
