"""Backends: named sets of serve arguments and environment variables that choose kernels, in every version's own spelling.

Trap: `--moe-backend marlin` on vLLM 0.16 costs an install and a boot to learn that the flag came with 0.17, and the variable that did it
before 0.24 is silently ignored after. Rule: a backend is data, one TOML file beside this module, with one entry per engine and span of
versions; a version that cannot express it is unsupported with the reason, before anything is installed. Dimensions that do not touch each
other (experts, attention, KV cache, graphs, speculation) are combined by `+`; what contradicts itself is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator, model_validator

from suites.errors import SuiteError
from suites.toml_files import SuiteModel, read_toml

_HERE = Path(__file__).parent
ANY = "any"
JOIN = "+"
DEFAULT = "default"
_MOST_PARTS = 8


class Expression(SuiteModel):
    """How one span of versions of one engine expresses the backend, or why it cannot (`unsupported`).

    `versions` is a PEP 440 specifier such as ">=0.17.0,<0.22.0", or "any". `kernels` maps slots (attention, moe, linear, kv_cache_dtype,
    graph_mode) to the kernel asked for; what the server says ran is compared with it.
    """

    versions: str = ANY
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    kernels: dict[str, str] = Field(default_factory=dict)
    unsupported: str | None = None
    note: str = ""

    @field_validator("versions")
    @classmethod
    def _is_specifier(cls, text: str) -> str:
        if text != ANY:
            try:
                SpecifierSet(text)
            except InvalidSpecifier:
                raise ValueError(f'{text!r} is no range of versions; expected something like ">=0.17.0,<0.22.0" or "any"') from None
        return text

    @model_validator(mode="after")
    def _makes_sense(self) -> Expression:
        if self.unsupported is not None and (self.arguments or self.environment or self.kernels):
            raise ValueError("an unsupported span sets no arguments, environment or kernels")
        if problem := contradiction(self.arguments):
            raise ValueError(f"contradictory flags: {problem}")
        return self

    def covers(self, version: Version | None) -> bool:
        """Whether this entry is for `version`; an unknown version (None) is covered by "any" alone."""
        return self.versions == ANY or (version is not None and _within(self.versions, version))


class Backend(SuiteModel):
    """One backend file. Of an engine's entries the first that covers a version speaks for it; `engines` maps engine names to entries."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.=+-]{0,95}$")
    description: str = Field(min_length=1)
    engines: dict[str, tuple[Expression, ...]] = Field(min_length=1)


@dataclass(frozen=True)
class Combination:
    """Several backends at once, such as `marlin+ngram+TRITON_ATTN`; in order of name, so that one combination has one name."""

    parts: tuple[Backend, ...]

    @property
    def name(self) -> str:
        """The names of the parts."""
        return JOIN.join(part.name for part in self.parts)


AnyBackend = Backend | Combination


