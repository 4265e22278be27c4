"""The packed form of a canary: every grid matrix as 4-bit codes and one exponent per row and 128 inputs, the rest as bfloat16.

The trap: one packed file per format, each large, each able to differ. The rule: there is one, and every format is computed from it.
A matrix ``NAME`` is stored as ``NAME#codes`` (U8) and ``NAME#exponents`` (I8), see `suites.canaries.ugrid.PackedMatrix`.
"""

from __future__ import annotations

from collections.abc import Mapping

from suites.canaries import ugrid
from suites.canaries.tensorfile import RawTensor

CODES_SUFFIX, EXPONENTS_SUFFIX = "#codes", "#exponents"

RawMatrices = dict[str, ugrid.Float32]


def packed_tensors(matrices: Mapping[str, ugrid.Float32], others: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """Both kinds in one mapping; raises `suites.canaries.ugrid.NotOnGridError`."""
    packed = dict(others)
    for name, matrix in matrices.items():
        form = ugrid.pack(matrix)
        packed[name + CODES_SUFFIX] = RawTensor("U8", form.codes)
        packed[name + EXPONENTS_SUFFIX] = RawTensor("I8", form.exponents)
    return packed


def packed_matrices(packed: Mapping[str, RawTensor]) -> dict[str, ugrid.PackedMatrix]:
    """Every grid matrix in its packed form, by tensor name."""
    return {
        name: ugrid.PackedMatrix(packed[key].array, packed[name + EXPONENTS_SUFFIX].array)
        for key in packed
        if key.endswith(CODES_SUFFIX) and (name := key.removesuffix(CODES_SUFFIX))
    }


def other_tensors(packed: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """Embedding, head, norms, routers, biases: everything that is not on the grid."""
    return {name: tensor for name, tensor in packed.items() if not name.endswith((CODES_SUFFIX, EXPONENTS_SUFFIX))}
