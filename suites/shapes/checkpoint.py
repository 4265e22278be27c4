"""The folder of a shape that an engine is started on: `config.json` and a filler tokenizer of the right vocabulary. No weights.

Trap: an engine that is given the tokenizer of another model, or ids that no tokenizer knows, dies at the first token; half a folder is
served after a crash. Rule: every id decodes to text, the special ids are those of the configuration, and a folder gets its name only when
complete; its name carries the digest of its configuration.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from suites.shapes import Shape

_BYTES = 256
_CHAT_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' ' }}{% endfor %}"
_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def write(shape: Shape, root: Path) -> Path:
    """The shape's folder below `root`, made now or found there. Takes a second; two processes may do it at once. Raises OSError."""
    target = root / f"{shape.name}-{shape.revision}"
    if all((target / name).is_file() for name in _FILES):
        return target
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=f".{shape.name}-") as scratch:
        staged = Path(scratch) / "checkpoint"
        staged.mkdir()
        for name, content in _contents(shape).items():
            (staged / name).write_text(json.dumps(content, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        try:
            staged.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            for name in _FILES:  # another process was first, with the same content; or somebody took a file out of it
                (staged / name).replace(target / name)
    return target


def _contents(shape: Shape) -> dict[str, dict[str, Any]]:
    config = shape.config
    special = {"pad_token": "<|pad|>", "bos_token": "<|bos|>", "eos_token": "<|eos|>"}
    ids = {f"{name}_id": config[f"{name}_id"] for name in special}
    return {
        "config.json": config,
        "generation_config.json": ids,
        "tokenizer.json": tokenizer(config["vocab_size"], {special[name]: config[f"{name}_id"] for name in special}),
        "tokenizer_config.json": {
            **special,
            "chat_template": _CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "model_max_length": config["max_position_embeddings"],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }


def tokenizer(size: int, special: dict[str, int]) -> dict[str, Any]:
    """`tokenizer.json` of `size` ids: the 256 bytes, which encode any text, then words that stand for themselves, and `special` tokens."""
    free = iter(sorted(set(range(size)) - set(special.values())))
    vocabulary = {character: next(free) for character in byte_alphabet()}
    vocabulary |= {f"Ġw{number}": number for number in free}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": text, **flags} for text, number in sorted(special.items(), key=lambda item: item[1])],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }


def byte_alphabet() -> tuple[str, ...]:
    """The printable characters that byte-level tokenizers write the 256 bytes as: itself where printable, else from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = _BYTES - len(printable)
    return tuple(map(chr, [*printable, *range(_BYTES, _BYTES + rest)]))
