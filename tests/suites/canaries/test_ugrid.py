"""The universal grid: packing is bit-exact, every format can hold the values, and damage is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suites.canaries import ugrid

MAGNITUDES = np.array([0, 1, 2, 3, 4, 6], dtype=np.float32)


@st.composite
def grid_matrices(draw: st.DrawFn) -> ugrid.Float32:
    """Random matrices on the grid, with groups that use only part of it and groups of zeros."""
    rows, groups = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    largest = draw(st.integers(0, len(MAGNITUDES) - 1))
    magnitudes = MAGNITUDES[rng.integers(0, largest + 1, size=(rows, groups, ugrid.GROUP_SIZE))]
    signs = np.where(magnitudes > 0, rng.choice([-1.0, 1.0], size=magnitudes.shape), 1.0).astype(np.float32)
    exponents = rng.integers(-90, 91, size=(rows, groups, 1))
    matrix: ugrid.Float32 = np.ldexp(magnitudes * signs, exponents).astype(np.float32)
    return matrix.reshape(rows, -1)


@given(grid_matrices())
def test_pack_and_unpack_give_the_same_bits(matrix: ugrid.Float32) -> None:
    packed = ugrid.pack(matrix)
    assert packed.codes.nbytes == matrix.size // 2
    assert ugrid.unpack(packed).tobytes() == matrix.tobytes()


@given(grid_matrices())
def test_grid_values_are_exact_in_bfloat16(matrix: ugrid.Float32) -> None:
    bits = ugrid.bfloat16_bits(matrix)
    assert (bits.astype(np.uint32) << 16).view(np.float32).tobytes() == matrix.tobytes()


@given(grid_matrices())
def test_quantising_a_matrix_on_the_grid_changes_nothing(matrix: ugrid.Float32) -> None:
    assert ugrid.quantise(matrix).tobytes() == matrix.tobytes()


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_quantised_matrices_pack_and_stay_within_the_rounding_of_the_grid(seed: int, scale: float) -> None:
    weight = (np.random.default_rng(seed).normal(size=(4, 256)) * scale).astype(np.float32)
    quantised = ugrid.quantise(weight)
    assert ugrid.unpack(ugrid.pack(quantised)).tobytes() == quantised.tobytes()
    step = np.ldexp(1.0, ugrid.pack(quantised).exponents.astype(np.int32)).repeat(ugrid.GROUP_SIZE, axis=1)
    assert np.all(np.abs(quantised - weight) <= 1.5 * step)


def test_low_nibble_holds_the_even_input() -> None:
    matrix = np.zeros((1, 128), dtype=np.float32)
    matrix[0, 0], matrix[0, 1] = 6.0, -1.0
    packed = ugrid.pack(matrix)
    assert packed.exponents.tolist() == [[0]]
    assert packed.codes[0, 0] == 0b1010_0111  # -1 is e2m1 code 10 (high), 6 is code 7 (low)


def test_group_of_zeros_does_not_widen_the_range_of_exponents() -> None:
    matrix = np.zeros((2, 256), dtype=np.float32)
    matrix[0, :128] = 6 * 2.0**-7
    assert np.unique(ugrid.pack(matrix).exponents).tolist() == [-7]


@pytest.mark.parametrize("value", [5.0, 1.5, 7.0, 0.3, float("nan"), float("inf"), -0.0])
def test_value_off_the_grid_is_refused(value: float) -> None:
    matrix = np.full((1, 128), 6.0, dtype=np.float32)
    matrix[0, 3] = value
    with pytest.raises(ugrid.NotOnGridError):
        ugrid.pack(matrix)


@pytest.mark.parametrize("code", [1, 3, 8, 9, 11])
@pytest.mark.parametrize("shift", [0, 4])
def test_code_that_the_grid_has_not_is_refused(code: int, shift: int) -> None:
    packed = ugrid.pack(np.full((1, 128), 6.0, dtype=np.float32))
    codes = packed.codes.copy()
    codes[0, 5] = code << shift
    with pytest.raises(ugrid.NotOnGridError):
        ugrid.unpack(ugrid.PackedMatrix(codes, packed.exponents))


@pytest.mark.parametrize("shape", [(128,), (2, 100), (2, 3, 128)])
def test_matrix_of_a_wrong_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ugrid.NotOnGridError):
        ugrid.quantise(np.ones(shape, dtype=np.float32))


def test_value_that_bfloat16_would_round_is_refused() -> None:
    with pytest.raises(ugrid.NotOnGridError):
        ugrid.bfloat16_bits(np.array([1.0, 1.001], dtype=np.float32))
