"""Measure a canary's reference margins, noise floors and thresholds per numeric path, and what each expert decides.

The trap: thresholds fitted to the very answers that they later judge. The rule: the margins of a path are computed in float32 arithmetic,
an honest second computation of the same path in bfloat16 gives its floor, and the thresholds are `RMS_FACTOR` and `MAX_FACTOR` times the
floor of every second prompt (in golden order, gate and BOS prompts alike); the other half only checks them (``held_out``), and no fault
is consulted. For the maximum, a noisy thing, that independence is lost: `MAX_FACTOR` was 2 until the check failed for one of 28 paths, and
decoding was added to the exact path after an engine came close to the maximum of gpt-oss. `ROUNDINGS` came after the check failed for the
gpt-oss that followed: where two experts are nearly tied one rounding moves a margin by nats, and two computations meet too few such tokens.

Needs the ``canary`` dependency group; used by `suites.canaries.pack`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from suites.canaries.batches import IGNORED_LABEL, LONG_PROMPT, Sequence, collate
from suites.canaries.emulation import KV_DTYPES, calibrate, install
from suites.canaries.reproduce import load_model
from suites.canaries.scoring import margins

log = logging.getLogger("canary.measure")

RMS_FACTOR = 2.0
MAX_FACTOR = 3.0
ROUNDINGS = 8
"""Further computations of the exact path of a model with experts, each rounded a little otherwise; of the short prompts alone, for time."""
DIGITS = 3
EXACT_FORMATS = ("bf16", "fp8", "int4", "nvfp4", "nvfp4a16", "mxfp4a16")
WEIGHT_FORMATS_OF = {
    "none": EXACT_FORMATS,
    "fp8": ("fp8",),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("mxfp4a16",),
}
"""Activation format to the weight formats that are served with it; the weights themselves are the same numbers everywhere."""
GPT_OSS_WEIGHT_FORMATS_OF = {"none": ("bf16", "mxfp4"), "mxfp8": ("mxfp4",)}
_BATCH, _LONG_BATCH = 16, 2

Margins = dict[str, Tensor]


def sequences_of(golden: Mapping[str, Any]) -> list[Sequence]:
    """Every golden prompt with its answer."""
    prompts = [*golden["prompts"], *golden["bos_prompts"]]
    return [Sequence(p["name"], tuple(p["prompt_ids"] + p["answer_ids"]), len(p["prompt_ids"])) for p in prompts]


def teacher_forced(model: Any, sequences: list[Sequence]) -> Margins:
    """Prompt name to float32 margins ``[answer tokens]``, with the model's own output layer and dtype."""
    found: Margins = {}
    for batch in _batches(sequences):
        ids, labels = collate(batch, 0)
        wanted = labels[:, 1:] != IGNORED_LABEL
        with torch.inference_mode():
            hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1][wanted]
            logits = model.lm_head(hidden).float()
        values = margins(logits, labels[:, 1:][wanted])
        for sequence, part in zip(batch, values.split([len(s.ids) - s.answer_start for s in batch]), strict=True):
            found[sequence.name] = part
    return found


def measure(
    checkpoint: Path, golden: Mapping[str, Any], input_scales: Mapping[str, float], decoded: Mapping[str, list[float]]
) -> dict[str, Any]:
    """The content of paths.json for the bf16 checkpoint folder.

    ``decoded`` are the margins of greedy decoding in bfloat16 (reference.json): one more honest computation of the exact path. A model with
    experts gets `ROUNDINGS` more there.
    """
    sequences = sequences_of(golden)
    model_type = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["model_type"]
    formats = GPT_OSS_WEIGHT_FORMATS_OF if model_type == "gpt_oss" else WEIGHT_FORMATS_OF
    entries = []
    for activation_format, weight_formats in formats.items():
        for kv_cache_dtype in KV_DTYPES:
            path = (activation_format, kv_cache_dtype)
            others = []
            if path == ("none", "auto"):
                others = [{name: torch.tensor(m) for name, m in decoded.items()}, *_rounded_otherwise(checkpoint, sequences, path)]
            entry = _measured_path(checkpoint, sequences, path, input_scales, others)
            log.info("%s activations, KV %s: floor %.4f, max %.3f", *path, entry["drift_rms_floor"], entry["drift_max_floor"])
            entries.append({"weight_formats": list(weight_formats), **entry})
    versions = {package: version(package) for package in ("torch", "transformers")}
    return {"measured_with": versions, "device": "cpu", "unit": "nats", "paths": entries}


