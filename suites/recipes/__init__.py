"""Recipes: which model is served, from where, and how its answers are judged. TOML beside this module and in `official/`.

Trap: a correction of a note or a newly published number changes what a model "is", and its history starts anew. Rule: `recipe_id` hashes
what is served and nothing that is merely known about it.
"""

from __future__ import annotations

import hashlib
import json
import re
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Literal

from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator, model_validator

from suites.errors import SuiteError
from suites.kv_cache import KvShape
from suites.recipes.knowledge import Claim, KnownBad, Tokenizer, Weights
from suites.regular_file import not_regular
from suites.roofline import LEAST_BYTES
from suites.shapes import MAX_MODEL_LEN, PREFIX, Shape, all_shapes
from suites.toml_files import SuiteModel, read_toml

_HERE = Path(__file__).parent
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_SERVED_FIELDS = frozenset(
    {"name", "kind", "source", "weight_format", "quantization", "revision", "max_model_len", "bos", "arguments", "environment"}
)


class Source(SuiteModel):
    """Where the weights come from; exactly one of the fields is given."""

    canary: str | None = None
    """Name of one of our canaries; expanded from the tracked packed file."""
    shape: str | None = None
    """Name of one of our shapes: a configuration that the engine fills with random weights."""
    gguf_package: str | None = None
    """A package of the configured index that carries one GGUF file; dequantised to bf16 once."""
    hub: str | None = Field(default=None, pattern=rf"^{_HUB_ID.pattern}$")
    """`owner/name` on a Hugging Face hub; `revision` of the recipe pins it."""
    path: str | None = None
    """A local checkpoint folder."""
    served: str | None = None
    """A model that an @endpoint already serves."""
    unpublished: str | None = None
    """Nothing can be served: what was measured by others, and why there are no weights. Kept for its claims."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Source:
        given = [name for name, value in self if value is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(type(self).model_fields)} is needed, found {given or 'none'}")
        return self


class Recipe(SuiteModel):
    """A model and how to judge it. `kind` decides the gate: a canary has exact golden ids, a model is judged structurally, and a shape
    (random weights) says nothing worth judging: its canaries stand for it."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    description: str = ""
    kind: Literal["canary", "shape", "model"]
    source: Source
    weight_format: str = "bf16"
    formats: tuple[str, ...] = ()
    """Further weight formats of a canary; each is a recipe of its own, called `<name>-<format>`."""
    quantization: str | None = None
    revision: str | None = None
    max_model_len: int = Field(default=2048, ge=64)
    bos: Literal["auto", "omit"] = "auto"
    """`omit` sends prompts without the BOS token: only to show that the gate sees it."""
    arguments: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Default serve arguments per engine name."""
    environment: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Environment variables of the server per engine name."""

    nodes: int = Field(default=1, ge=1)
    """Sparks that the combination was reported on; more than one cannot be booted here yet."""
    minimum_version: dict[str, str] = Field(default_factory=dict)
    """Oldest release per engine that can serve it."""
    image: dict[str, str] = Field(default_factory=dict)
    """Container image per engine that the source names."""
    verified: str | None = None
    """Who verified this combination on a GB10, in words; None if nobody did."""
    vram_minimum_gb: float | None = Field(default=None, gt=0)
    """Memory that the source of `verified` asks for, in GB; it counts more than weights."""
    reasoning_parser: dict[str, str] = Field(default_factory=dict)
    """Name of the reasoning parser per engine; with one, `content` may be null (M5)."""
    instruct: bool = False
    """The model answers plain questions (`suites/chat_golden.toml`): missing them makes a boot wrong. Without it they are only recorded."""
    weights: Weights | None = None
    kv: KvShape | None = None
    tokenizer: Tokenizer | None = None
    known_bad: tuple[KnownBad, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()

    @field_validator("minimum_version")
    @classmethod
    def _are_versions(cls, versions: dict[str, str]) -> dict[str, str]:
        for engine, version in versions.items():
            try:
                Version(version)
            except InvalidVersion:
                raise ValueError(f"{version!r} is no version of {engine}; expected something like 0.28.0") from None
        return versions

    def variants(self) -> tuple[Recipe, ...]:
        """This recipe and one for each of its further `formats`; what is known about the size of one format says nothing of another."""
        others = (
            self.model_copy(
                update={
                    "name": f"{self.name}-{weight_format}",
                    "description": f"{self.description} The same weights as {weight_format}, exactly.",
                    "weight_format": weight_format,
                    "formats": (),
                    "weights": None,
                }
            )
            for weight_format in self.formats
        )
        return (self, *others)

    def runs_its_own_code(self, engine: str) -> bool:
        """Whether the engine is told to run code out of the model's repository; only a recipe's own arguments can say so."""
        return any(a.partition("=")[0] in ("--trust-remote-code", "--trust_remote_code") for a in self.arguments.get(engine, ()))

    @property
    def launch_bound(self) -> bool:
        """The speed of a canary, and of a tiny shape, is launch overhead, never a model's speed."""
        tiny = self.weights is not None and (self.weights.active_bytes or 0) < LEAST_BYTES
        return self.kind == "canary" or (self.kind == "shape" and tiny)

    @property
    def dummy(self) -> bool:
        """Its weights are random: its speed can be timed, its text means nothing."""
        return self.kind == "shape"

    @property
    def turn(self) -> int:
        """What is measured first, so that a broken path costs a minute: canaries, then shapes, then models."""
        return ("canary", "shape", "model").index(self.kind)

    @property
    def model(self) -> str:
        """A readable id of what is served."""
        source = self.source
        canary = f"canary/{source.canary}" if self.weight_format == "bf16" else f"canary/{source.canary}-{self.weight_format}"
        shape = f"shape/{source.shape}" if source.shape is not None else None
        return source.served or source.path or source.hub or source.gguf_package or source.unpublished or shape or canary

    @property
    def recipe_id(self) -> str:
        """Hash of what is served and how. What is only known about it (sizes, claims, notes, prose) may change without a new history."""
        definition = self.model_dump(mode="json", include=set(_SERVED_FIELDS), exclude_none=True)
        return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:16]

    def unsupported(self, engine: str, version: str | None) -> str | None:
        """Why this cannot be booted on one node with this release, as a sentence; None if nothing speaks against it."""
        if self.source.unpublished is not None:
            return f"{self.name} cannot be served: {self.source.unpublished}"
        if self.dummy and engine not in self.arguments:
            return f"{self.name} needs an engine that loads random weights ({', '.join(self.arguments)}); {engine} is not known to."
        if self.nodes > 1:
            return f"{self.name} was reported on {self.nodes} nodes; one boot uses one node."
        minimum = self.minimum_version.get(engine)
        if minimum is None or version is None:
            return None
        try:
            too_old = Version(version) < Version(minimum)
        except InvalidVersion:
            return None
        return f"{self.name} needs {engine} {minimum} or newer, not {version}." if too_old else None

    def known_bad_for(self, engine: str, version: str) -> tuple[KnownBad, ...]:
        """Reports about this engine that cover the release, or that name no range which could exclude it."""
        return tuple(report for report in self.known_bad if report.covers(engine, version) is not False)


