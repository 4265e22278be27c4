"""What a finished training leaves behind: ``weights.bin`` (packed) and ``training.json`` (the record), in the run's folder.

The trap: scores of the float masters, printed beside weights that were rounded afterwards. The rule: the model first becomes exactly what
is packed (linear weights on the grid, everything else bfloat16), is packed, and only then scored, in float32, in bfloat16 and under every
emulated activation format.

Needs torch (``canary`` dependency group).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from torch import Tensor

from suites.canaries import ugrid
from suites.canaries.architectures import Phase, canonical_tensors
from suites.canaries.batches import BatchSampler, Sequence
from suites.canaries.fakequant import ACTIVATION_FORMATS, ActivationQuantiser
from suites.canaries.naming import on_grid
from suites.canaries.packed_file import RawMatrices, packed_tensors
from suites.canaries.scoring import evaluate
from suites.canaries.tensorfile import RawTensor, write_tensors

WEIGHTS, TRAINING = "weights.bin", "training.json"


class Finished(Protocol):
    """The parts of `suites.canaries.train.Trainer` that are needed here."""

    canary: str
    phases: tuple[Phase, ...]
    out: Path
    device: torch.device
    tokenizer: Tokenizer
    pad_id: int
    sampler: BatchSampler
    model: Any
    activations: ActivationQuantiser
    train_s: float
    history: list[dict[str, float | int | str]]

    def put_on_grid(self) -> dict[str, Tensor]: ...


def write_finished(run: Finished, seed: int) -> None:
    """Round the model to what is packed, write both files."""
    run.put_on_grid()
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16).float()
    (run.out / WEIGHTS).write_bytes(write_tensors(packed_model(run.model)))
    record = {
        "canary": run.canary,
        "seed": seed,
        "device": device_name(run.device),
        "trained_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "phases": [dataclasses.asdict(phase) for phase in run.phases],
        "train_s": round(run.train_s, 1),
        "config": {**run.model.config.to_dict(), "architectures": [type(run.model).__name__]},
        **scores(run),
        "history": run.history,
    }
    (run.out / TRAINING).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def packed_model(model: Any) -> dict[str, RawTensor]:
    """The packed tensors of a model whose weights are already rounded."""
    matrices: RawMatrices = {}
    others: dict[str, RawTensor] = {}
    for name, tensor in canonical_tensors(model):
        values = np.ascontiguousarray(tensor.float().cpu().numpy())
        if on_grid(name):
            matrices[name] = values
        else:
            others[name] = RawTensor("BF16", ugrid.bfloat16_bits(values))
    return packed_tensors(matrices, others)


def scores(run: Finished) -> dict[str, Any]:
    """Gate and BOS prompts in float32, all prompts in float32 under each activation format, and all in bfloat16."""
    everything: list[Sequence] = run.sampler.gate + run.sampler.bos
    result: dict[str, Any] = {
        "gate": dataclasses.asdict(evaluate(run.model, run.sampler.gate, run.pad_id)),
        "bos": dataclasses.asdict(evaluate(run.model, run.sampler.bos, run.pad_id)),
    }
    emulated = {}
    for name in ACTIVATION_FORMATS:
        run.activations.activation_format = name
        emulated[name] = dataclasses.asdict(evaluate(run.model, everything, run.pad_id))
    run.activations.off()
    run.model.to(torch.bfloat16)
    result["bfloat16"] = dataclasses.asdict(evaluate(run.model, everything, run.pad_id))
    return {**result, "emulated_activations": emulated}


def device_name(device: torch.device) -> str:
    """``cpu``, or the GPU's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
