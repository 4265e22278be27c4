"""Load a canary's goldens and expand its packed weights into a checkpoint folder that an engine can serve.

The trap: a golden answer proves nothing if the weights under it may have changed: a cache folder half written by a killed
run, a file edited by hand, a copy from another release. The rule: every tracked file is checked against `manifest.json`,
the manifest against the digest in this module, and every produced file against the sha256 that the manifest promises.
Weights and goldens are final; a different model is a different canary with a different name.

NumPy and safetensors only: the side that judges an engine needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from suites.canaries.formats import WEIGHT_FORMATS, Source, unquantised
from suites.canaries.quantization import quantization_config
from suites.canaries.tensorfile import read_tensors, write_tensors

MANIFEST_SHA256: Mapping[str, str] = MappingProxyType(
    {
        "dense": "087e867ab4fb821b1d1f22bbc6a7554d7982f81b99afef855c63f68e50e1d95c",
        "moe": "bf5dd242262e31ddf3c4e484d9a19a4c6bfe9174c37042ff9fbb1355bbd30ae3",
        "gpt-oss": "8a005a66c62fb3c61f90cd0f96de3b9608f8643c8431ba39e934b36e8e163ab4",
        "hybrid": "0b9c5ba18e4d9e41028e5d4540d761e9c48d6059635511dab4ceb7952cee1ad3",
    }
)
"""Canary name to the sha256 of its manifest.json. A canary that is not listed here does not exist."""

MANIFEST = "manifest.json"
PACKED_WEIGHTS = "weights.bin"
GOLDEN, REFERENCE = "golden.json", "reference.json"
CALIBRATION = "calibration.json"
CONFIG = "config.json"
CHECKPOINT_SIDE_FILES = (
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
"""Tracked files that go into a checkpoint folder unchanged."""
MODEL_FILE = "model.safetensors"

_CANARIES_FOLDER = Path(__file__).parent


class CanaryError(Exception):
    """A canary cannot be used; the message says which file and what to do."""


class UnknownCanaryError(CanaryError):
    """No such canary, or no such weight format."""


class CorruptCanaryError(CanaryError):
    """A file of the canary is missing or not the recorded one."""


@dataclass(frozen=True)
class GoldenPrompt:
    """One prompt and the only right answer to it.

    ``answer_ids`` ends with the end-of-sequence id; ``answer_text`` is the text without it. ``messages`` are (role,
    content) pairs that the chat template renders to ``prompt_ids``; empty for BOS prompts, which are wrong on purpose
    and can only be sent as ids.
    """

    name: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    answer_text: str
    messages: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Canary:
    """What a correct engine must answer, and by what distance.

    ``bos_prompts`` begin without or with two BOS tokens and are answered by naming the fault. ``reference_margins`` maps
    ``bfloat16`` and ``float32`` to prompt name to one margin per answer token: the golden logit minus the runner-up, in
    nats (equal for logits and log-probabilities), measured with transformers on the CPU. ``max_context`` is the longest
    context the model was built for, in tokens. ``sha256`` maps each tracked file to its digest. ``dropped`` names prompts of
    the corpus that this model answered wrongly after its training and that are therefore not among its goldens.
    """

    name: str
    prompts: tuple[GoldenPrompt, ...]
    bos_prompts: tuple[GoldenPrompt, ...]
    reference_margins: Mapping[str, Mapping[str, tuple[float, ...]]]
    eos_token_id: int
    max_context: int
    sha256: Mapping[str, str]
    dropped: tuple[str, ...] = ()


def verify(name: str) -> tuple[str, ...]:
    """Check every tracked file of the canary and every checkpoint that is made of them; returns the weight formats that were checked.

    Raises `CorruptCanaryError`, `UnknownCanaryError`, or `CanaryError` if the files are right and what is made of them is not.
    """
    files = _read_verified(name)
    formats = weight_formats(name)
    for weight_format in formats:
        _expanded(name, files, weight_format)
    return formats


def load(name: str) -> Canary:
    """The goldens and reference margins of a canary, from verified files."""
    files = _read_verified(name)
    golden = json.loads(files[GOLDEN])
    margins = json.loads(files[REFERENCE])["margins"]
    config = json.loads(files[CONFIG])
    return Canary(
        name=name,
        prompts=tuple(_golden_prompt(entry) for entry in golden["prompts"]),
        bos_prompts=tuple(_golden_prompt(entry) for entry in golden["bos_prompts"]),
        reference_margins=MappingProxyType(
            {
                dtype: MappingProxyType({prompt: tuple(values) for prompt, values in per_prompt.items()})
                for dtype, per_prompt in margins.items()
            }
        ),
        eos_token_id=config["eos_token_id"],
        max_context=config["max_position_embeddings"],
        sha256=MappingProxyType(_manifest(files)["tracked"]),
        dropped=tuple(golden.get("dropped", ())),
    )


def weight_formats(name: str) -> tuple[str, ...]:
    """The weight formats of a canary, bf16 first."""
    recorded = _manifest(_read_verified(name))["checkpoints"]
    return tuple(weight_format for weight_format in WEIGHT_FORMATS if weight_format in recorded)


def served_revision(name: str) -> str:
    """16 hex digits of the digests of all files of the bf16 checkpoint: the `revision` of a canary's recipes. Other weights, another
    configuration or tokenizer are another revision; goldens and references that were measured anew are not."""
    recorded = _manifest(_read_verified(name))["checkpoints"]["bf16"]
    return hashlib.sha256(json.dumps(recorded, sort_keys=True).encode()).hexdigest()[:16]


def tracked_file(name: str, file: str) -> bytes | None:
    """The verified content of a tracked file; None if this canary has no such file."""
    return _read_verified(name).get(file)


def materialise(name: str, weight_format: str, destination_root: Path) -> Path:
    """Write the checkpoint folder ``<destination_root>/<name>-<weight_format>`` and return its path.

    A folder that already holds the right files is returned as it is; wrong or missing files in it are replaced one by
    one. Two processes may do this at once: a new folder appears by one rename, and both would write the same bytes.
    Raises `CorruptCanaryError` if the packed data is damaged and `CanaryError` if the folder holds foreign files.
    """
    files = _read_verified(name)
    recorded: dict[str, dict[str, str]] = _manifest(files)["checkpoints"]
    if weight_format not in recorded:
        raise UnknownCanaryError(f"canary {name!r} has no weight format {weight_format!r}; known: {', '.join(recorded)}")
    expected = recorded[weight_format]
    target = destination_root / f"{name}-{weight_format}"
    if target.exists() and not target.is_dir():
        raise CanaryError(f"{target} is not a folder: remove it or choose another destination")
    if target.is_dir() and not _wrong_files(target, expected):
        return target
    produced = _expanded(name, files, weight_format)
    destination_root.mkdir(parents=True, exist_ok=True)
    _install(produced, target, expected)
    return target


def _expanded(name: str, files: Mapping[str, bytes], weight_format: str) -> dict[str, bytes]:
    """The files of a checkpoint, equal to what the manifest promises."""
    produced = expand(files, weight_format)
    if {file: _sha256(data) for file, data in produced.items()} != _manifest(files)["checkpoints"][weight_format]:
        raise CanaryError(
            f"expanding canary {name!r} to {weight_format} gave other bytes than recorded in {MANIFEST}: "
            "this is a fault of the expansion code or of this machine's memory; run the test suite and report it"
        )
    return produced


def expand(files: Mapping[str, bytes], weight_format: str) -> dict[str, bytes]:
    """The files of a checkpoint folder (name to bytes), from the tracked files of a canary."""
    config = json.loads(files[CONFIG])
    calibration = json.loads(files[CALIBRATION]) if CALIBRATION in files else {"input_scales": {}}
    source = Source(config["model_type"], read_tensors(files[PACKED_WEIGHTS]), calibration["input_scales"])
    produced = {MODEL_FILE: write_tensors(WEIGHT_FORMATS[weight_format](source)), **{file: files[file] for file in CHECKPOINT_SIDE_FILES}}
    quantization = quantization_config(weight_format, unquantised(source))
    if quantization is not None:
        produced[CONFIG] = json_bytes({**config, "quantization_config": quantization})
    return produced


def json_bytes(value: object) -> bytes:
    """JSON as the tracked files have it: sorted keys, one value a line."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _golden_prompt(entry: dict[str, Any]) -> GoldenPrompt:
    return GoldenPrompt(
        name=entry["name"],
        prompt_ids=tuple(entry["prompt_ids"]),
        answer_ids=tuple(entry["answer_ids"]),
        answer_text=entry["answer_text"],
        messages=tuple((message["role"], message["content"]) for message in entry["messages"]),
    )


