"""The vocabulary that a tokenizer would download at the first chat request: found on this machine, or what to put where.

Trap: on a node without network a gpt-oss server starts, answers completions and fails every chat, because its tokenizer wants a file from
the internet; and a copy that is cut off is deleted by it without a word. Rule: a whole copy is looked for before the boot and named to the
server by its variable; without one the boot says which file, with which digest, belongs where.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from results.redact import plain
from suites.recipes import Recipe
from suites.recipes.knowledge import VocabularyFile

FOLDER = "vocabularies"
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class OfflineVocabulary:
    """`environment` is what the server must be given, `folder` what a container must see of this machine; `missing` says what to do."""

    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    missing: str | None = None


def offline_vocabulary(
    recipe: Recipe, engine: str, version: str | None, cache_root: Path, environment: Mapping[str, str]
) -> OfflineVocabulary:
    """Look for the recipe's vocabulary file where the user's own variables point, then below `cache_root`. Nothing is fetched."""
    wanted = recipe.tokenizer.file if recipe.tokenizer is not None else None
    if wanted is None or not wanted.is_needed(engine, version):
        return OfflineVocabulary()
    ours = cache_root / FOLDER
    places = [
        (variable, Path(environment[variable]).expanduser().absolute(), name)
        for variable, name in ((wanted.folder_variable, wanted.name), (wanted.cache_variable, wanted.cache_name))
        if environment.get(variable)
    ]
    damaged: list[Path] = []
    for variable, folder, name in (*places, (wanted.cache_variable, ours, wanted.cache_name)):
        whole = _is_whole(folder / name, wanted)
        if whole:
            return OfflineVocabulary({variable: str(folder)}, folder)
        if whole is False:
            damaged.append(folder / name)
    return OfflineVocabulary(missing=_todo(recipe, wanted, ours / wanted.cache_name, damaged))


def _is_whole(path: Path, wanted: VocabularyFile) -> bool | None:
    """None if there is no such file."""
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > _MOST_BYTES:
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == wanted.sha256
    except OSError:
        return False


def _todo(recipe: Recipe, wanted: VocabularyFile, place: Path, damaged: list[Path]) -> str:
    found = f" {plain(str(damaged[0]), 300)} is not it (unreadable, or another sha256)." if damaged else ""
    by_hand = wanted.by_hand.replace("{folder}", plain(str(place.parent), 300))
    return (
        f"{recipe.name}: its tokenizer downloads {wanted.name} at the first chat request; without network every chat fails.{found} "
        f"To serve offline, put that file (sha256 {wanted.sha256[:16]}...) at {plain(str(place), 300)}. "
        f"With network and the Python package tiktoken this does it: {by_hand}"
    )
