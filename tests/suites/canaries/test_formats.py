"""Every weight format of every canary holds bit for bit the bf16 weights; decoded here by code of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pytest

from suites.canaries import zoo
from suites.canaries.formats import FormatError, e4m3_bits, formats_of
from suites.canaries.tensorfile import RawTensor, read_tensors

CASES = [(name, weight_format) for name in zoo.MANIFEST_SHA256 for weight_format in zoo.weight_formats(name)]
QUANTISED = [case for case in CASES if case[1] != "bf16"]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
Tensors = dict[str, RawTensor]
Floats = dict[str, np.ndarray]


def e4m3(code: int) -> float:
    """One FP8 e4m3 value from its bits: 1 sign, 4 exponent (bias 7), 3 mantissa."""
    sign, exponent, mantissa = -1.0 if code & 0x80 else 1.0, (code >> 3) & 15, code & 7
    if (code & 0x7F) == 0x7F:
        return math.nan
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


E4M3 = np.array([e4m3(code) for code in range(256)], dtype=np.float32)


def bf16(tensor: RawTensor) -> np.ndarray:
    assert tensor.dtype == "BF16"
    return (tensor.array.astype(np.uint32) << 16).view(np.float32)


def e2m1_pairs(packed: np.ndarray) -> np.ndarray:
    """Two values a byte, the first in the low nibble, along the last dimension."""
    return np.stack([E2M1[packed & 15], E2M1[packed >> 4]], axis=-1).reshape(*packed.shape[:-1], -1)


def scaled(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Each scale belongs to a block of equally many values of the last dimension."""
    blocks = values.reshape(*scales.shape, -1)
    return (blocks * scales[..., None]).reshape(values.shape)


@lru_cache(maxsize=4)
def files(name: str) -> dict[str, bytes]:
    manifest = json.loads(zoo.tracked_file(name, zoo.MANIFEST) or b"")
    return {file: zoo.tracked_file(name, file) or b"" for file in manifest["tracked"]}


def checkpoint(name: str, weight_format: str) -> tuple[dict[str, object], Tensors]:
    produced = zoo.expand(files(name), weight_format)
    return json.loads(produced[zoo.CONFIG]), read_tensors(produced[zoo.MODEL_FILE])


