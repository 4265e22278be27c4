"""Turn a finished training run into the tracked files of a canary: ``python -m suites.canaries.pack --run DIR --name moe``.

The trap: goldens written from the corpus instead of from the model, or from weights that are not the ones shipped. The
rule: the packed file is expanded again exactly as users will expand it, transformers decodes every prompt from that
checkpoint in float32 and bfloat16, and a prompt with one wrong token in either is dropped from the canary's goldens and listed
(``dropped`` in golden.json): the bar is not lowered. Tokenizer, corpus and prompts are those of the dense canary.

``--extend`` measures paths, calibration and coverage of an existing canary anew and adds them and every format's digests to its manifest;
weights, goldens and reference margins stay as they are. Prints the manifest digest that `suites.canaries.zoo.MANIFEST_SHA256` must hold.
Needs the ``canary`` dependency group.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from suites.canaries import zoo
from suites.canaries.finish import TRAINING, WEIGHTS
from suites.canaries.formats import formats_of
from suites.canaries.measure_paths import expert_coverage, measure, measure_input_scales
from suites.canaries.references import PATHS
from suites.canaries.reproduce import compare, decode_all, load_model

DTYPES = ("bfloat16", "float32")
MARGIN_DIGITS = 4
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
COVERAGE = "coverage.json"
SHARED_FILES = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""Files that every canary has in common with the dense one."""
_MOST_DROPPED = 9
"""A canary that gets more prompts wrong than this is not trained enough to be one."""

Files = dict[str, bytes]


class PackError(Exception):
    """The run cannot become a canary; the message says why."""