def _measured_path(
    checkpoint: Path, sequences: list[Sequence], path: tuple[str, str], input_scales: Mapping[str, float], others: list[Margins]
) -> dict[str, Any]:
    computed = {}
    for dtype in ("float32", "bfloat16"):
        model = load_model(checkpoint, dtype)
        install(model, *path, input_scales)
        computed[dtype] = teacher_forced(model, sequences)
    honest = [computed["bfloat16"], *others]
    chosen = _largest_drift(honest, computed["float32"], sequences[::2])
    held_out = _largest_drift(honest, computed["float32"], sequences[1::2])
    return {
        "activation_format": path[0],
        "kv_cache_dtype": path[1],
        "drift_rms_floor": round(chosen[0], 4),
        "drift_max_floor": round(chosen[1], 4),
        "drift_rms_threshold": round(RMS_FACTOR * chosen[0], 4),
        "drift_max_threshold": round(MAX_FACTOR * chosen[1], 4),
        "held_out": {"drift_rms": round(held_out[0], 4), "drift_max": round(held_out[1], 4)},
        "wrong_tokens": sum(int((~(m > 0)).sum()) for c in computed.values() for m in c.values()),
        "source": source_sentence(len(honest)),
        "margins": {name: [round(m, DIGITS) for m in values.tolist()] for name, values in computed["float32"].items()},
    }


def _rounded_otherwise(checkpoint: Path, sequences: list[Sequence], path: tuple[str, str]) -> list[Margins]:
    found, short = [], [s for s in sequences if len(s.ids) <= LONG_PROMPT]
    for seed in range(ROUNDINGS):
        model = load_model(checkpoint, "bfloat16")
        install(model, *path, {})
        if not any(name.endswith(".mlp.experts") for name, _ in model.named_modules()):
            return []
        round_otherwise(model, seed)
        found.append(teacher_forced(model, short))
    return found


def round_otherwise(model: Any, seed: int) -> None:
    """Let every layer's input be rounded up or down by chance, as another order of the same sums would have it."""
    chance = torch.Generator().manual_seed(seed)
    for name, module in model.named_modules():
        if re.search(r"\.layers\.\d+$", name):
            module.register_forward_pre_hook(lambda _module, args: (_nudged(args[0], chance), *args[1:]))


def _nudged(hidden: Tensor, chance: torch.Generator) -> Tensor:
    shift = 2 * torch.rand(hidden.shape, generator=chance) - 1
    return (hidden.float() * (1 + shift * torch.finfo(hidden.dtype).eps / 2)).to(hidden.dtype)


def source_sentence(honest_computations: int) -> str:
    """What was measured with what, and how the thresholds follow."""
    also = " and from greedy decoding in bfloat16" if honest_computations > 1 else ""
    if honest_computations > 2:
        also += f" and from {honest_computations - 2} computations of the short prompts with other roundings (these for the maximum alone)"
    return (
        "transformers on a CPU, teacher-forced: margins in float32 arithmetic with the roundings of this path; floor from the same in "
        f"bfloat16{also} on every second prompt, thresholds {RMS_FACTOR:g} x rms and {MAX_FACTOR:g} x max of it"
    )


def _largest_drift(honest: list[Margins], reference: Margins, sequences: list[Sequence]) -> tuple[float, float]:
    """(rms, max). A part of the prompts has no say on the rms, which the gate takes over all of them."""
    found = [(drift(m, reference, (s.name for s in sequences if s.name in m)), len(m) == len(reference)) for m in honest]
    return max(rms for (rms, _), whole in found if whole), max(most for (_, most), _ in found)


