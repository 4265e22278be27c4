"""Which numeric path a server really computes on: weight format x activation format x KV-cache dtype.

Trap: an NVFP4 checkpoint runs with FP4 activations on one kernel and with bf16 activations on Marlin; judged against the other's reference,
a sound boot fails or a broken one passes. Rule: the activation format is what the kernel that ran makes of it, never what the checkpoint
says; what no log line says leaves several candidates, and a drift must be too large for all of them to be a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runners.engines.base import UNKNOWN
from suites.canaries.references import NumericPath, Reference, reference_for

NONE = "none"
_ROUNDED = {"fp8": "fp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4"}
"""Weight formats whose native kernels round activations too, and to what. All others (bf16, int4, nvfp4a16, mxfp4a16) are weight-only."""
_WEIGHT_ONLY = ("marlin", "machete", "exllama", "conch", "wna16", "triton_kernel", "gptoss", "oaitriton")
"""Parts of kernel names (lower case) that multiply rounded weights with bf16 activations."""
_NATIVE = ("cutlass", "cutedsl", "trtllm", "cudnn", "b12x", "emulation", "scaledmm", "deepgemm", "deep_gemm", "torch", "w8a8", "fbgemm")
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
    rounded = _ROUNDED.get(weight_format)
    if rounded is None:
        return (NONE,)
    said = {_kind(kernels[slot]) for slot in _SLOTS[weight_format] if kernels.get(slot, UNKNOWN) != UNKNOWN} - {None}
    if said == {"weight_only"}:
        return (NONE,)
    return (rounded,) if said == {"native"} else (NONE, rounded)


def _kind(kernel: str) -> str | None:
    name = kernel.lower().replace("-", "").replace("flashinfer_", "")
    if any(part in name for part in _WEIGHT_ONLY):
        return "weight_only"
    return "native" if any(part in name for part in _NATIVE) else None


def _kv_dtypes(said: str) -> tuple[str, ...]:
    if said in _MODEL_DTYPE:
        return ("auto",)
    if said in _FP8_KV:
        return ("fp8",)
    return ("auto", "fp8") if said == UNKNOWN else (said,)