def decoded(weight_format: str, tensors: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    """(bf16 name, float32 values) of every quantised matrix."""
    for name, tensor in tensors.items():
        base = name.rsplit(".", 1)[0]
        if name.endswith(".weight") and tensor.dtype == "F8_E4M3":
            yield name, E4M3[tensor.array] * bf16(tensors[f"{base}.weight_scale"])
        elif name.endswith(".weight_packed") and tensor.dtype == "I32":
            words = tensor.array.view(np.uint32)
            integers = np.stack([(words >> np.uint32(4 * i)) & np.uint32(15) for i in range(8)], axis=-1).astype(np.float32) - 8
            values = scaled(integers.reshape(words.shape[0], -1), bf16(tensors[f"{base}.weight_scale"]))
            assert tuple(tensors[f"{base}.weight_shape"].array) == values.shape
            yield f"{base}.weight", values
        elif name.endswith(".weight_packed") and weight_format.startswith("nvfp4"):
            scales = E4M3[tensors[f"{base}.weight_scale"].array] / tensors[f"{base}.weight_global_scale"].array
            yield f"{base}.weight", scaled(e2m1_pairs(tensor.array), scales)
        elif name.endswith(".weight_packed"):
            scales = np.exp2(tensors[f"{base}.weight_scale"].array.astype(np.float32) - 127)
            yield f"{base}.weight", scaled(e2m1_pairs(tensor.array), scales)
        elif name.endswith("_blocks"):
            stem = name.removesuffix("_blocks")
            scales = np.exp2(tensors[f"{stem}_scales"].array.astype(np.float32) - 127)
            values = e2m1_pairs(tensor.array) * scales[..., None]
            yield stem, values.reshape(*values.shape[:2], -1).transpose(0, 2, 1)


@pytest.mark.parametrize(("name", "weight_format"), QUANTISED)
def test_dequantised_weights_equal_the_bf16_weights_exactly(name: str, weight_format: str) -> None:
    _, exact = checkpoint(name, "bf16")
    _, tensors = checkpoint(name, weight_format)
    found: Floats = dict(decoded(weight_format, tensors))
    for matrix, values in found.items():
        assert np.array_equal(values, bf16(exact[matrix])), matrix
    untouched = set(exact) - set(found)
    assert all(tensors[other].array.tobytes() == exact[other].array.tobytes() for other in untouched)
    quantised = {
        n
        for n in exact
        if n.endswith("_proj.weight") or ".in_proj_qkv" in n or ".in_proj_z" in n or n.endswith(("gate_up_proj", "down_proj"))
    }
    if weight_format == "mxfp4":
        quantised = {n for n in quantised if ".experts." in n}
    assert set(found) == quantised


@pytest.mark.parametrize(("name", "weight_format"), QUANTISED)
def test_every_tensor_is_a_known_part_of_the_format_or_a_bf16_tensor(name: str, weight_format: str) -> None:
    _, exact = checkpoint(name, "bf16")
    _, tensors = checkpoint(name, weight_format)
    parts = (".weight", "_packed", "_scale", "_shape", "_blocks", "_scales")
    assert [n for n in tensors if n not in exact and not n.endswith(parts)] == []


@pytest.mark.parametrize(("name", "weight_format"), [case for case in QUANTISED if case[1] != "mxfp4"])
def test_config_ignores_exactly_the_layers_that_stayed_bf16(name: str, weight_format: str) -> None:
    config, tensors = checkpoint(name, weight_format)
    quantization = config["quantization_config"]
    assert isinstance(quantization, dict)
    bf16_layers = {
        n.removesuffix(".weight")
        for n, t in tensors.items()
        if n.endswith(".weight") and t.dtype == "BF16" and t.array.ndim >= 2 and n != "model.embed_tokens.weight"
    }
    assert set(quantization["ignore"]) == bf16_layers
    assert quantization["config_groups"]["group_0"]["format"] == quantization["format"]


@pytest.mark.parametrize("name", [name for name, weight_format in CASES if weight_format == "nvfp4"])
def test_nvfp4_has_one_global_scale_and_a_power_of_two_input_scale_per_layer_input(name: str) -> None:
    _, tensors = checkpoint(name, "nvfp4")
    assert len({float(t.array[0]) for n, t in tensors.items() if n.endswith(".weight_global_scale")}) == 1
    inputs = {n: float(t.array[0]) for n, t in tensors.items() if n.endswith(".input_global_scale")}
    assert inputs and all(math.frexp(scale)[0] == 0.5 for scale in inputs.values())
    for base in {n.rsplit("gate_proj", 1)[0] for n in inputs if ".gate_proj." in n}:
        assert inputs[f"{base}gate_proj.input_global_scale"] == inputs[f"{base}up_proj.input_global_scale"]


def test_native_mxfp4_has_the_shapes_of_the_published_model() -> None:
    """Blocks of 32 values as 16 bytes, one exponent per block, per expert and output row (hidden size 256, intermediate size 256)."""
    config, tensors = checkpoint("gpt-oss", "mxfp4")
    assert config["quantization_config"]["quant_method"] == "mxfp4"  # type: ignore[index]
    prefix = "model.layers.0.mlp.experts"
    assert tensors[f"{prefix}.gate_up_proj_blocks"].array.shape == (8, 512, 8, 16)
    assert tensors[f"{prefix}.gate_up_proj_scales"].array.shape == (8, 512, 8)
    assert tensors[f"{prefix}.down_proj_blocks"].array.shape == (8, 256, 8, 16)
    assert tensors[f"{prefix}.down_proj_bias"].array.shape == (8, 256)


@pytest.mark.parametrize("name", zoo.MANIFEST_SHA256)
def test_quantised_dimensions_are_legal_for_fp4_kernels(name: str) -> None:
    _, exact = checkpoint(name, "bf16")
    _, tensors = checkpoint(name, zoo.weight_formats(name)[-1])
    for matrix, _ in decoded(zoo.weight_formats(name)[-1], tensors):
        assert all(size % 128 == 0 for size in exact[matrix].array.shape[-2:]), matrix


@pytest.mark.parametrize("name", zoo.MANIFEST_SHA256)
def test_manifest_lists_every_format_of_the_family(name: str) -> None:
    config = json.loads(files(name)[zoo.CONFIG])
    assert zoo.weight_formats(name) == formats_of(config["model_type"])


def test_packed_files_of_all_canaries_take_at_most_15_mb() -> None:
    assert sum(len(files(name)[zoo.PACKED_WEIGHTS]) for name in zoo.MANIFEST_SHA256) <= 15_000_000


def test_all_e4m3_values_round_trip() -> None:
    finite = E4M3[~np.isnan(E4M3)]
    assert np.array_equal(E4M3[e4m3_bits(finite)], finite)
    assert np.array_equal(np.signbit(E4M3[e4m3_bits(finite)]), np.signbit(finite))


@pytest.mark.parametrize("value", [1.0625, 449.0, 2.0**-10, 480.0])
def test_a_value_that_e4m3_would_round_is_refused(value: float) -> None:
    with pytest.raises(FormatError, match="not exact"):
        e4m3_bits(np.array([value], dtype=np.float32))
