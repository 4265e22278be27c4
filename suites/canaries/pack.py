"""Turn a finished training run into the tracked files of a canary: ``python -m suites.canaries.pack --run DIR --name dense``.

The trap: goldens written from the corpus instead of from the model, or from weights that are not the ones shipped. The
rule: the packed file is expanded again exactly as users will expand it, transformers decodes every prompt from that
checkpoint in float32 and bfloat16, and nothing is written unless every token is the golden one in both.

Prints the manifest digest that `suites.canaries.zoo.MANIFEST_SHA256` must hold. Needs the ``canary`` dependency group.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from suites.canaries import tokenizer as canary_tokenizer
from suites.canaries import zoo
from suites.canaries.reproduce import compare, decode_all, load_model
from suites.canaries.tensorfile import read_tensors, write_tensors

DTYPES = ("bfloat16", "float32")
TRAINING = "training.json"
MARGIN_DIGITS = 4
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")


class PackError(Exception):
    """The run cannot become a canary; the message says why."""


def golden_entries(prompts: list[canary_tokenizer.TrainingPrompt]) -> list[dict[str, Any]]:
    """JSON form of the prompts."""
    return [
        {
            "name": prompt.name,
            "prompt_ids": list(prompt.prompt_ids),
            "answer_ids": list(prompt.answer_ids),
            "answer_text": prompt.answer_text,
            "messages": [{"role": role, "content": content} for role, content in prompt.messages],
        }
        for prompt in prompts
    ]


def model_config(saved: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """config.json that transformers 4 and 5 (and the engines built on either) read alike.

    transformers 5 renamed ``torch_dtype`` to ``dtype`` and moved ``rope_theta`` into ``rope_parameters``; both stand
    here. The writer's version is left out: it would only say who wrote the file.
    """
    config = {key: value for key, value in saved.items() if key != "transformers_version"}
    config |= {"rope_theta": saved["rope_parameters"]["rope_theta"], "dtype": "bfloat16", "torch_dtype": "bfloat16"}
    return config | special_ids(tokenizer)


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """BOS, end-of-sequence and padding ids, as config.json and generation_config.json name them."""
    return {
        "bos_token_id": tokenizer.token_to_id(canary_tokenizer.BOS),
        "eos_token_id": tokenizer.token_to_id(canary_tokenizer.END),
        "pad_token_id": tokenizer.token_to_id(canary_tokenizer.PAD),
    }


def packed_files(run: Path) -> dict[str, bytes]:
    """All tracked files that follow from the run alone (not reference margins and manifest)."""
    checkpoint = run / "checkpoint"
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    config = model_config(json.loads((checkpoint / "config.json").read_text(encoding="utf-8")), tokenizer)
    golden = {
        "prompts": golden_entries(canary_tokenizer.gate_prompts(tokenizer)),
        "bos_prompts": golden_entries(canary_tokenizer.bos_prompts(tokenizer)),
    }
    packed = zoo.pack_tensors(read_tensors((checkpoint / zoo.MODEL_FILE).read_bytes()))
    return {
        zoo.PACKED_WEIGHTS: write_tensors(packed),
        zoo.GOLDEN: _json_one_line_per_entry(golden),
        "config.json": _json(config),
        "generation_config.json": _json({"do_sample": False, **special_ids(tokenizer)}),
        "tokenizer.json": (checkpoint / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": (checkpoint / "tokenizer_config.json").read_bytes(),
        "chat_template.jinja": (checkpoint / "chat_template.jinja").read_bytes(),
    }


def measure_reference(checkpoint_files: dict[str, bytes], golden: dict[str, Any]) -> dict[str, Any]:
    """Margins of every answer token in both dtypes; raises `PackError` if a token is wrong in either."""
    reference: dict[str, Any] = {
        "measured_with": {package: version(package) for package in ("torch", "transformers")},
        "device": "cpu",
        "unit": "nats (logit of the golden token minus the runner-up)",
        "margins": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        for file, data in checkpoint_files.items():
            (Path(scratch) / file).write_bytes(data)
        for dtype in DTYPES:
            decoded = decode_all(load_model(Path(scratch), dtype), golden)
            report = compare(golden, decoded)
            if report["mismatches"] or report["nan_margins"]:
                raise PackError(f"{dtype}: {json.dumps(report)[:2000]}")
            reference["margins"][dtype] = {name: [round(m, MARGIN_DIGITS) for m in margins] for name, (_, margins) in decoded.items()}
    return reference


def training_record(run: Path, hardware: str, date: str, notes: list[str]) -> dict[str, Any]:
    """What the run wrote down, with the package versions of this environment."""
    record: dict[str, Any] = json.loads((run / TRAINING).read_text(encoding="utf-8"))
    versions = {package: version(package) for package in PACKAGES}
    return {"date": date, "hardware": hardware, "versions": versions, "notes": notes, **record}


def write_canary(run: Path, destination: Path, record: dict[str, Any]) -> str:
    """Write all tracked files; returns the sha256 of the manifest."""
    files = packed_files(run)
    files[TRAINING] = _json_one_line_per_entry(record)
    checkpoints = {weight_format: zoo.expand(files, weight_format) for weight_format in zoo.WEIGHT_FORMATS}
    reference = measure_reference(checkpoints["bf16"], json.loads(files[zoo.GOLDEN]))
    files[zoo.REFERENCE] = _json_one_line_per_entry(reference)
    manifest = _json(
        {
            "tracked": {file: _sha256(data) for file, data in files.items()},
            "checkpoints": {
                weight_format: {file: _sha256(data) for file, data in produced.items()} for weight_format, produced in checkpoints.items()
            },
        }
    )
    destination.mkdir(parents=True, exist_ok=True)
    for file, data in {**files, zoo.MANIFEST: manifest}.items():
        (destination / file).write_bytes(data)
    return _sha256(manifest)


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _json_one_line_per_entry(value: dict[str, Any]) -> bytes:
    """JSON with one line per element of each top-level list or object: small, and a diff shows which entry changed."""
    parts = []
    for key, entry in value.items():
        if isinstance(entry, list) and entry:
            body = "[\n" + ",\n".join(_compact(item) for item in entry) + "\n]"
        elif isinstance(entry, dict) and entry:
            body = "{\n" + ",\n".join(f"{_compact(k)}:{_compact(v)}" for k, v in entry.items()) + "\n}"
        else:
            body = _compact(entry)
        parts.append(f"{_compact(key)}:{body}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main() -> int:
    """0: written. 1: the model does not reproduce its goldens; nothing was written."""
    parser = argparse.ArgumentParser(description="Pack a trained canary into its tracked files.")
    parser.add_argument("--run", type=Path, required=True, help="the --out folder of suites.canaries.train")
    parser.add_argument("--name", choices=sorted(zoo.MANIFEST_SHA256), required=True)
    parser.add_argument("--hardware", required=True, help="what it was trained on, for the record")
    parser.add_argument("--date", required=True, help="date of the training, YYYY-MM-DD")
    parser.add_argument("--note", action="append", default=[], help="anything else that the record should say")
    arguments = parser.parse_args()
    record = training_record(arguments.run, arguments.hardware, arguments.date, arguments.note)
    try:
        digest = write_canary(arguments.run, Path(__file__).parent / arguments.name, record)
    except PackError as error:
        sys.stderr.write(f"not packed: {error}\n")
        return 1
    sys.stdout.write(f"{arguments.name}: manifest sha256 {digest}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
