"""Faults for tests: each changes what it says and nothing else, and the original stays whole."""

from pathlib import Path

import numpy as np
import pytest

from suites.canaries import zoo
from suites.canaries.corrupt import FAULTS, CorruptionError, apply_fault, write_corrupted
from suites.canaries.tensorfile import RawTensor, read_tensors

Tensors = dict[str, RawTensor]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.materialise("dense", "bf16", tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="module")
def healthy(checkpoint: Path) -> Tensors:
    return read_tensors((checkpoint / zoo.MODEL_FILE).read_bytes())


def as_float32(tensor: RawTensor) -> np.ndarray:
    return (tensor.array.astype(np.uint32) << 16).view(np.float32)


def changed(healthy: Tensors, broken: Tensors) -> set[str]:
    assert set(healthy) == set(broken)
    return {name for name in healthy if not np.array_equal(healthy[name].array, broken[name].array)}


@pytest.mark.parametrize(("fault", "expected"), [("nan_weight", np.isnan), ("inf_weight", np.isposinf)])
def test_one_weight_is_not_finite(healthy: Tensors, fault: str, expected: np.ufunc) -> None:
    broken = apply_fault(healthy, fault)
    name = "model.layers.1.mlp.down_proj.weight"
    assert changed(healthy, broken) == {name}
    assert np.count_nonzero(expected(as_float32(broken[name]))) == 1
    assert np.count_nonzero(healthy[name].array != broken[name].array) == 1


def test_gate_and_up_are_swapped_in_every_layer(healthy: Tensors) -> None:
    broken = apply_fault(healthy, "gate_up_swap")
    assert len(changed(healthy, broken)) == 8
    for layer in range(4):
        gate, up = (f"model.layers.{layer}.mlp.{part}_proj.weight" for part in ("gate", "up"))
        assert np.array_equal(broken[gate].array, healthy[up].array)
        assert np.array_equal(broken[up].array, healthy[gate].array)


def test_all_linears_of_layer_0_are_halved(healthy: Tensors) -> None:
    broken = apply_fault(healthy, "scale_half_layer0")
    names = changed(healthy, broken)
    assert len(names) == 7
    assert all(".layers.0." in name for name in names)
    for name in names:
        assert np.array_equal(as_float32(broken[name]), as_float32(healthy[name]) / 2)


def test_neighbouring_inputs_are_swapped_in_every_linear(healthy: Tensors) -> None:
    broken = apply_fault(healthy, "nibbles_swapped")
    names = changed(healthy, broken)
    assert len(names) == 28
    for name in names:
        assert np.array_equal(broken[name].array[:, 0::2], healthy[name].array[:, 1::2])
        assert np.array_equal(broken[name].array[:, 1::2], healthy[name].array[:, 0::2])


def test_all_rows_of_one_projection_are_the_first(healthy: Tensors) -> None:
    broken = apply_fault(healthy, "rows_identical_o1")
    (name,) = changed(healthy, broken)
    assert name == "model.layers.1.self_attn.o_proj.weight"
    assert np.all(broken[name].array == healthy[name].array[0])


@pytest.mark.parametrize("fault", FAULTS)
def test_original_tensors_and_files_stay_as_they_were(healthy: Tensors, checkpoint: Path, tmp_path: Path, fault: str) -> None:
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    bits = {name: tensor.array.tobytes() for name, tensor in healthy.items()}
    apply_fault(healthy, fault)
    folder = write_corrupted(checkpoint, fault, tmp_path / fault)
    assert {name: tensor.array.tobytes() for name, tensor in healthy.items()} == bits
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {zoo.MODEL_FILE}


def test_existing_destination_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptionError, match="exists already"):
        write_corrupted(checkpoint, "nan_weight", tmp_path)


def test_destination_inside_the_original_is_refused(checkpoint: Path) -> None:
    with pytest.raises(CorruptionError, match="inside the original"):
        write_corrupted(checkpoint, "nan_weight", checkpoint / "broken")


def test_unknown_fault_is_refused_and_names_the_known_ones(healthy: Tensors) -> None:
    with pytest.raises(CorruptionError, match="nan_weight"):
        apply_fault(healthy, "gremlin")


@pytest.mark.parametrize(("fault", "part"), [("nan_weight", "down_proj"), ("gate_up_swap", "gate_proj")])
def test_checkpoint_without_the_tensor_is_refused_and_not_left_sound(healthy: Tensors, fault: str, part: str) -> None:
    with pytest.raises(CorruptionError, match=part):
        apply_fault({"lm_head.weight": healthy["lm_head.weight"]}, fault)