def model_config(saved: dict[str, Any], dense: dict[str, Any]) -> dict[str, Any]:
    """config.json that transformers 4 and 5 (and the engines built on either) read alike.

    transformers 5 renamed ``torch_dtype`` to ``dtype``, ``num_experts`` to ``num_local_experts`` and moved ``rope_theta`` into
    ``rope_parameters``; both forms stand here. The writer's version is left out: it would only say who wrote the file.
    """
    config = {key: value for key, value in saved.items() if key not in ("transformers_version", "_name_or_path")}
    config |= {"rope_theta": saved["rope_parameters"]["rope_theta"], "dtype": "bfloat16", "torch_dtype": "bfloat16"}
    if "num_local_experts" in config or "num_experts" in config:
        experts = config.get("num_local_experts", config.get("num_experts"))
        config |= {"num_experts": experts, "num_local_experts": experts}
    return config | {key: dense[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


def files_of_run(run: Path, hardware: str, date: str, notes: list[str]) -> Files:
    """Weights, config, record and the dense canary's tokenizer and prompts."""
    dense = {file: zoo.tracked_file("dense", file) or b"" for file in (zoo.CONFIG, zoo.GOLDEN, *SHARED_FILES)}
    record = json.loads((run / TRAINING).read_text(encoding="utf-8"))
    config = model_config(record.pop("config"), json.loads(dense[zoo.CONFIG]))
    kept = {"date": date, "hardware": hardware, "notes": notes, "packed_with": {p: version(p) for p in PACKAGES}, **record}
    return {
        zoo.PACKED_WEIGHTS: (run / WEIGHTS).read_bytes(),
        zoo.GOLDEN: dense[zoo.GOLDEN],
        zoo.CONFIG: zoo.json_bytes(config),
        TRAINING: one_line_per_entry(kept),
        **{file: dense[file] for file in SHARED_FILES},
    }


def decode_and_drop(checkpoint: Path, golden: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(golden without the prompts that are wrong in either dtype, content of reference.json); raises `PackError` if too many are."""
    margins: dict[str, dict[str, list[float]]] = {}
    wrong: set[str] = set()
    for dtype in DTYPES:
        decoded = decode_all(load_model(checkpoint, dtype), golden)
        report = compare(golden, decoded)
        if report["nan_margins"]:
            raise PackError(f"{dtype}: {report['nan_margins']} margins are not numbers")
        wrong |= {mismatch["name"] for mismatch in report["mismatches"]}
        margins[dtype] = {name: [round(m, MARGIN_DIGITS) for m in values] for name, (_, values) in decoded.items()}
    if len(wrong) > _MOST_DROPPED:
        raise PackError(f"{len(wrong)} prompts are wrong: {', '.join(sorted(wrong))}; train longer")
    kept = {part: [entry for entry in golden[part] if entry["name"] not in wrong] for part in ("prompts", "bos_prompts")}
    reference = {
        "measured_with": {package: version(package) for package in ("torch", "transformers")},
        "device": "cpu",
        "unit": "nats (logit of the golden token minus the runner-up)",
        "margins": {dtype: {name: m for name, m in values.items() if name not in wrong} for dtype, values in margins.items()},
    }
    return {**kept, **({"dropped": sorted(wrong)} if wrong else {})}, reference


def add_references(files: Files) -> None:
    """Decode every prompt: golden.json loses what is wrong, reference.json is added."""
    with tempfile.TemporaryDirectory() as scratch:
        golden, reference = decode_and_drop(_expanded(files, Path(scratch)), json.loads(files[zoo.GOLDEN]))
    files[zoo.GOLDEN] = one_line_per_entry(golden)
    files[zoo.REFERENCE] = one_line_per_entry(reference)


def add_measurements(files: Files) -> None:
    """calibration.json, paths.json and, for a model with experts, coverage.json."""
    golden = json.loads(files[zoo.GOLDEN])
    decoded = json.loads(files[zoo.REFERENCE])["margins"]["bfloat16"]
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = _expanded(files, Path(scratch))
        calibration = measure_input_scales(checkpoint, golden)
        files[zoo.CALIBRATION] = zoo.json_bytes(calibration)
        files[PATHS] = one_line_per_entry(measure(checkpoint, golden, calibration["input_scales"], decoded))
        coverage = expert_coverage(checkpoint, golden)
    if coverage is not None:
        files[COVERAGE] = one_line_per_entry(coverage)


def write_canary(files: Files, destination: Path) -> str:
    """Write all tracked files with a new manifest; returns the sha256 of the manifest."""
    model_type = json.loads(files[zoo.CONFIG])["model_type"]
    manifest = zoo.json_bytes(
        {
            "tracked": digests(files),
            "checkpoints": {weight_format: digests(zoo.expand(files, weight_format)) for weight_format in formats_of(model_type)},
        }
    )
    destination.mkdir(parents=True, exist_ok=True)
    for file, data in {**files, zoo.MANIFEST: manifest}.items():
        (destination / file).write_bytes(data)
    return _sha256(manifest)


def tracked_files(name: str) -> Files:
    """The verified tracked files of an existing canary, without its manifest."""
    names = json.loads(zoo.tracked_file(name, zoo.MANIFEST) or b"{}")["tracked"]
    return {file: zoo.tracked_file(name, file) or b"" for file in names}


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """File name to sha256."""
    return {file: _sha256(data) for file, data in files.items()}


def one_line_per_entry(value: dict[str, Any]) -> bytes:
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


def _expanded(files: Files, folder: Path) -> Path:
    for file, data in zoo.expand(files, "bf16").items():
        (folder / file).write_bytes(data)
    return folder


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Pack a trained canary into its tracked files.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--run", type=Path, help="the --out folder of suites.canaries.train")
    source.add_argument("--extend", action="store_true", help="keep weights, goldens and reference margins; measure the rest anew")
    parser.add_argument("--name", required=True, help="name of the canary")
    parser.add_argument("--hardware", default="not recorded", help="what it was trained on, for the record")
    parser.add_argument("--date", default="not recorded", help="date of the training, YYYY-MM-DD")
    parser.add_argument("--note", action="append", default=[], help="anything else that the record should say")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent, help="folder that holds the canaries")
    return parser


def main() -> int:
    """0: written. 1: too many prompts are wrong; nothing was written."""
    arguments = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        if arguments.run is None:
            files = tracked_files(arguments.name)
        else:
            files = files_of_run(arguments.run, arguments.hardware, arguments.date, arguments.note)
            add_references(files)
        add_measurements(files)
    except PackError as error:
        sys.stderr.write(f"not packed: {error}\n")
        return 1
    digest = write_canary(files, arguments.to / arguments.name.replace("-", "_"))
    sys.stdout.write(f"{arguments.name}: manifest sha256 {digest}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
