"""Recipes: which model is served, from where, and how its answers are judged. One TOML file each beside this module."""

from __future__ import annotations

import hashlib
import json
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from suites.errors import SuiteError
from suites.toml_files import SuiteModel, read_toml

_HERE = Path(__file__).parent


class Source(SuiteModel):
    """Where the weights come from; exactly one of the fields is given."""

    canary: str | None = None
    """Name of one of our canaries; expanded from the tracked packed file."""
    gguf_package: str | None = None
    """A package of the configured index that carries one GGUF file; dequantised to bf16 once."""
    path: str | None = None
    """A local checkpoint folder."""
    served: str | None = None
    """A model that an @endpoint already serves."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Source:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of canary, gguf_package, path, served is needed, found {given or 'none'}")
        return self


class Recipe(SuiteModel):
    """A model and how to judge it. `kind` decides the gate: a canary has exact golden ids, a model is judged structurally."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    description: str = ""
    kind: Literal["canary", "model"]
    source: Source
    weight_format: str = "bf16"
    quantization: str | None = None
    revision: str | None = None
    max_model_len: int = Field(default=2048, ge=64)
    bos: Literal["auto", "omit"] = "auto"
    """`omit` sends prompts without the BOS token: only to show that the gate sees it."""
    arguments: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Default serve arguments per engine name."""

    @property
    def launch_bound(self) -> bool:
        """A canary's speed is launch overhead, never a model's speed."""
        return self.kind == "canary"

    @property
    def model(self) -> str:
        """A readable id of what is served."""
        source = self.source
        return source.served or source.path or source.gguf_package or f"canary/{source.canary}"

    @property
    def recipe_id(self) -> str:
        """Hash of everything that is written in the recipe, except prose."""
        definition = self.model_dump(mode="json", exclude={"description"})
        return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:16]


def all_recipes() -> dict[str, Recipe]:
    """Every recipe that ships with Sparkproof, by name."""
    recipes = [read_toml(path, Recipe) for path in sorted(_HERE.glob("*.toml"))]
    return {recipe.name: recipe for recipe in recipes}


def recipe_for(model: str) -> Recipe:
    """The recipe called `model`, or one made for a local checkpoint folder. Raises SuiteError naming what is wrong and what exists."""
    recipes = all_recipes()
    if model in recipes:
        return recipes[model]
    path = Path(model).expanduser()
    if "/" in model or path.exists():
        return _local(path)
    close = get_close_matches(model, recipes, n=3) or sorted(recipes)
    raise SuiteError(f"unknown model {model[:80]!r}.", todo=f"Known: {', '.join(close)}; or give the path of a checkpoint folder.")


def _local(path: Path) -> Recipe:
    config = path / "config.json"
    try:
        with config.open("rb") as f:
            f.read(1)
    except OSError as error:
        message = f"is not a checkpoint folder that can be read: config.json: {error.strerror}."
        raise SuiteError(message, where=str(path), todo="Give the path of a folder with config.json and weights.") from error
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in path.resolve().name.lower()).strip("._-")[:64] or "model"
    return Recipe(name=name, kind="model", source=Source(path=str(path.resolve())))
