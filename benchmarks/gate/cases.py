"""The cases of the fault table, and the clean runs beside them, as jobs of the sweep's worker.

One job is one loaded checkpoint and one or more passes over every distinct request of the gate. A stretch of a few minutes runs some of
them and a later one goes on.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.coherence.gate import GateTarget
from runners.engines.base import HttpRequest
from runners.engines.vllm import VllmAdapter
from runners.sweep.jobs import key_of, waves_of
from suites.canaries import corrupt, fault_catalogue, zoo

MAX_MODEL_LEN = 2048
OLD_FAULTS = {
    "nan_weight": "one NaN in down_proj of layer 1",
    "inf_weight": "one inf in down_proj of layer 1",
    "gate_up_swap": "gate and up swapped in every layer",
    "scale_half_layer0": "all linears of layer 0 x0.5",
    "nibbles_swapped": "inputs 2k and 2k+1 swapped in all linears",
    "rows_identical_o1": "every row of o_proj of layer 1 is the first",
}
DENSE_ONLY = frozenset({"nan_weight", "inf_weight"})
"""Older faults that name a tensor which a model with experts does not have."""
KV_FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "kv_block_lost": ("one block of the KV cache in four is zeroed after every step", {"kv": "zero", "every": 4}),
    "kv_block_stale": ("one block of the KV cache in four holds what its neighbour holds", {"kv": "copy", "every": 4}),
    "kv_block_lost_late": ("block 9 of the KV cache alone is zeroed", {"kv": "zero", "only": 9}),
}
KV_ARGUMENTS = ("--block-size", "32")


@dataclass(frozen=True)
class Case:
    """One row of the table: a fault (None: a clean run), where it is injected, and how the checkpoint is served."""

    name: str
    what: str
    kind: str
    canary: str
    weight_format: str
    fault: str | None = None
    sabotage: tuple[tuple[str, Any], ...] = ()
    arguments: tuple[str, ...] = ()
    passes: int = 1


def fault_cases(canary: str, weight_format: str) -> Iterator[Case]:
    """Every fault of the catalogue that this canary can have in this format."""
    experts = has_experts(canary)

    def case(fault: str, what: str, kind: str) -> Case:
        return Case(f"{canary}-{weight_format}-{fault}", what, kind, canary, weight_format, fault)

    if weight_format == "bf16":
        for fault, what in OLD_FAULTS.items():
            if not (experts and fault in DENSE_ONLY):
                yield case(fault, what, "weights")
    for fault in fault_catalogue.names_for(weight_format, has_experts=experts):
        yield case(fault, fault_catalogue.WEIGHT_FAULTS[fault].what, "weights")
    if weight_format != "bf16":
        return
    for fault, (what, change) in fault_catalogue.CONFIG_FAULTS.items():
        try:
            change(json.loads(zoo.tracked_file(canary, "config.json") or b"{}"))
        except fault_catalogue.FaultError:
            continue  # this model's configuration has no such setting
        yield case(fault, what, "configuration")
    for fault, (what, _) in fault_catalogue.TEMPLATE_FAULTS.items():
        yield case(fault, what, "template")
    for fault, (what, sabotage) in KV_FAULTS.items():
        name = f"{canary}-{weight_format}-{fault}"
        yield Case(name, what, "kv cache", canary, weight_format, None, tuple(sabotage.items()), KV_ARGUMENTS)


CLEAN_SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("as measured", ()),
    ("4 sequences", ("--max-num-seqs", "4")),
    ("64 sequences", ("--max-num-seqs", "64")),
    ("no prefix cache", ("--no-enable-prefix-caching",)),
    ("chunks of 64 tokens", ("--max-num-batched-tokens", "64", "--max-num-seqs", "16")),
    ("block size 32", ("--block-size", "32")),
    ("float32", ("--dtype", "float32")),
    ("float16", ("--dtype", "float16")),
)
"""Ways in which an engine may serve a sound checkpoint; none of them may be called a fault."""


def clean_cases(canary: str, weight_format: str, passes: int) -> Iterator[Case]:
    """Sound checkpoints: `passes` shuffled orders in each of the settings."""
    for setting, arguments in CLEAN_SETTINGS:
        if weight_format != "bf16" and "--dtype" in arguments:
            continue
        name = f"{canary}-{weight_format}-clean-{setting.replace(' ', '_')}"
        yield Case(name, setting, "clean", canary, weight_format, arguments=arguments, passes=passes)


def has_experts(canary: str) -> bool:
    """Whether a canary routes tokens to experts."""
    return b"num_experts" in (zoo.tracked_file(canary, "config.json") or b"")


def distinct_requests(canary: str) -> list[HttpRequest]:
    """Every request of the gate once, in the order in which it first asks them."""
    loaded = zoo.load(canary)
    target = GateTarget("job", "", "canary", loaded, context=MAX_MODEL_LEN)
    found = {key_of(r): r for wave in waves_of(target, loaded, VllmAdapter()) for r in wave.requests}
    return list(found.values())


def job_of(case: Case, folder: Path, requests: Sequence[HttpRequest]) -> dict[str, Any]:
    """The worker's job of a case; its checkpoint is made below `folder` on first use."""
    checkpoint = zoo.materialise(case.canary, case.weight_format, folder / "canaries")
    if case.fault is not None:
        broken = folder / "broken" / case.name
        shutil.rmtree(broken, ignore_errors=True)
        broken.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = corrupt.write_corrupted(checkpoint, case.fault, broken)
    waves = []
    for number in range(case.passes):
        wave = list(requests)
        if case.kind == "clean":
            random.Random(number).shuffle(wave)
        waves.append([{"path": r.path, "body": r.body} for r in wave])
    return {
        "name": case.name,
        "model": str(checkpoint),
        "log": f"logs/{case.name}.log",
        "arguments": ["--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "64", "--seed", "0", "--enforce-eager", *case.arguments],
        "waves": waves,
        "sabotage": dict(case.sabotage),
    }
