"""Faults that kernels, loaders and caches of real engines had, each as a change of one checkpoint.

The trap: a gate is tuned on the three faults that somebody thought of. The rule: every family of fault that was reported is here in a gross
and in a subtle form, in the format it belongs to, so that the table of what is caught also shows what is not.

Weight faults take tensors of any weight format that they name (``formats``); bf16 ones also stand for a kernel that computes wrongly with
right weights, because the result is the same. Configuration faults stand for an engine that reads a setting wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suites.canaries.tensorfile import RawTensor

Tensors = dict[str, RawTensor]
Config = dict[str, Any]
Floats = npt.NDArray[np.float32]
Change = Callable[[Floats], Floats]

_PROJECTIONS = r"\.(?:q|k|v|o|gate|up|down)_proj"
_INT4_ZEROS = np.int32(np.uint32(0x88888888).astype(np.int32))
"""Eight INT4 values of 0, stored with an offset of 8."""
_HEAD = 64
_K_BLOCK = 16


class FaultError(ValueError):
    """The checkpoint has nothing that this fault could change."""


@dataclass(frozen=True)
class WeightFault:
    """``change`` alters copies of the tensors in place; ``formats`` are the weight formats that it is defined for."""

    what: str
    change: Callable[[Tensors], None]
    formats: tuple[str, ...] = ("bf16",)
    experts_only: bool = False


def _names(tensors: Tensors, pattern: str) -> list[str]:
    found = [name for name in tensors if re.search(pattern, name)]
    if not found:
        raise FaultError(f"no tensor matches {pattern!r}")
    return found


def _floats(tensor: RawTensor) -> Floats:
    return (tensor.array.astype(np.uint32) << 16).view(np.float32)


def _bf16(values: Floats) -> RawTensor:
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return RawTensor("BF16", np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16))


def _each(pattern: str, change: Change) -> Callable[[Tensors], None]:
    """A change of every bf16 tensor whose name matches."""

    def apply(tensors: Tensors) -> None:
        for name in _names(tensors, pattern):
            tensors[name] = _bf16(change(_floats(tensors[name]).copy()))

    return apply


def _one(value: float) -> Change:
    def change(w: Floats) -> Floats:
        w[5, 7] = value
        return w

    return change


def _rows_identical(w: Floats) -> Floats:
    return np.broadcast_to(w[:1], w.shape).copy()


def _pairs_swapped(w: Floats) -> Floats:
    return w.reshape(w.shape[0], -1, 2)[:, :, ::-1].reshape(w.shape).copy()


def _scales_shifted(w: Floats) -> Floats:
    blocks = w.reshape(w.shape[0], -1, _K_BLOCK)
    scales = np.maximum(np.abs(blocks).max(axis=2, keepdims=True), 1e-9)
    return np.asarray(blocks / scales * np.roll(scales, 1, axis=0), dtype=np.float32).reshape(w.shape)


def _k_block_lost(w: Floats) -> Floats:
    w[:, -_K_BLOCK:] = 0
    return w


def _tile_lost(w: Floats) -> Floats:
    w[64:72] = 0
    return w


def _heads_rolled(w: Floats) -> Floats:
    return np.roll(w, _HEAD, axis=0)


def _noise(share: float) -> Change:
    def change(w: Floats) -> Floats:
        spread = share * float(np.sqrt(np.mean(w * w)))
        return np.asarray(w + np.random.default_rng(1).normal(0, spread, w.shape), dtype=np.float32)

    return change


def _times(factor: float) -> Change:
    return lambda w: w * np.float32(factor)


def _swap(left: str, right: str, layers: str = r"\d+") -> Callable[[Tensors], None]:
    """Two tensors of each layer, exchanged; ``left`` and ``right`` are parts of names that differ in nothing else."""

    def apply(tensors: Tensors) -> None:
        for name in _names(tensors, rf"\.layers\.{layers}\..*{re.escape(left)}"):
            other = name.replace(left, right)
            tensors[name], tensors[other] = tensors[other], tensors[name]

    return apply


def _softmax(factor: float) -> Callable[[Tensors], None]:
    """Queries scaled: by their norm, or by their projection in a model without one."""

    def apply(tensors: Tensors) -> None:
        norms = any(name.endswith(".self_attn.q_norm.weight") for name in tensors)
        _each(rf"\.self_attn\.{'q_norm.weight' if norms else 'q_proj.(?:weight|bias)'}$", _times(factor))(tensors)

    return apply


def _raw(pattern: str, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Callable[[Tensors], None]:
    """A change of the stored bits of quantised tensors."""

    def apply(tensors: Tensors) -> None:
        for name in _names(tensors, pattern):
            before = tensors[name]
            tensors[name] = RawTensor(before.dtype, np.ascontiguousarray(change(before.array.copy()), dtype=before.array.dtype))

    return apply


def _int4_nibbles(words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    bits = words.view(np.uint32)
    return (((bits & 0x0F0F0F0F) << 4) | ((bits >> 4) & 0x0F0F0F0F)).view(np.int32)


def _int4_tail(words: npt.NDArray[Any]) -> npt.NDArray[Any]:
    words[:, -2:] = _INT4_ZEROS
    return words


def _fp4_nibbles(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return ((codes & 0x0F) << 4) | (codes >> 4)


def _fp4_tail(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    codes[:, -_K_BLOCK // 2 :] = 0
    return codes


def _next_row(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.roll(array, 1, axis=0)


def _bf16_times(factor: float) -> Callable[[Tensors], None]:
    return _each(rf"\.layers\.0\..*{_PROJECTIONS}\.weight_scale$", _times(factor))


def _fp8_nan(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    codes[5, 7] = 0x7F
    return codes


def _linear(layer: int | str, part: str = "[a-z]") -> str:
    return rf"\.layers\.{layer}\..*\.{part}+_proj\.weight$"


_DOWN1 = r"\.layers\.1\..*\.down_proj\.weight$"
_DOWN2 = r"\.layers\.2\..*\.down_proj\.weight$"
_EXPERT = r"\.layers\.1\.mlp\.experts\.3\."
_PACKED, _SCALE = rf"{_PROJECTIONS}\.weight_packed$", rf"{_PROJECTIONS}\.weight_scale$"

WEIGHT_FAULTS: dict[str, WeightFault] = {
    "nan_v2": WeightFault("one NaN in v_proj of layer 2", _each(r"\.layers\.2\.self_attn\.v_proj\.weight$", _one(float("nan")))),
    "gate_up_swap_1": WeightFault("gate and up swapped in layer 1", _swap(".gate_proj.", ".up_proj.", "1")),
    "rows_identical_down1": WeightFault("every row of down_proj of layer 1 is the first", _each(_DOWN1, _rows_identical)),
    "rows_identical_v3": WeightFault(
        "every row of v_proj of layer 3 is the first", _each(r"\.layers\.3\.self_attn\.v_proj\.weight$", _rows_identical)
    ),
    "scale_double_layer0": WeightFault("all linears of layer 0 x2", _each(_linear(0), _times(2))),
    "scale_105_layer0": WeightFault("all linears of layer 0 x1.05", _each(_linear(0), _times(1.05))),
    "scale_half_layer2": WeightFault("all linears of layer 2 x0.5", _each(_linear(2), _times(0.5))),
    "scale_half_layer3": WeightFault("all linears of the last layer x0.5", _each(_linear(3), _times(0.5))),
    "scale_105_all": WeightFault("all linears x1.05", _each(_linear(r"\d+"), _times(1.05))),
    "scale_half_down2": WeightFault("down_proj of layer 2 x0.5", _each(_DOWN2, _times(0.5))),
    "scale_105_down2": WeightFault("down_proj of layer 2 x1.05", _each(_DOWN2, _times(1.05))),
    "scale_half_v2": WeightFault("v_proj of layer 2 x0.5", _each(r"\.layers\.2\.self_attn\.v_proj\.weight$", _times(0.5))),
    "nibbles_swapped_down1": WeightFault("inputs 2k and 2k+1 swapped in down_proj of layer 1", _each(_DOWN1, _pairs_swapped)),
    "block_scales_shifted_down1": WeightFault("block scales of the next row in down_proj of layer 1", _each(_DOWN1, _scales_shifted)),
    "block_scales_shifted": WeightFault("block scales of the next row, all linears", _each(_linear(r"\d+"), _scales_shifted)),
    "k_block_lost_down2": WeightFault("last 16 inputs not accumulated in down_proj of layer 2", _each(_DOWN2, _k_block_lost)),
    "k_block_lost": WeightFault("last 16 inputs not accumulated, all linears", _each(_linear(r"\d+"), _k_block_lost)),
    "tile_lost_o2": WeightFault("8 rows of o_proj of layer 2 are zero", _each(r"\.layers\.2\.self_attn\.o_proj\.weight$", _tile_lost)),
    "last_layer_skipped": WeightFault("the last layer adds nothing", _each(r"\.layers\.3\..*\.(?:o|down)_proj\.weight$", _times(0))),
    "kv_heads_rolled": WeightFault("KV heads rolled by one", _each(r"\.self_attn\.[kv]_proj\.weight$", _heads_rolled)),
    "softmax_scale_105": WeightFault("softmax scale x1.05", _softmax(1.05)),
    "softmax_scale_eighth": WeightFault("softmax scale 1/head_dim", _softmax(1 / 8)),
    "noise_2": WeightFault("Gaussian noise of 2 % in all linears", _each(_linear(r"\d+"), _noise(0.02))),
    "noise_10": WeightFault("Gaussian noise of 10 % in all linears", _each(_linear(r"\d+"), _noise(0.10))),
    "nan_expert": WeightFault(
        "one NaN in expert 3 of layer 1", _each(_EXPERT + r"down_proj\.weight$", _one(float("nan"))), experts_only=True
    ),
    "experts_swapped_2": WeightFault("experts 1 and 5 of layer 2 exchanged", _swap(".experts.1.", ".experts.5.", "2"), experts_only=True),
    "experts_swapped_last": WeightFault(
        "experts 0 and 7 of the last layer exchanged", _swap(".experts.0.", ".experts.7.", "3"), experts_only=True
    ),
    "expert_zero": WeightFault(
        "expert 3 of layer 1 is never computed", _each(_EXPERT + r"down_proj\.(?:weight|bias)$", _times(0)), experts_only=True
    ),
    "expert_rows_identical": WeightFault(
        "expert 3 of layer 1: rows identical", _each(_EXPERT + r"down_proj\.weight$", _rows_identical), experts_only=True
    ),
    "expert_scale_double": WeightFault(
        "expert 3 of layer 1: down_proj x2", _each(_EXPERT + r"down_proj\.weight$", _times(2)), experts_only=True
    ),
    "expert_scale_105": WeightFault(
        "expert 3 of layer 1: down_proj x1.05", _each(_EXPERT + r"down_proj\.weight$", _times(1.05)), experts_only=True
    ),
    "int4_nibbles_swapped": WeightFault("INT4 nibbles in the wrong order", _raw(_PACKED, _int4_nibbles), ("int4",)),
    "int4_scales_shifted": WeightFault("group scales of the next row, all linears", _raw(_SCALE, _next_row), ("int4",)),
    "int4_k_block_lost": WeightFault("last 16 inputs not accumulated, all linears", _raw(_PACKED, _int4_tail), ("int4",)),
    "int4_scale_double_layer0": WeightFault("scales of layer 0 x2", _bf16_times(2), ("int4", "fp8")),
    "int4_scale_half_layer0": WeightFault("scales of layer 0 x0.5", _bf16_times(0.5), ("int4", "fp8")),
    "fp8_nan": WeightFault("one NaN code in down_proj of layer 1", _raw(_DOWN1, _fp8_nan), ("fp8",)),
    "fp8_scales_shifted": WeightFault("row scales of the next row, all linears", _raw(_SCALE, _next_row), ("fp8",)),
    "fp4_nibbles_swapped": WeightFault("FP4 nibbles in the wrong order", _raw(_PACKED, _fp4_nibbles), ("nvfp4", "nvfp4a16", "mxfp4a16")),
    "fp4_scales_shifted": WeightFault(
        "block scales of the next row, all linears", _raw(_SCALE, _next_row), ("nvfp4", "nvfp4a16", "mxfp4a16")
    ),
    "fp4_k_block_lost": WeightFault(
        "last 16 inputs not accumulated, all linears", _raw(_PACKED, _fp4_tail), ("nvfp4", "nvfp4a16", "mxfp4a16")
    ),
    "nvfp4_global_scale_double": WeightFault(
        "global scale of layer 0 x2", _raw(r"\.layers\.0\..*weight_global_scale$", lambda s: s / 2), ("nvfp4", "nvfp4a16")
    ),
}
"""Name to fault, in the order of the table."""


def _rope(theta: float) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        config["rope_theta"] = theta
        if isinstance(config.get("rope_parameters"), dict):
            config["rope_parameters"] = {**config["rope_parameters"], "rope_theta": theta}

    return change


def _window(size: int) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        if not isinstance(config.get("layer_types"), list):
            raise FaultError("this model's configuration has no attention window")
        config |= {"use_sliding_window": True, "sliding_window": size, "max_window_layers": 0}
        config["layer_types"] = ["sliding_attention"] * len(config["layer_types"])

    return change


def _setting(key: str, value: Any) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        if key not in config:
            raise FaultError(f"this model's configuration has no {key}")
        config[key] = value

    return change


CONFIG_FAULTS: dict[str, tuple[str, Callable[[Config], None]]] = {
    "rope_theta_9000": ("rope theta 9000 instead of 10000", _rope(9_000.0)),
    "rope_theta_20000": ("rope theta 20000 instead of 10000", _rope(20_000.0)),
    "rope_theta_1e6": ("rope theta 1e6 instead of 10000", _rope(1e6)),
    "window_16": ("attention window 16: older KV is not seen", _window(16)),
    "window_128": ("attention window 128: older KV is not seen", _window(128)),
    "window_256": ("attention window 256: older KV is not seen", _window(256)),
    "top1_routing": ("one expert a token instead of two", _setting("num_experts_per_tok", 1)),
    "topk_not_renormalised": ("weights of the chosen experts are not renormalised", _setting("norm_topk_prob", False)),
}
"""Name to (what, change of config.json)."""

TEMPLATE_FAULTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "template_without_bos": ("the chat template leaves the BOS token out", lambda text: text.replace("{{ bos_token }}", "")),
    "template_two_bos": (
        "the chat template writes the BOS token twice",
        lambda text: text.replace("{{ bos_token }}", "{{ bos_token }}" * 2),
    ),
    "template_wrong_role": ("the chat template calls the user the system", lambda text: text.replace("m['role']", "'system'")),
}
"""Name to (what, change of chat_template.jinja)."""


def names_for(weight_format: str, *, has_experts: bool) -> Iterable[str]:
    """Names of the weight faults that a checkpoint of this format and kind can have."""
    return [name for name, fault in WEIGHT_FAULTS.items() if weight_format in fault.formats and (has_experts or not fault.experts_only)]