class _RecipeFile(SuiteModel):
    recipes: tuple[Recipe, ...] = Field(min_length=1)


def all_recipes() -> dict[str, Recipe]:
    """Every recipe that ships with Sparkproof, by name. Raises SuiteError for a file that cannot be used, or a name given twice."""
    return dict(_shipped())


@lru_cache(maxsize=1)
def _shipped() -> tuple[tuple[str, Recipe], ...]:
    found = [(path, recipe) for path in sorted(_HERE.glob("*.toml")) for recipe in read_toml(path, Recipe).variants()]
    for path in sorted((_HERE / "official").glob("*.toml")):
        found += [(path, recipe) for recipe in read_toml(path, _RecipeFile).recipes]
    found += [(Path(shape.family.name), _of_shape(shape)) for shape in all_shapes().values()]
    recipes: dict[str, Recipe] = {}
    for path, recipe in found:
        if recipe.name in recipes:
            raise SuiteError(f"there are two recipes called {recipe.name!r}.", where=str(path), todo="Rename one of them.")
        recipes[recipe.name] = recipe
    return tuple(recipes.items())


def _of_shape(shape: Shape) -> Recipe:
    active, total, form = shape.active_parameters, shape.parameters, shape.weight_format
    return Recipe(
        name=f"{PREFIX}{shape.name}",
        description=f"The shape of {shape.family.name} in {form}{', made tiny' if shape.is_tiny else ''}, with dummy weights.",
        kind="shape",
        source=Source(shape=shape.name),
        weight_format=form,
        quantization=None if form == "bf16" else form,
        revision=shape.revision,
        max_model_len=MAX_MODEL_LEN,
        arguments={engine: ("--load-format", "dummy") for engine in ("vllm", "sglang")},
        weights=Weights(
            total_bytes=shape.total_bytes,
            active_bytes=shape.active_bytes,
            bound="exact",
            derivation=f"{total:,} parameters, {active:,} read per token, counted tensor by tensor in the layout of a {form} checkpoint.",
            source=shape.family.source,
        ),
        kv=shape.kv,
    )


def recipe_for(model: str) -> Recipe:
    """The recipe called `model` or made for that hub id, else one made for a checkpoint folder or a hub id (`owner/name`).

    Raises SuiteError naming what is wrong and what exists.
    """
    recipes = all_recipes()
    if model in recipes:
        return recipes[model]
    path = Path(model).expanduser()
    if not path.exists() and _HUB_ID.fullmatch(model):
        return _from_hub(model, recipes)
    if "/" in model or path.exists():
        return _local(path)
    known = ", ".join(get_close_matches(model, recipes, n=3) or list(recipes)[:12])
    raise SuiteError(f"unknown model {model[:80]!r}.", todo=f"Known: {known}; or give a checkpoint folder or a hub id (owner/name).")


def _from_hub(model: str, recipes: dict[str, Recipe]) -> Recipe:
    written = [recipe for recipe in recipes.values() if recipe.source.hub is not None and recipe.source.hub.lower() == model.lower()]
    if len(written) == 1:
        return written[0]
    if written:
        names = ", ".join(recipe.name for recipe in written)
        raise SuiteError(f"several recipes serve {model}.", todo=f"Name one of them: {names}.")
    return Recipe(name=_name(model), kind="model", source=Source(hub=model))


def _local(path: Path) -> Recipe:
    config = path / "config.json"
    try:
        if (what := not_regular(config)) is not None:
            raise OSError(0, what)
        with config.open("rb") as f:
            f.read(1)
    except OSError as error:
        message = f"is not a checkpoint folder that can be read: config.json: {error.strerror}."
        raise SuiteError(message, where=str(path), todo="Give the path of a folder with config.json and weights.") from error
    return Recipe(name=_name(path.resolve().name), kind="model", source=Source(path=str(path.resolve())))


def _name(text: str) -> str:
    """A recipe's name for something that has none; never one that would be taken for a shape, whose weights are random."""
    name = "".join(c if (c.isascii() and c.isalnum()) or c in "._-" else "-" for c in text.lower()).strip("._-")
    return (f"model-{name}" if name.startswith(PREFIX) else name)[:64] or "model"
