"""Every weight format of a canary, computed from its packed file with NumPy; each holds bit for bit the same weights.

The trap: a quantiser that looks at amax chooses its own scales and rounds the weights, so that each format is a slightly different model
and "expected" drift hides a kernel fault. The rule: the scales come from the packed exponents (`suites.canaries.ugrid`), so that
dequantising gives the bf16 weights exactly, in every format and every matrix.

Checkpoint layouts are those of compressed-tensors 0.17 (``pack-quantized``, ``float-quantized``, ``nvfp4-pack-quantized``,
``mxfp4-pack-quantized``) and, for gpt-oss, the native ``mxfp4`` blocks and scales. Left in bf16: embedding, head, norms, routers and the
small projections of linear attention, as published checkpoints of these families do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from suites.canaries import ugrid
from suites.canaries.packed_file import other_tensors, packed_matrices
from suites.canaries.quantization import MXFP4_BLOCK, NVFP4_BLOCK
from suites.canaries.tensorfile import RawTensor

GPT_OSS = "gpt_oss"
"""``model_type`` of the family whose checkpoints keep all experts of a layer in one tensor."""

Tensors = dict[str, RawTensor]

_EXPERT = re.compile(r"(.{1,80}\.experts)\.(\d{1,4})\.([a-z_]{1,20})\.weight")
_NOT_LINEAR = ("norm.weight", "_layernorm.weight", "embed_tokens.weight")
_E8M0_BIAS = 127
_LARGEST_FP8_EXPONENT = 6
"""The largest group of a row is stored as up to 6 * 2**6 = 384 (e4m3 ends at 448)."""
_LARGEST_E4M3_POWER, _SMALLEST_E4M3_POWER = 8, -9


class FormatError(ValueError):
    """The packed weights cannot be stored exactly in this format, or something that it needs is missing."""


@dataclass(frozen=True)
class Source:
    """What a checkpoint is made from.

    ``input_scales``: linear layer (experts without their number) to the power of two that maps its largest input to FP4 range; only NVFP4
    with quantised activations needs them.
    """

    model_type: str
    packed: Mapping[str, RawTensor]
    input_scales: Mapping[str, float]


def formats_of(model_type: str) -> tuple[str, ...]:
    """Names of the formats that exist for a family, bf16 first."""
    return ("bf16", "mxfp4") if model_type == GPT_OSS else ("bf16", "fp8", "int4", "nvfp4", "nvfp4a16", "mxfp4a16")


def bfloat16_tensors(source: Source) -> Tensors:
    """All tensors as BF16: the grid matrices expanded, embedding, head and norms as stored."""
    matrices = {name: ugrid.bfloat16_bits(ugrid.unpack(form)) for name, form in packed_matrices(source.packed).items()}
    tensors = other_tensors(source.packed)
    if source.model_type != GPT_OSS:
        return tensors | {name: RawTensor("BF16", bits) for name, bits in matrices.items()}
    for name, bits in matrices.items():
        if not _EXPERT.fullmatch(name):
            tensors[name] = RawTensor("BF16", bits)
    for name, stack in _stacked(matrices):
        tensors[name] = RawTensor("BF16", np.ascontiguousarray(stack.transpose(0, 2, 1)))
    return tensors


def _fp8_tensors(source: Source) -> Tensors:
    """``weight`` F8_E4M3 ``[out, in]`` and ``weight_scale`` BF16 ``[out, 1]``, a power of two per row."""
    tensors = other_tensors(source.packed)
    for base, form in _linears(source):
        row = form.exponents.astype(np.int32).max(axis=1, keepdims=True) - _LARGEST_FP8_EXPONENT
        values = np.ldexp(ugrid.unpack(form), -row)
        tensors[f"{base}.weight"] = RawTensor("F8_E4M3", e4m3_bits(values))
        tensors[f"{base}.weight_scale"] = _powers_bf16(row)
    return tensors


def _int4_tensors(source: Source) -> Tensors:
    """``weight_packed`` I32 ``[out, in / 8]`` (value + 8, first input in the lowest nibble), ``weight_scale`` BF16 ``[out, in / 128]``."""
    tensors = other_tensors(source.packed)
    for base, form in _linears(source):
        integers = np.ldexp(ugrid.unpack(form), -np.repeat(form.exponents.astype(np.int32), ugrid.GROUP_SIZE, axis=1))
        nibbles = (integers.astype(np.int32) + 8).astype(np.uint32).reshape(integers.shape[0], -1, 8)
        words = np.bitwise_or.reduce(nibbles << (4 * np.arange(8, dtype=np.uint32)), axis=2)
        tensors[f"{base}.weight_packed"] = RawTensor("I32", words.astype(np.uint32).view(np.int32))
        tensors[f"{base}.weight_scale"] = _powers_bf16(form.exponents.astype(np.int32))
        tensors[f"{base}.weight_shape"] = RawTensor("I64", np.array(integers.shape, dtype=np.int64))
    return tensors


def _nvfp4_tensors(source: Source, *, with_input_scale: bool) -> Tensors:
    """``weight_packed`` U8 ``[out, in / 2]``, ``weight_scale`` F8_E4M3 ``[out, in / 16]``, ``weight_global_scale`` F32 ``[1]``.

    One global scale for the whole model: engines fuse q/k/v and gate/up and want one for all parts.
    """
    tensors = other_tensors(source.packed)
    shift = _LARGEST_E4M3_POWER - max(int(form.exponents.max()) for _, form in _linears(source))
    for base, form in _linears(source):
        powers = form.exponents.astype(np.int32) + shift
        if powers.min() < _SMALLEST_E4M3_POWER:
            raise FormatError(f"{base}: block scale 2**{powers.min()} is below the smallest of e4m3 (2**{_SMALLEST_E4M3_POWER})")
        scales = e4m3_bits(np.ldexp(np.float32(1), powers))
        tensors[f"{base}.weight_packed"] = RawTensor("U8", form.codes)
        tensors[f"{base}.weight_scale"] = RawTensor("F8_E4M3", np.repeat(scales, ugrid.GROUP_SIZE // NVFP4_BLOCK, axis=1))
        tensors[f"{base}.weight_global_scale"] = RawTensor("F32", np.ldexp(np.ones(1, dtype=np.float32), shift))
        if with_input_scale:
            tensors[f"{base}.input_global_scale"] = RawTensor("F32", np.array([_input_scale(source, base)], dtype=np.float32))
    return tensors


def _mxfp4a16_tensors(source: Source) -> Tensors:
    """``weight_packed`` U8 ``[out, in / 2]`` and ``weight_scale`` U8 ``[out, in / 32]``: exponents with a bias of 127 (E8M0)."""
    tensors = other_tensors(source.packed)
    for base, form in _linears(source):
        tensors[f"{base}.weight_packed"] = RawTensor("U8", form.codes)
        tensors[f"{base}.weight_scale"] = RawTensor("U8", _e8m0(form))
    return tensors


def _native_mxfp4_tensors(source: Source) -> Tensors:
    """gpt-oss as published: experts as ``_blocks`` U8 ``[expert, out, in / 32, 16]`` and ``_scales`` U8 ``[expert, out, in / 32]``."""
    tensors = other_tensors(source.packed)
    forms = packed_matrices(source.packed)
    for name, form in forms.items():
        if not _EXPERT.fullmatch(name):
            tensors[name] = RawTensor("BF16", ugrid.bfloat16_bits(ugrid.unpack(form)))
    for name, codes in _stacked({name: form.codes for name, form in forms.items()}):
        experts, rows, half = codes.shape
        tensors[f"{name}_blocks"] = RawTensor("U8", codes.reshape(experts, rows, 2 * half // MXFP4_BLOCK, MXFP4_BLOCK // 2))
    for name, scales in _stacked({name: _e8m0(form) for name, form in forms.items()}):
        tensors[f"{name}_scales"] = RawTensor("U8", scales)
    return tensors


def e4m3_bits(values: ugrid.Float32) -> ugrid.UInt8:
    """FP8 e4m3 bit patterns of float32 ``values``; raises `FormatError` if one would have to be rounded."""
    table = e4m3_values()[:127]
    magnitude = np.abs(values)
    bits = np.searchsorted(table, magnitude).clip(max=126).astype(np.uint8)
    if not np.array_equal(table[bits], magnitude):
        raise FormatError("a value is not exact in FP8 e4m3")
    return np.where(np.signbit(values), bits | 0x80, bits).astype(np.uint8)


def e4m3_values() -> ugrid.Float32:
    """The 256 values of FP8 e4m3 (OCP 8-bit floating point 1.0, section 5): bias 7, subnormals, no infinities, 0x7f and 0xff are NaN."""
    code = np.arange(256, dtype=np.int32)
    exponent, mantissa = (code >> 3) & 15, (code & 7).astype(np.float32)
    magnitude = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(8 + mantissa, exponent - 10)).astype(np.float32)
    magnitude[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.float32)


def _linears(source: Source) -> Iterator[tuple[str, ugrid.PackedMatrix]]:
    for name, form in packed_matrices(source.packed).items():
        yield name.removesuffix(".weight"), form


def _stacked(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """(name, ``[expert, out, ...]``) for each kind of expert matrix of each layer."""
    groups: dict[str, dict[int, np.ndarray[Any, Any]]] = {}
    for name, array in arrays.items():
        match = _EXPERT.fullmatch(name)
        if match:
            groups.setdefault(f"{match[1]}.{match[3]}", {})[int(match[2])] = array
    for name, experts in groups.items():
        yield name, np.stack([experts[expert] for expert in range(len(experts))])


def _e8m0(form: ugrid.PackedMatrix) -> ugrid.UInt8:
    exponents = (form.exponents.astype(np.int32) + _E8M0_BIAS).astype(np.uint8)
    return np.repeat(exponents, ugrid.GROUP_SIZE // MXFP4_BLOCK, axis=1)


def _powers_bf16(exponents: np.ndarray[Any, np.dtype[np.int32]]) -> RawTensor:
    return RawTensor("BF16", ugrid.bfloat16_bits(np.ldexp(np.float32(1), exponents)))


def input_scale_name(base: str) -> str:
    """The name of a linear layer in ``input_scales``: all experts of a layer share one scale."""
    return re.sub(r"\.experts\.\d{1,4}\.", ".experts.", base)


def _input_scale(source: Source, base: str) -> float:
    name = input_scale_name(base)
    if name not in source.input_scales:
        raise FormatError(f"no input scale for {name}: calibrate the canary first")
    return source.input_scales[name]


def unquantised(source: Source) -> list[str]:
    """Linear layers that stay in bf16, by name."""
    names = [
        name.removesuffix(".weight") for name in other_tensors(source.packed) if name.endswith(".weight") and not name.endswith(_NOT_LINEAR)
    ]
    return sorted(names)


WEIGHT_FORMATS: Mapping[str, Callable[[Source], Tensors]] = MappingProxyType(
    {
        "bf16": bfloat16_tensors,
        "fp8": _fp8_tensors,
        "int4": _int4_tensors,
        "nvfp4": partial(_nvfp4_tensors, with_input_scale=True),
        "nvfp4a16": partial(_nvfp4_tensors, with_input_scale=False),
        "mxfp4a16": _mxfp4a16_tensors,
        "mxfp4": _native_mxfp4_tensors,
    }
)
"""Format name to the tensors of its checkpoint; what they mean is in `suites.canaries.quantization`."""
