"""Run by the converter environment's Python: unpack a GGUF file into a bf16 safetensors checkpoint that every engine can serve.

    python gguf_convert.py PACKAGE FOLDER

Trap: engines dropped GGUF (vLLM 0.24) or read it differently, and a checkpoint without its tokenizer's BOS token loops on every engine.
Rule: transformers unpacks the weights once, the folder appears complete or not at all, and the tokenizer puts BOS first where the GGUF says
so (`tokenizer.ggml.add_bos_token`, which transformers 5.19.0 does not read).
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any


def gguf_of(package: str, work: Path) -> Path:
    """The GGUF file that `package` carries: put together by its own `assemble`, which checks the SHA-256, or the only one in its folder."""
    module: Any = importlib.import_module(package.replace("-", "_"))
    if hasattr(module, "assemble"):
        return Path(module.assemble(work / "model.gguf"))
    found = sorted(Path(module.__file__).parent.rglob("*.gguf"))
    if len(found) != 1:
        raise SystemExit(f"{package} carries {len(found)} GGUF files; exactly one is needed")
    return found[0]


def adds_bos(gguf: Path) -> bool:
    """What the GGUF file itself says about the BOS token; llama tokenizers add it where nothing is said."""
    from gguf import GGUFReader  # noqa: PLC0415 - only in the converter's environment

    field: Any = GGUFReader(gguf).fields.get("tokenizer.ggml.add_bos_token")
    return True if field is None else bool(field.contents())


def convert(package: str, folder: Path) -> dict[str, object]:
    """Write the checkpoint `folder` (which must not exist) and say what it holds: sizes in bytes, time in seconds."""
    import torch  # noqa: PLC0415 - takes seconds, and the arguments are checked first
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415
    from transformers.utils import logging  # noqa: PLC0415

    logging.disable_progress_bar()
    started = time.monotonic()
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    work = folder.with_name(f"{folder.name}.work")
    work.mkdir(parents=True, exist_ok=True)
    gguf = gguf_of(package, work)
    wants_bos = adds_bos(gguf)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    tokenizer.add_bos_token = wants_bos
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    bos = tokenizer.bos_token_id
    if wants_bos and AutoTokenizer.from_pretrained(part)("a")["input_ids"][:1] != [bos]:
        raise SystemExit(f"the saved tokenizer of {package} does not put its BOS token ({bos}) first")
    facts: dict[str, object] = {
        "package": package,
        "gguf_bytes": gguf.stat().st_size,
        "checkpoint_bytes": sum(file.stat().st_size for file in part.rglob("*") if file.is_file()),
        "bos_token_id": bos,
        "adds_bos": wants_bos,
        "chat_template": tokenizer.chat_template is not None,
        "seconds": round(time.monotonic() - started, 1),
    }
    (part / "sparkproof-conversion.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    shutil.rmtree(work)
    part.rename(folder)
    return facts


if __name__ == "__main__":
    sys.stdout.write(json.dumps(convert(sys.argv[1], Path(sys.argv[2]))) + "\n")