@dataclass(frozen=True)
class Expressed:
    """A backend in one version's own words. `configured` maps slots to the family of the kernel asked for, such as moe to marlin."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    configured: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Unsupported:
    """This version cannot express the backend; `reason` is a sentence such as "--moe-backend exists from 0.17.0"."""

    reason: str


@lru_cache(maxsize=1)
def load_all() -> Mapping[str, Backend]:
    """All backends of this folder by name, in order of name. Raises SuiteError with file and line."""
    backends: dict[str, Backend] = {}
    for path in sorted(_HERE.glob("*.toml")):
        backend = read_toml(path, Backend)
        if backend.name in backends:
            raise SuiteError(f"a second backend is called {backend.name!r}", where=str(path))
        backends[backend.name] = backend
    return dict(sorted(backends.items(), key=lambda item: item[0].casefold()))


def backend_for(name_or_path: str) -> AnyBackend:
    """The backend called so (case does not matter), read from a path ending in .toml, or several joined by `+`.

    Raises SuiteError with the nearest names.
    """
    if name_or_path.endswith(".toml") and Path(name_or_path).expanduser().exists():
        return _single(name_or_path)
    parts = name_or_path.split(JOIN)
    if len(parts) > _MOST_PARTS or not all(parts):
        raise SuiteError(f"{name_or_path[:80]!r} is no combination of backends.", todo="Write names joined by +, such as marlin+ngram.")
    found = {backend.name: backend for backend in map(_single, parts)}
    if len(found) > 1:
        found.pop(DEFAULT, None)
    chosen = [found[name] for name in sorted(found, key=str.casefold)]
    return chosen[0] if len(chosen) == 1 else Combination(tuple(chosen))


def _single(name_or_path: str) -> Backend:
    if name_or_path.endswith(".toml"):
        return read_toml(Path(name_or_path).expanduser(), Backend)
    known = load_all()
    folded = {name.casefold(): backend for name, backend in known.items()}
    found = known.get(name_or_path) or folded.get(name_or_path.casefold())
    if found is None:
        close = get_close_matches(name_or_path.casefold(), folded, n=3, cutoff=0.5)
        names = ", ".join(folded[name].name for name in close) if close else ", ".join(known)
        raise SuiteError(
            f"unknown backend {name_or_path[:80]!r}.", todo=f"{'Did you mean' if close else 'Known:'} {names}{'?' if close else '.'}"
        )
    return found


def express(backend: AnyBackend, engine: str, version: str) -> Expressed | Unsupported:
    """What `backend` sets for `engine` in `version`, or why that version cannot express it.

    An empty `version`, and one that is no PEP 440 version (a build number), is unknown: an entry for any version speaks for it. Raises
    SuiteError for a combination whose parts contradict each other there.
    """
    return _combined(backend, engine, version) if isinstance(backend, Combination) else _express(backend, engine, version)


def _combined(backend: Combination, engine: str, version: str) -> Expressed | Unsupported:
    arguments: list[str] = []
    environment: dict[str, str] = {}
    configured: dict[str, str] = {}
    problem: str | None = None
    for part in backend.parts:
        found = _express(part, engine, version)
        if isinstance(found, Unsupported):
            return found
        arguments += found.arguments
        differing = [name for name, value in found.environment.items() if environment.get(name, value) != value]
        problem = problem or (f"{differing[0]} is set twice, to different values" if differing else None)
        environment |= found.environment
        configured |= found.configured
    if problem := problem or contradiction(arguments):
        todo = "Combine backends that set different things (experts, attention, KV cache, graphs, speculation)."
        raise SuiteError(f"{backend.name} contradicts itself for {engine} {version}: {problem}.", todo=todo)
    return Expressed(tuple(arguments), environment, configured)


def _express(backend: Backend, engine: str, version: str) -> Expressed | Unsupported:
    entries = backend.engines.get(engine)
    if entries is None:
        return Unsupported(f"backend {backend.name} says nothing about {engine}; it knows {', '.join(sorted(backend.engines))}")
    parsed = _release(version)
    entry = next((item for item in entries if item.covers(parsed)), None)
    if entry is not None and entry.unsupported is None:
        return Expressed(entry.arguments, dict(entry.environment), dict(entry.kernels))
    if entry is not None:
        return Unsupported(f"{engine} {version}: {entry.unsupported}")
    if parsed is None:
        what = f"{engine} {version} is no release" if version else f"the version of {engine} is not known"
        return Unsupported(f"{what}, so it is not known which flags it has; use a backend without flags such as default")
    spans = "; ".join(item.versions for item in entries if item.unsupported is None)
    return Unsupported(f"{engine} {version} has no spelling of backend {backend.name} (known for {spans})")


def contradiction(arguments: Sequence[str]) -> str | None:
    """The first contradiction in `arguments` as a phrase: one flag with two values, a switch and its opposite, eager and a graph mode."""
    values: dict[str, str] = {}
    for flag, value in _occurrences(arguments):
        if values.setdefault(flag, value) != value:
            return f"{flag} is given as {values[flag]!r} and as {value!r}"
    for name in values:
        if name.startswith("--") and f"--no-{name[2:]}" in values:
            return f"{name} and --no-{name[2:]} are both given"
    graphs = next(
        (f"{name} {value}".strip() for name, value in values.items() if "cudagraph_mode" in f"{name} {value}".replace("-mode", "_mode")),
        None,
    )
    if "--enforce-eager" in values and graphs is not None and "NONE" not in graphs.upper():
        return f"--enforce-eager switches CUDA graphs off and {graphs} asks for them"
    return None


def _occurrences(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """(flag, its values joined by blanks) for every flag in order; a list of values belongs to one occurrence."""
    found: list[tuple[str, str]] = []
    for part in arguments:
        if part.startswith("-") and not _is_number(part):
            flag, _, value = part.partition("=")
            found.append((flag.replace("_", "-") if flag.startswith("--") else flag, value))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {part}".strip())
    return found


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


@lru_cache(maxsize=4096)
def _within(versions: str, version: Version) -> bool:
    return SpecifierSet(versions).contains(version, prereleases=True)


@lru_cache(maxsize=4096)
def _release(version: str) -> Version | None:
    """The release that `version` is or leads to; None for an unknown version and for a fork's or checkout's build number."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return None
    if parsed.dev is not None and parsed.pre is None and parsed.release[:2] in ((0, 0), (0, 1)):
        return None
    return Version(f"{parsed.base_version}.post{parsed.post}") if parsed.post is not None else Version(parsed.base_version)
