"""Which known good reference belongs to the model that a boot serves.

Trap: a name is not a model: the same recipe may serve other weights tomorrow, or the same weights with another chat template. Rule: the key
holds the commit, or a fingerprint of the files, the template as it lies beside the weights, and everything the gate asks.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from runners.coherence.known_good import KnownGood
from runners.coherence.reference_file import FOLDER, Key, find_reference
from runners.models import LocalModel
from suites.canaries import zoo
from suites.chat_golden import chat_golden_digest
from suites.prompts import prompts_digest
from suites.recipes import Recipe

SHIPPED = Path(__file__).resolve().parents[1] / "suites" / FOLDER
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
_MOST_BYTES = 16 << 20


def known_good_for(recipe: Recipe, model: LocalModel, store_root: Path) -> KnownGood | None:
    """The known good set of what is served; None if none was made. Raises UsageError for a damaged file."""
    found = find_reference(key_of(recipe, model), store_root / FOLDER, SHIPPED)
    return found[1].known_good() if found is not None else None


def key_of(recipe: Recipe, model: LocalModel) -> Key:
    """The key of the model that a recipe serves. A canary's weights are the same numbers in every format."""
    if recipe.source.canary is not None:
        canary = model.canary or zoo.load(recipe.source.canary)
        return Key(model=f"canary/{canary.name}", revision=canary.sha256[zoo.PACKED_WEIGHTS][:16], template=None, prompts="canary")
    return Key(
        model=recipe.model,
        revision=model.commit or recipe.revision or _fingerprint(model.path),
        template=_template(model.path),
        prompts=_short(json.dumps([prompts_digest(), chat_golden_digest(), recipe.bos]).encode()),
    )


def _fingerprint(folder: Path | None) -> str | None:
    """Configuration, and names and sizes of the weight files: enough to see other weights, without reading gigabytes."""
    if folder is None:
        return None
    weights = sorted((path.name, path.stat().st_size) for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern))
    return _short(json.dumps([_text(folder / "config.json"), weights]).encode())


def _template(folder: Path | None) -> str | None:
    """Hash of the chat template beside the weights; None if there is none."""
    if folder is None:
        return None
    for name in _TEMPLATES:
        if text := _text(folder / name):
            return _short(text.encode())
    try:
        config: Any = json.loads(_text(folder / "tokenizer_config.json") or "{}")
    except ValueError:
        return None
    template = config.get("chat_template") if isinstance(config, dict) else None
    return _short(json.dumps(template).encode()) if template else None


def _text(path: Path) -> str:
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
