"""What a correct engine's margins are on each numeric path, and how far they may drift before the gate calls it a fault.

The trap: one reference for every path. Activations rounded to FP4 or a KV cache in FP8 move every margin, honestly, by more than a broken
kernel moves them in bf16: judged by the bf16 reference, either every W4A4 boot fails or no fault is ever seen. The rule: a path (weight
format x activation format x KV cache dtype) has its own margins and its own measured floor, and a path that was never measured has no
reference at all (`reference_for` returns None): the gate then judges tokens only and says so.

NumPy-free and torch-free: this side only reads what `suites.canaries.measure_paths` wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from suites.canaries import zoo

PATHS = "paths.json"
"""Tracked file of a canary that holds the margins and thresholds of its paths."""


@dataclass(frozen=True)
class NumericPath:
    """What decides the rounding of a correct answer.

    ``weight_format`` is one of `suites.canaries.formats.WEIGHT_FORMATS` (bf16, fp8, int4, nvfp4, nvfp4a16, mxfp4a16; gpt-oss: bf16, mxfp4).
    ``activation_format`` is what the inputs of the linear layers are really rounded to on the device: ``none``, ``fp8`` (per token),
    ``nvfp4``, ``mxfp4`` or, for the experts of gpt-oss, ``mxfp8``; NVFP4 weights served by a weight-only kernel (Marlin) have ``none``.
    ``kv_cache_dtype`` is ``auto`` (the model's dtype) or ``fp8`` (e4m3, scale 1).
    """

    weight_format: str
    activation_format: str = "none"
    kv_cache_dtype: str = "auto"


@dataclass(frozen=True)
class Reference:
    """Margins of a path and the drift that is still honest; all in nats.

    ``margins``: prompt name to one margin per answer token (golden logit minus the runner-up). Drift is the change of margin against them.
    ``drift_rms_floor`` is the largest rms drift of an honest second computation of the same path; ``drift_rms_threshold`` and
    ``drift_max_threshold`` are what the gate tolerates: above either, something other than rounding changed the answers.
    ``source`` says in a sentence what was measured with what.
    """

    margins: Mapping[str, tuple[float, ...]]
    drift_rms_floor: float
    drift_rms_threshold: float
    drift_max_threshold: float
    source: str


def reference_for(canary: str, path: NumericPath) -> Reference | None:
    """The reference of ``canary`` on ``path``; None if that path was never measured.

    Raises the zoo's errors (`suites.canaries.zoo.UnknownCanaryError`, `CorruptCanaryError`).
    """
    return _references(canary).get(path)


@lru_cache(maxsize=8)
def _references(canary: str) -> Mapping[NumericPath, Reference]:
    data = zoo.tracked_file(canary, PATHS)
    return MappingProxyType({} if data is None else dict(_parsed(json.loads(data))))


def _parsed(document: dict[str, Any]) -> list[tuple[NumericPath, Reference]]:
    """Weights are the same numbers in every format, so one measured entry serves all the weight formats that it lists."""
    found: list[tuple[NumericPath, Reference]] = []
    for entry in document["paths"]:
        reference = Reference(
            margins=MappingProxyType({name: tuple(values) for name, values in entry["margins"].items()}),
            drift_rms_floor=entry["drift_rms_floor"],
            drift_rms_threshold=entry["drift_rms_threshold"],
            drift_max_threshold=entry["drift_max_threshold"],
            source=entry["source"],
        )
        for weight_format in entry["weight_formats"]:
            found.append((NumericPath(weight_format, entry["activation_format"], entry["kv_cache_dtype"]), reference))
    return found
