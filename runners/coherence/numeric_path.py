"""Which numeric path a server really computes on: weight format x activation format x KV-cache dtype.

Trap: an NVFP4 checkpoint runs with FP4 activations on one kernel and with bf16 activations on Marlin; judged against the other's reference,
a sound boot fails or a broken one passes. Rule: the activation format is what the kernel that ran makes of it, never what the checkpoint
says; what no log line says leaves several candidates, and a drift must be too large for all of them to be a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runners.engines.base import UNKNOWN
from suites.canaries.references import NumericPath, Reference, reference_for

NONE = "none"


@dataclass(frozen=True)
class _Rounding:
    """A weight format whose native kernels round activations to `activations`; parts of kernel names (lower case) that do, and do not."""

    activations: str
    native: tuple[str, ...]
    weight_only: tuple[str, ...] = ("marlin",)


_ROUNDED = {
    "fp8": _Rounding("fp8", ("cutlass", "triton", "scaledmm", "deepgemm", "deep_gemm", "torch", "w8a8", "flashinfer", "cudnn", "fbgemm")),
    "nvfp4": _Rounding("nvfp4", ("cutlass", "cutedsl", "trtllm", "cudnn", "b12x", "emulation")),
    "mxfp4": _Rounding("mxfp8", ("mxfp8",), ("marlin", "triton")),
}
"""All other formats (bf16, nvfp4a16, mxfp4a16, and int4 but for `_INT8_EXPERTS`) are weight-only on every kernel."""
_INT8_EXPERTS = ("int4", "CPUExpertsInt4")
"""vLLM's int4 experts on x86 compute with 8-bit activations ("INT4_W4A8" in `cpu_moe.py` of 0.27.1), though the format says 16."""
_SLOTS = {"fp8": ("fp8_linear", "linear", "moe"), "nvfp4": ("nvfp4_linear", "linear", "moe"), "mxfp4": ("mxfp4_linear", "linear", "moe")}
_MODEL_DTYPE = frozenset({"auto", "bfloat16", "bf16", "float16", "half"})
_FP8_KV = frozenset({"fp8", "fp8_e4m3", "float8_e4m3fn"})


@dataclass(frozen=True)
class PathReference:
    """A path that may have been served and what a correct engine's margins are on it."""

    path: NumericPath
    reference: Reference


def path_name(path: NumericPath) -> str:
    """`weight format / activation format / KV-cache dtype`, as scores name their reference."""
    return f"{path.weight_format} / {path.activation_format} / {path.kv_cache_dtype}"


def scores_path(paths: tuple[NumericPath, ...], *, canary: bool) -> str | None:
    """The name under which scores of fixed texts are compared; None if several paths may be served.

    A canary's weights are the same numbers in every format, so its weight format is `any`.
    """
    if len(paths) != 1:
        return None
    return path_name(replace(paths[0], weight_format="any") if canary else paths[0])


def candidate_paths(weight_format: str, kernels: Mapping[str, str]) -> tuple[NumericPath, ...]:
    """Every path that agrees with the kernels a server reports (slot to name, or "unknown"); one if they say enough."""
    return tuple(
        NumericPath(weight_format, activation, kv)
        for activation in _activations(weight_format, kernels)
        for kv in _kv_dtypes(kernels.get("kv_cache_dtype", UNKNOWN))
    )


def references_of(canary: str, paths: tuple[NumericPath, ...]) -> tuple[PathReference, ...]:
    """The measured references of `paths`; empty if one of them was never measured: then nothing can be said about drift."""
    found = [(path, reference_for(canary, path)) for path in paths]
    known = tuple(PathReference(path, reference) for path, reference in found if reference is not None)
    return known if len(known) == len(paths) else ()


def _activations(weight_format: str, kernels: Mapping[str, str]) -> tuple[str, ...]:
    if (weight_format, kernels.get("moe_experts")) == _INT8_EXPERTS:
        return ("int8",)
    rounded = _ROUNDED.get(weight_format)
    if rounded is None:
        return (NONE,)
    said = {_rounds(rounded, kernels[slot]) for slot in _SLOTS[weight_format] if kernels.get(slot, UNKNOWN) != UNKNOWN} - {None}
    if said == {False}:
        return (NONE,)
    return (rounded.activations,) if said == {True} else (NONE, rounded.activations)


def _rounds(rounding: _Rounding, kernel: str) -> bool | None:
    """Whether a kernel of that name rounds activations; None for a name that nobody here knows."""
    name = kernel.lower()
    if any(part in name for part in rounding.weight_only):
        return False
    return True if any(part in name for part in rounding.native) else None


def _kv_dtypes(said: str) -> tuple[str, ...]:
    if said in _MODEL_DTYPE:
        return ("auto",)
    if said in _FP8_KV:
        return ("fp8",)
    return ("auto", "fp8") if said == UNKNOWN else (said,)
