"""`python -m suites.references.measure [CANARY ...]`: write the scores of the fixed texts for every numeric path.

Trap: a reference taken from an engine repeats its faults. Rule: log-probabilities in float32 arithmetic with exactly the roundings of the
path; an honest second computation of the same path in bfloat16 gives the floor of each text.

Needs the `canary` dependency group (torch, transformers).
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from suites.canaries import zoo
from suites.canaries.emulation import KV_DTYPES, install
from suites.canaries.measure_paths import GPT_OSS_WEIGHT_FORMATS_OF, WEIGHT_FORMATS_OF
from suites.canaries.reproduce import load_model
from suites.passages import canary_passages

DIGITS = 4
HERE = Path(__file__).parent
Scores = dict[str, list[float]]


def measure(name: str, scratch: Path) -> dict[str, Any]:
    """The content of the reference file of a canary."""
    canary = zoo.load(name)
    checkpoint = zoo.materialise(name, "bf16", scratch)
    calibration = zoo.tracked_file(name, "calibration.json")
    scales = json.loads(calibration)["input_scales"] if calibration is not None else {}
    model_type = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["model_type"]
    texts = dict(canary_passages(canary))
    formats = GPT_OSS_WEIGHT_FORMATS_OF if model_type == "gpt_oss" else WEIGHT_FORMATS_OF
    passages = {
        f"any / {activation} / {kv}": _measured(checkpoint, texts, (activation, kv), scales) for activation in formats for kv in KV_DTYPES
    }
    made = {
        "run_id": "none",
        "made_at": "2026-11-30",
        "engine": "transformers",
        "engine_version": version("transformers"),
        "backend": "float32 arithmetic with the roundings of the path",
        "node": "CPU",
        "kernels": {},
    }
    key = {"model": f"canary/{name}", "revision": canary.sha256[zoo.PACKED_WEIGHTS][:16], "template": None, "prompts": "canary"}
    return {"format": 1, "key": key, "made": [made], "answers": {}, "texts": texts, "passages": passages}


def _measured(checkpoint: Path, texts: dict[str, tuple[int, ...]], path: tuple[str, str], scales: dict[str, float]) -> dict[str, Any]:
    computed: dict[str, Scores] = {}
    for dtype in ("float32", "bfloat16"):
        model = load_model(checkpoint, dtype)
        install(model, *path, scales)
        computed[dtype] = {name: _log_probabilities(model, ids) for name, ids in texts.items()}
    return {name: _passage(computed["float32"][name], computed["bfloat16"][name]) for name in texts}


def _log_probabilities(model: Any, ids: tuple[int, ...]) -> list[float]:
    """Log-probability of every token but the first, nats."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].float()
    chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))
    return [float(value) for value in chosen[:, 0]]


def _passage(exact: list[float], rounded: list[float]) -> dict[str, Any]:
    drifts = [abs(a - b) for a, b in zip(exact, rounded, strict=True)]
    return {
        "logprobs": [None, *(round(value, DIGITS) for value in exact)],
        "floor_rms": round((sum(d * d for d in drifts) / len(drifts)) ** 0.5, DIGITS),
        "floor_max": round(max(drifts), DIGITS),
    }


def main(names: list[str]) -> None:
    """Write one file per canary beside this module."""
    with tempfile.TemporaryDirectory(prefix="sparkproof-references-") as scratch:
        for name in names or list(zoo.MANIFEST_SHA256):
            text = json.dumps(measure(name, Path(scratch)), separators=(",", ":"))
            (HERE / f"canary-{name}.json").write_text(text.replace('"any / ', '\n"any / ') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