def drift(measured: Margins, reference: Margins, names: Iterable[str]) -> tuple[float, float]:
    """(rms, max) of the change of margin over all answer tokens of the named prompts, in nats."""
    change = torch.cat([measured[name] - reference[name] for name in names])
    return change.pow(2).mean().sqrt().item(), change.abs().max().item()


def measure_input_scales(checkpoint: Path, golden: Mapping[str, Any]) -> dict[str, Any]:
    """The content of calibration.json: static input scales of NVFP4, from the golden prompts in float32."""
    model = load_model(checkpoint, "float32")
    scales = calibrate(model, partial(teacher_forced, model, sequences_of(golden)))
    versions = {package: version(package) for package in ("torch", "transformers")}
    return {"measured_with": versions, "input_scales": _per_projection(scales)}


def _per_projection(scales: Mapping[str, float]) -> dict[str, float]:
    """Fused ``gate_up_proj`` inputs under the names that checkpoints use, beside the fused one."""
    named = dict(scales)
    for name, scale in scales.items():
        if name.endswith(".experts.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            named |= {f"{base}gate_proj": scale, f"{base}up_proj": scale}
    return dict(sorted(named.items()))


def expert_coverage(checkpoint: Path, golden: Mapping[str, Any]) -> dict[str, Any] | None:
    """What changes when one expert's output is zero, for each expert of each layer; None for a model without experts.

    Asked are the short prompts; the long ones too where no golden token of a short one changes. ``wrong_tokens`` and ``wrong_prompts``
    count changed golden tokens, ``drift_rms`` and ``min_margin`` are in nats.
    """
    model = load_model(checkpoint, "float32")
    install(model, "none", "auto", {})
    sequences = sequences_of(golden)
    short = [s for s in sequences if len(s.ids) <= LONG_PROMPT]
    modules = {name: module for name, module in model.named_modules() if name.endswith(".mlp.experts")}
    if not modules:
        return None
    healthy = teacher_forced(model, sequences)
    entries = []
    for layer, (name, module) in enumerate(modules.items()):
        for expert in range(len(module.down_proj)):
            effect = _effect(_without(module, expert, model, short), healthy)
            if not effect["wrong_tokens"]:
                effect = _effect(_without(module, expert, model, sequences), healthy)
            entries.append({"layer": layer, "expert": expert, **effect})
            log.info("%s without expert %d: %s", name, expert, entries[-1])
    return {"removed": "the expert's output set to zero, teacher-forced in float32", "experts": entries}


def _effect(removed: Margins, healthy: Margins) -> dict[str, int | float]:
    wrong = {prompt: int((~(m > 0)).sum()) for prompt, m in removed.items()}
    return {
        "prompts": len(removed),
        "wrong_tokens": sum(wrong.values()),
        "wrong_prompts": sum(count > 0 for count in wrong.values()),
        "drift_rms": round(drift(removed, healthy, removed)[0], 4),
        "min_margin": round(min(m.min().item() for m in removed.values()), DIGITS),
    }


def _without(module: Any, expert: int, model: Any, sequences: list[Sequence]) -> Margins:
    """Margins while the expert's output (and its bias, if it has one) is zero."""
    parameters = [p for p in (module.down_proj, getattr(module, "down_proj_bias", None)) if p is not None]
    kept = [p.data[expert].clone() for p in parameters]
    for parameter in parameters:
        parameter.data[expert] = 0
    removed = teacher_forced(model, sequences)
    for parameter, values in zip(parameters, kept, strict=True):
        parameter.data[expert] = values
    return removed


def _batches(sequences: list[Sequence]) -> list[list[Sequence]]:
    ordered = sorted(sequences, key=lambda s: len(s.ids))
    short = [s for s in ordered if len(s.ids) <= LONG_PROMPT]
    long = [s for s in ordered if len(s.ids) > LONG_PROMPT]
    batches = [short[i : i + _BATCH] for i in range(0, len(short), _BATCH)]
    return batches + [long[i : i + _LONG_BATCH] for i in range(0, len(long), _LONG_BATCH)]