def _manifest(files: Mapping[str, bytes]) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(files[MANIFEST])
    return manifest


def _read_verified(name: str) -> dict[str, bytes]:
    """All tracked files, each equal to its recorded digest."""
    if name not in MANIFEST_SHA256:
        raise UnknownCanaryError(f"no canary {name!r}; known: {', '.join(MANIFEST_SHA256)}")
    folder = _CANARIES_FOLDER / name.replace("-", "_")
    files = {MANIFEST: _read_checked(folder / MANIFEST, MANIFEST_SHA256[name])}
    for file, digest in _manifest(files)["tracked"].items():
        files[file] = _read_checked(folder / file, digest)
    return files


def _read_checked(path: Path, digest: str) -> bytes:
    remedy = "restore it from version control or reinstall sparkproof; canary files are never edited"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorruptCanaryError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    if _sha256(data) != digest:
        raise CorruptCanaryError(f"{path} is damaged: sha256 {_sha256(data)}, recorded {digest}; {remedy}")
    return data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _wrong_files(folder: Path, expected: Mapping[str, str]) -> list[str]:
    """Names of missing or differing files; raises `CanaryError` if there is a file that no canary has."""
    foreign = sorted(path.name for path in folder.iterdir() if path.name not in expected)
    if foreign:
        raise CanaryError(
            f"{folder} holds files that are not the canary's ({', '.join(foreign[:5])}), which an engine might load: "
            "remove the folder or choose another destination"
        )
    return [file for file, digest in expected.items() if not _has_digest(folder / file, digest)]


def _has_digest(path: Path, digest: str) -> bool:
    return path.is_file() and not path.is_symlink() and _sha256(path.read_bytes()) == digest


def _install(produced: Mapping[str, bytes], target: Path, expected: Mapping[str, str]) -> None:
    """Bring ``target`` to hold exactly ``produced``: by one rename if it is new, else file by file."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        staged = Path(scratch) / "checkpoint"
        staged.mkdir()
        for file, data in produced.items():
            (staged / file).write_bytes(data)
        if not target.exists():
            _rename_unless_taken(staged, target)
        if staged.exists():
            for file in _wrong_files(target, expected):
                _replace(staged / file, target / file)
    wrong = _wrong_files(target, expected)
    if wrong:
        raise CanaryError(f"{target} still has wrong files after writing ({', '.join(wrong)}): is the disk full?")


def _rename_unless_taken(staged: Path, target: Path) -> None:
    """Rename; if another process made the folder first, leave ``staged`` where it is for a check file by file."""
    try:
        staged.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _replace(source: Path, destination: Path) -> None:
    if destination.is_dir() and not destination.is_symlink():
        shutil.rmtree(destination)
    source.replace(destination)
