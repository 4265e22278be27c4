"""The universal grid: weights that bf16, FP8, NVFP4, MXFP4 and INT4 all represent exactly.

The trap: a golden answer that holds in one weight format only. If quantising the canary rounded its weights, every format
would need its own goldens, and a kernel fault could hide in what is "expected" of that format. The rule: every linear
weight of a canary is ``{0, +-1, +-2, +-3, +-4, +-6} * 2**k`` with one ``k`` per row and 128 inputs, so each format stores
the same numbers and one golden serves them all:

* bf16: two significant bits, exact;
* FP8 (e4m3, power-of-two row scale), NVFP4 (e2m1 per 16) and MXFP4 (e2m1 per 32): the magnitudes are e2m1 values;
* INT4 (per 128 inputs): the magnitudes are integers of at most 7.

A stock amax quantiser does not choose these scales; the writer of each format must take them from the packed file.
Matrices are ``[out_features, in_features]``, float32, and ``in_features`` is a multiple of 128.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
UInt8 = npt.NDArray[np.uint8]
Int8 = npt.NDArray[np.int8]

GROUP_SIZE = 128
"""Inputs that share one exponent."""

EXPONENT_MIN, EXPONENT_MAX = -100, 100
"""Bounds of ``k``: inside them ``6 * 2**k`` is a normal number of float32 and bfloat16 and ``k`` fits a signed byte."""

# e2m1 codes (OCP Microscaling 1.0, section 5.3.3): 1 sign bit, 2 exponent bits, 1 mantissa bit.
_E2M1_VALUES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=np.float32)
_CODE_OF_MAGNITUDE = np.array([0, 2, 4, 5, 6, 255, 7], dtype=np.uint8)
_SIGN_BIT = 8
_FORBIDDEN_CODES = (1, 3, 8, 9, 11)
"""0.5, 1.5 and minus zero, with either sign: e2m1 has them, the grid has not."""


class NotOnGridError(ValueError):
    """A matrix or a packed form holds something that the universal grid has not."""


@dataclass(frozen=True)
class PackedMatrix:
    """One matrix in 4-bit form.

    ``codes`` is uint8 ``[out, in / 2]``: two e2m1 codes a byte, the even input in the low nibble (the layout of
    compressed-tensors' ``nvfp4-pack-quantized``). ``exponents`` is int8 ``[out, in / 128]``: the ``k`` of each group.
    """

    codes: UInt8
    exponents: Int8


def quantise(weight: Float32) -> Float32:
    """Round every weight to the nearest point of the grid; ``quantise(quantise(w)) == quantise(w)``.

    ``k`` puts the largest magnitude of a group into (3.75, 7.5], where it rounds to 4 or 6.
    """
    groups = _grouped(weight)
    exponents = _exponents(groups, threshold=7.5 / 8)
    scaled = np.ldexp(groups, -exponents[..., None])
    magnitude = np.abs(scaled)
    rounded = np.where(magnitude < 4.5, np.rint(magnitude), np.where(magnitude < 5, 4.0, 6.0)).astype(np.float32)
    on_grid: Float32 = np.ldexp(np.where(rounded > 0, np.copysign(rounded, scaled), 0.0), exponents[..., None])
    return on_grid.astype(np.float32).reshape(weight.shape)


def pack(weight: Float32) -> PackedMatrix:
    """Encode a matrix that lies on the grid; raises `NotOnGridError` if a single weight does not."""
    groups = _grouped(weight)
    exponents = _exponents(groups, threshold=6.0 / 8)
    scaled = np.ldexp(groups, -exponents[..., None]).reshape(weight.shape)
    magnitude = np.abs(scaled)
    integers = np.where(magnitude <= 6, magnitude, 5).astype(np.uint8)
    codes = _CODE_OF_MAGNITUDE[integers]
    if np.any(integers != magnitude) or np.any(codes == 255) or np.any(np.signbit(weight) & (weight == 0)):
        raise NotOnGridError("the matrix is not on the universal grid: quantise() it before pack()")
    codes = codes | np.where(scaled < 0, _SIGN_BIT, 0).astype(np.uint8)
    packed: UInt8 = np.bitwise_or(codes[:, 0::2], np.left_shift(codes[:, 1::2], np.uint8(4)))
    return PackedMatrix(codes=packed, exponents=exponents.astype(np.int8))


def unpack(packed: PackedMatrix) -> Float32:
    """Decode to float32, bit for bit what `pack` was given; raises `NotOnGridError` on codes that the grid has not."""
    rows, half = packed.codes.shape
    if packed.exponents.shape != (rows, 2 * half // GROUP_SIZE) or 2 * half % GROUP_SIZE:
        raise NotOnGridError(f"codes {packed.codes.shape} and exponents {packed.exponents.shape} do not fit together")
    codes = np.empty((rows, 2 * half), dtype=np.uint8)
    codes[:, 0::2] = packed.codes & 15
    codes[:, 1::2] = packed.codes >> 4
    if np.any(np.isin(codes, _FORBIDDEN_CODES)):
        raise NotOnGridError("the packed codes contain 0.5, 1.5 or minus zero, which the universal grid has not")
    sign = np.where(codes & _SIGN_BIT, np.float32(-1), np.float32(1))
    values = (_E2M1_VALUES[codes & 7] * sign).reshape(rows, -1, GROUP_SIZE)
    decoded: Float32 = np.ldexp(values, packed.exponents.astype(np.int32)[..., None])
    return decoded.reshape(rows, 2 * half)


def bfloat16_bits(values: Float32) -> npt.NDArray[np.uint16]:
    """The bfloat16 bit patterns of float32 ``values``; raises `NotOnGridError` if bfloat16 would have to round one."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    if np.any(bits & 0xFFFF):
        raise NotOnGridError("a value is not exact in bfloat16")
    return (bits >> 16).astype(np.uint16)


def _grouped(weight: Float32) -> Float32:
    if weight.ndim != 2 or weight.shape[1] % GROUP_SIZE or weight.dtype != np.float32:
        raise NotOnGridError(f"expected a float32 matrix with a multiple of {GROUP_SIZE} inputs, got {weight.dtype} {weight.shape}")
    if not np.all(np.isfinite(weight)):
        raise NotOnGridError("the matrix contains NaN or infinity")
    return weight.reshape(weight.shape[0], -1, GROUP_SIZE)


def _exponents(groups: Float32, threshold: float) -> npt.NDArray[np.int32]:
    """``k`` per group, int32 ``[out, groups]``: the smallest with ``amax <= 8 * threshold * 2**k``.

    An all-zero group takes the smallest ``k`` of the matrix (0 if all is zero), so that it never widens the range.
    """
    amax = np.abs(groups).max(axis=-1)
    mantissa, exponent = np.frexp(amax)
    k = np.where(mantissa <= threshold, exponent - 3, exponent - 2)
    used = k[amax > 0]
    k = np.where(amax > 0, k, used.min() if used.size else 0).astype(np.int32)
    if k.size and (k.min() < EXPONENT_MIN or k.max() > EXPONENT_MAX):
        raise NotOnGridError(f"scale exponents {k.min()}..{k.max()} lie outside {EXPONENT_MIN}..{EXPONENT_MAX}")
    return k
