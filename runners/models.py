"""From a recipe to something a server can load: a local folder, and what a timed prompt must know of its vocabulary.

Trap: weights are downloaded or converted again for every boot, or half a conversion is served. Rule: every source becomes one verified
folder, made once; a hub's files are fetched only if the user said so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runners import hub
from runners.errors import InfrastructureError, Unsupported, UsageError
from runners.gguf_models import dequantised
from suites.canaries import zoo
from suites.recipes import Recipe
from suites.shapes import checkpoint, shape_for

_MAX_JSON_BYTES = 200_000_000


@dataclass(frozen=True)
class LocalModel:
    """What is served. `path` is None for an endpoint's model; `special_ids` must not occur in a timed prompt."""

    name: str
    path: Path | None
    vocab_size: int | None = None
    bos_id: int | None = None
    special_ids: frozenset[int] = frozenset()
    canary: zoo.Canary | None = None
    commit: str | None = None
    """The commit of a hub's model; None for every other source."""


def materialise(recipe: Recipe, cache_root: Path, progress: Callable[[str], None], *, may_download: bool = False) -> LocalModel:
    """Make the recipe's model available locally.

    Raises UsageError (unreadable folder; a download that was not allowed), Unsupported (no weights were published) or InfrastructureError
    (damaged files of a canary, among others).
    """
    source = recipe.source
    if source.unpublished is not None:
        raise Unsupported(f"{recipe.name} cannot be served: {source.unpublished}")
    if source.served is not None:
        return LocalModel(source.served, None)
    if source.canary is not None:
        return _canary(recipe.name, source.canary, recipe.weight_format, cache_root / "canaries")
    if source.shape is not None:
        return _read(recipe.name, shape_folder(source.shape, cache_root), None)
    if source.gguf_package is not None:
        return _read(recipe.name, dequantised(source.gguf_package, cache_root, progress), None)
    if source.hub is not None:
        snapshot = hub.resolve(source.hub, recipe.revision, progress, may_download=may_download)
        return replace(_read(recipe.name, snapshot.folder, None), commit=snapshot.commit)
    return _read(recipe.name, Path(source.path or ""), None)


def pinned(recipe: Recipe, commit: str | None) -> Recipe:
    """The recipe with the commit that was served in place of a branch, or of no revision at all."""
    return recipe if commit is None or commit == recipe.revision else recipe.model_copy(update={"revision": commit})


def as_served_now(recipe: Recipe) -> Recipe:
    """The recipe as a boot would record it from the hub's copy on this machine, without asking the hub; as it is if there is none."""
    snapshot = hub.cached(recipe.source.hub, recipe.revision) if recipe.source.hub is not None else None
    return pinned(recipe, snapshot.commit if snapshot is not None else None)


def _canary(recipe_name: str, canary: str, weight_format: str, folder: Path) -> LocalModel:
    try:
        loaded = zoo.load(canary)
        checkpoint = zoo.materialise(canary, weight_format, folder)
    except zoo.CanaryError as error:
        raise InfrastructureError(str(error), todo="See: sparkproof canary verify.") from error
    return _read(recipe_name, checkpoint, loaded)


def shape_folder(shape: str, cache_root: Path) -> Path:
    """The folder of the shape called so, made if need be. Raises SuiteError (no such shape) or InfrastructureError (not writable)."""
    try:
        return checkpoint.write(shape_for(shape), cache_root / "shapes")
    except OSError as error:
        raise InfrastructureError(
            f"the shape {shape} cannot be written: {error.strerror}.", where=str(error.filename or cache_root)
        ) from error


def check_available(recipe: Recipe) -> None:
    """Refuse a model that would have to be downloaded. Raises UsageError with its size and the free space, or InfrastructureError."""
    if recipe.source.hub is not None:
        hub.resolve(recipe.source.hub, recipe.revision, lambda line: None, may_download=False)


def _read(name: str, folder: Path, canary: zoo.Canary | None) -> LocalModel:
    config = _json(folder / "config.json")
    inner = config.get("text_config")
    text_config: dict[str, Any] = inner if isinstance(inner, dict) else config
    bos = text_config.get("bos_token_id", config.get("bos_token_id"))
    vocab = text_config.get("vocab_size")
    added = _json(folder / "tokenizer.json").get("added_tokens", []) if (folder / "tokenizer.json").exists() else []
    return LocalModel(
        name=name,
        path=folder,
        vocab_size=vocab if isinstance(vocab, int) else None,
        bos_id=bos if isinstance(bos, int) else None,
        special_ids=frozenset(t["id"] for t in added if isinstance(t, dict) and isinstance(t.get("id"), int)),
        canary=canary,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise UsageError("is too large to be a model's configuration", where=str(path))
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path), todo="Give the path of a checkpoint folder.") from error
    except ValueError as error:
        raise UsageError(f"is not JSON: {error}", where=str(path), todo="Give the path of a checkpoint folder.") from error
    if not isinstance(data, dict):
        raise UsageError("is not a JSON object", where=str(path), todo="Give the path of a checkpoint folder.")
    return data
