"""Safetensors bytes: the same on every machine, readable by the library, and damage has a name."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from suites.canaries.tensorfile import RawTensor, TensorFileError, read_tensors, write_tensors

EXAMPLE = {
    "b": RawTensor("F32", np.arange(6, dtype="<f4").reshape(2, 3)),
    "a": RawTensor("BF16", np.array([0x3F80, 0x7FC0], dtype="<u2")),
    "c": RawTensor("U8", np.arange(5, dtype="u1")),
}


def test_written_tensors_read_back_with_dtype_shape_and_bits() -> None:
    read = read_tensors(write_tensors(EXAMPLE))
    assert {name: (t.dtype, t.array.shape, t.array.tobytes()) for name, t in read.items()} == {
        name: (t.dtype, t.array.shape, t.array.tobytes()) for name, t in EXAMPLE.items()
    }


def test_the_library_reads_what_we_write() -> None:
    arrays = load(write_tensors({"b": EXAMPLE["b"], "c": EXAMPLE["c"]}))
    assert arrays["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["c"].tolist() == [0, 1, 2, 3, 4]


def test_order_of_insertion_does_not_change_the_bytes() -> None:
    assert write_tensors(EXAMPLE) == write_tensors(dict(reversed(EXAMPLE.items())))


def test_tensor_data_starts_at_a_multiple_of_eight() -> None:
    data = write_tensors(EXAMPLE)
    header_bytes = int.from_bytes(data[:8], "little")
    assert header_bytes % 8 == 0
    assert json.loads(data[8 : 8 + header_bytes])["__metadata__"] == {"format": "pt"}


@given(st.binary(max_size=200))
def test_bytes_that_are_no_tensor_file_are_refused(data: bytes) -> None:
    with pytest.raises(TensorFileError):
        read_tensors(b"\xff" + data)


def test_truncated_file_is_refused() -> None:
    with pytest.raises(TensorFileError):
        read_tensors(write_tensors(EXAMPLE)[:-1])


def test_dtype_that_no_canary_uses_is_refused() -> None:
    header = json.dumps({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    with pytest.raises(TensorFileError, match="F64"):
        read_tensors(len(header).to_bytes(8, "little") + header + bytes(8))


def test_array_that_does_not_fit_its_dtype_is_refused() -> None:
    with pytest.raises(TensorFileError):
        RawTensor("BF16", np.zeros(2, dtype=np.float32))
