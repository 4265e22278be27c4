"""Break a canary on purpose: known faults in a copy of a checkpoint, for tests of everything that should notice.

The trap: a gate that has only ever seen healthy models may pass anything. The rule: each fault below is one that real
kernels had (NaN from one bad block, swapped gate and up halves, FP4 nibbles in the wrong order, a lost scale, a tile that
repeats one row), and a detector counts only if it was seen to fire on it. The original folder is never touched.

Not every fault changes the greedy text: ``rows_identical_o1`` and ``gate_up_swap`` may leave most answers intact and show
in the margins (distance to the runner-up) first.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suites.canaries.fault_catalogue import CONFIG_FAULTS, TEMPLATE_FAULTS, WEIGHT_FAULTS, FaultError
from suites.canaries.tensorfile import RawTensor, read_tensors, write_tensors

Tensors = dict[str, RawTensor]
Bits = npt.NDArray[np.uint16]

_NAN_BITS, _INF_BITS = np.uint16(0x7FC0), np.uint16(0x7F80)
_ONE_BINARY_EXPONENT = np.uint16(1 << 7)
_LINEAR_SUFFIX = "_proj.weight"
_FUSED = re.compile(r"(.*\.experts)\.(gate_up|down)_proj(_bias)?")
"""How gpt-oss stores all experts of a layer: ``[expert, in, out]``, gate and up in turns along ``out``; biases ``[expert, out]``."""


class CorruptionError(ValueError):
    """The fault is unknown, the checkpoint has no such tensor, or the destination is already taken."""


def apply_fault(tensors: Tensors, fault: str) -> Tensors:
    """A copy of ``tensors`` with one fault of the weights; the arrays passed in stay as they are."""
    change = FAULTS.get(fault) or (WEIGHT_FAULTS[fault].change if fault in WEIGHT_FAULTS else None)
    if change is None:
        raise CorruptionError(f"unknown fault {fault!r}; known: {', '.join((*FAULTS, *WEIGHT_FAULTS))}")
    copies = {part: RawTensor(t.dtype, array.copy()) for name, t in tensors.items() for part, array in _parts(name, t)}
    try:
        change(copies)
    except FaultError as error:
        raise CorruptionError(f"{fault}: {error}") from error
    return {name: _whole(name, t, copies) for name, t in tensors.items()}


def write_corrupted(checkpoint: Path, fault: str, destination: Path) -> Path:
    """Copy the folder ``checkpoint`` to ``destination`` with ``fault`` in its weights, configuration or chat template.

    Returns ``destination``; raises `CorruptionError` if nothing of that name can be broken there.
    """
    if destination.exists() or destination.resolve().is_relative_to(checkpoint.resolve()):
        raise CorruptionError(f"{destination} exists already or lies inside the original: choose a new folder")
    file, data = _broken_file(checkpoint, fault)
    shutil.copytree(checkpoint, destination)
    (destination / file).write_bytes(data)
    return destination


def _broken_file(checkpoint: Path, fault: str) -> tuple[str, bytes]:
    if fault in CONFIG_FAULTS:
        config = json.loads((checkpoint / "config.json").read_bytes())
        try:
            CONFIG_FAULTS[fault][1](config)
        except FaultError as error:
            raise CorruptionError(f"{fault}: {error}") from error
        return "config.json", json.dumps(config, indent=2).encode()
    if fault in TEMPLATE_FAULTS:
        before = (checkpoint / "chat_template.jinja").read_text(encoding="utf-8")
        after = TEMPLATE_FAULTS[fault][1](before)
        if after == before:
            raise CorruptionError(f"{fault}: the chat template has nothing of the kind")
        return "chat_template.jinja", after.encode()
    return "model.safetensors", write_tensors(apply_fault(read_tensors((checkpoint / "model.safetensors").read_bytes()), fault))


def _parts(name: str, tensor: RawTensor) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The tensor, or what other models would store of its experts: one matrix ``[out, in]`` each, so that a fault finds what it names."""
    fused = _FUSED.fullmatch(name)
    if fused is None:
        yield name, tensor.array
        return
    kind = "bias" if fused[3] else "weight"
    for expert, values in enumerate(tensor.array):
        prefix = f"{fused[1]}.{expert}"
        parts = {"down": values} if fused[2] == "down" else {"gate": values[..., ::2], "up": values[..., 1::2]}
        yield from ((f"{prefix}.{part}_proj.{kind}", array.T) for part, array in parts.items())


def _whole(name: str, like: RawTensor, parts: Tensors) -> RawTensor:
    """`_parts` put together again."""
    if _FUSED.fullmatch(name) is None:
        return parts[name]
    whole = like.array.copy()
    for part, view in _parts(name, RawTensor(like.dtype, whole)):
        view[...] = parts[part].array
    return RawTensor(like.dtype, whole)


def _bits(tensors: Tensors, name: str) -> Bits:
    tensor = tensors.get(name)
    if tensor is None or tensor.dtype != "BF16":
        raise CorruptionError(f"no BF16 tensor {name!r}: faults are defined for the dense bf16 checkpoint")
    return tensor.array


def _linear_names(tensors: Tensors, part: str = "") -> list[str]:
    found = [name for name in tensors if name.endswith(_LINEAR_SUFFIX) and part in name]
    if not found:  # a fault that changes nothing would be counted as one that nobody sees
        raise CorruptionError(f"this checkpoint has no linear weight whose name contains {part!r}")
    return found


def _nan_weight(tensors: Tensors) -> None:
    _bits(tensors, "model.layers.1.mlp.down_proj.weight")[5, 7] = _NAN_BITS


def _inf_weight(tensors: Tensors) -> None:
    _bits(tensors, "model.layers.1.mlp.down_proj.weight")[5, 7] = _INF_BITS


def _gate_up_swap(tensors: Tensors) -> None:
    """The fused gate/up matrix read in the other order, in every layer."""
    for gate_name in _linear_names(tensors, ".gate_proj"):
        up_name = gate_name.replace(".gate_proj", ".up_proj")
        tensors[gate_name], tensors[up_name] = tensors[up_name], tensors[gate_name]


def _scale_half_layer0(tensors: Tensors) -> None:
    """All linear weights of layer 0 halved (a scale lost or applied twice)."""
    for name in _linear_names(tensors, ".layers.0."):
        bits = _bits(tensors, name)
        nonzero = (bits & 0x7FFF) != 0
        bits[nonzero] -= _ONE_BINARY_EXPONENT


def _nibbles_swapped(tensors: Tensors) -> None:
    """Inputs 2k and 2k+1 exchanged in every linear: high and low FP4 nibble read in the wrong order."""
    for name in _linear_names(tensors):
        bits = _bits(tensors, name)
        bits[:] = bits.reshape(bits.shape[0], -1, 2)[:, :, ::-1].reshape(bits.shape)


def _rows_identical_o1(tensors: Tensors) -> None:
    """Every output row of layer 1's o_proj equals the first: a tile that never advances its row pointer."""
    bits = _bits(tensors, "model.layers.1.self_attn.o_proj.weight")
    bits[:] = bits[0].copy()


FAULTS: dict[str, Callable[[Tensors], None]] = {
    "nan_weight": _nan_weight,
    "inf_weight": _inf_weight,
    "gate_up_swap": _gate_up_swap,
    "scale_half_layer0": _scale_half_layer0,
    "nibbles_swapped": _nibbles_swapped,
    "rows_identical_o1": _rows_identical_o1,
}
"""Fault name to the function that writes it into a copy of the tensors."""
