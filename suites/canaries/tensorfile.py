"""Read and write safetensors files as raw arrays, byte for byte the same on every machine.

The trap: canary checkpoints are recognised by the sha256 of their files, but the `safetensors` writer orders tensors as
its own release likes, its raw interface changed in 0.8, and NumPy has no bfloat16. The rule: reading (of bytes that could
be anything) is the library's; writing is the twenty lines below, with tensors ordered by name, so that one packed canary
always expands to one file.

File layout (safetensors format): u64 little-endian header length, JSON header padded with spaces to 8 bytes, tensor data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors

_NUMPY_DTYPE = {"BF16": "<u2", "F32": "<f4", "U8": "|u1", "I8": "|i1", "I32": "<i4", "I64": "<i8", "F8_E4M3": "|u1"}
"""Storage of each safetensors dtype. NumPy lacks BF16 and F8_E4M3: their arrays hold the bit patterns."""


class TensorFileError(ValueError):
    """The bytes are not a safetensors file, or use a dtype that no canary has."""


@dataclass(frozen=True)
class RawTensor:
    """``dtype`` is the safetensors name; ``array`` has the tensor's shape and holds bit patterns for BF16 and F8_E4M3."""

    dtype: str
    array: npt.NDArray[Any]

    def __post_init__(self) -> None:
        stored = _NUMPY_DTYPE.get(self.dtype)
        if stored is None or self.array.dtype != np.dtype(stored):
            raise TensorFileError(f"dtype {self.dtype} cannot be stored as {self.array.dtype}")


def read_tensors(data: bytes) -> dict[str, RawTensor]:
    """Parse a safetensors file; raises `TensorFileError`."""
    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise TensorFileError(f"not a readable safetensors file: {error}") from error
    tensors: dict[str, RawTensor] = {}
    for name, entry in entries:
        stored = _NUMPY_DTYPE.get(entry["dtype"])
        if stored is None:
            raise TensorFileError(f"tensor {name!r} has dtype {entry['dtype']}, which no canary uses")
        array = np.frombuffer(bytes(entry["data"]), dtype=stored).reshape(entry["shape"])
        tensors[name] = RawTensor(entry["dtype"], array)
    return tensors


def write_tensors(tensors: Mapping[str, RawTensor]) -> bytes:
    """The file's bytes, tensors ordered by name."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    chunks: list[bytes] = []
    offset = 0
    for name in sorted(tensors):
        chunk = np.ascontiguousarray(tensors[name].array).tobytes()
        header[name] = {
            "dtype": tensors[name].dtype,
            "shape": list(tensors[name].array.shape),
            "data_offsets": [offset, offset + len(chunk)],
        }
        chunks.append(chunk)
        offset += len(chunk)
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return b"".join([len(encoded).to_bytes(8, "little"), encoded, *chunks])
