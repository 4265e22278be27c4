"""What is known about a model before anybody measured it here: sizes, shapes, traps, known-bad combinations, other people's numbers.

Trap: a published number slides into a chart as if it had been measured, and a guessed size refuses a model that fits. Rule: every value
says where it comes from; a size without a source is None; a claim is never a sample.
"""

from __future__ import annotations

from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import Field, field_validator, model_validator

from suites.roofline import roofline_tok_s
from suites.toml_files import SOURCE, SuiteModel

LINK = r"^[A-Za-z0-9_.-]{1,60}/[A-Za-z0-9_.-]{1,80}#[0-9]{1,7}$"


class Weights(SuiteModel):
    """Bytes of the checkpoint's weights, and of those read for one token at batch 1. At least one of the two is given.

    `bound`: `exact`, `at_least` (the true number is not smaller: safe to refuse with) or `about`. `derivation` is the arithmetic in words,
    and `source` where its inputs come from. The embedding table counts in full in `total_bytes`, and not at all in `active_bytes` (one row
    is read) unless it is also the output layer.
    """

    total_bytes: int | None = Field(default=None, gt=0)
    active_bytes: int | None = Field(default=None, gt=0)
    bound: Literal["exact", "at_least", "about"]
    derivation: str = Field(min_length=10)
    source: str = Field(pattern=SOURCE)

    @model_validator(mode="after")
    def _says_something(self) -> Weights:
        if self.total_bytes is None and self.active_bytes is None:
            raise ValueError("give total_bytes, active_bytes or both; leave the table out if neither has a source")
        if self.total_bytes is not None and self.active_bytes is not None and self.active_bytes > self.total_bytes:
            raise ValueError("active_bytes cannot be more than total_bytes")
        return self

    @property
    def roofline_tok_s(self) -> float | None:
        """Ceiling on a GB10 (see `roofline_tok_s`); with `at_least`, the true ceiling is not higher. None without active bytes."""
        return None if self.active_bytes is None else roofline_tok_s(self.active_bytes)


class VocabularyFile(SuiteModel):
    """A file that the tokenizer downloads at the first chat request, unless it finds it on this machine.

    It looks for `cache_name` in the folder that the variable `cache_variable` names, else for `name` in that of `folder_variable`; with the
    latter it never downloads. A file whose sha256 differs is of no use, and in the former folder it is deleted. `by_hand` is a command that
    fetches it into `{folder}` under its cache name, on a machine with network.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")
    cache_name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")
    by_hand: str = Field(min_length=10, max_length=300)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    cache_variable: str = Field(pattern=r"^[A-Z][A-Z0-9_]{1,60}$")
    folder_variable: str = Field(pattern=r"^[A-Z][A-Z0-9_]{1,60}$")
    needed_by: dict[str, str] = Field(min_length=1)
    """Releases per engine that need it, as a PEP 440 specifier; others carry the vocabulary in themselves."""
    source: str = Field(pattern=SOURCE)

    @field_validator("needed_by")
    @classmethod
    def _are_specifiers(cls, spans: dict[str, str]) -> dict[str, str]:
        for engine, span in spans.items():
            try:
                SpecifierSet(span)
            except InvalidSpecifier:
                raise ValueError(f'{span!r} is no range of versions of {engine}; expected something like "<0.31.0"') from None
        return spans

    def is_needed(self, engine: str, version: str | None) -> bool:
        """Whether this release looks for it; a version that cannot be compared may."""
        span = self.needed_by.get(engine)
        if span is None or version is None:
            return span is not None
        try:
            return SpecifierSet(span).contains(Version(version), prereleases=True)
        except InvalidVersion:
            return True


class Tokenizer(SuiteModel):
    """What goes wrong with this model's text before any kernel runs."""

    file: VocabularyFile | None = None
    notes: tuple[str, ...] = ()
    source: str = Field(pattern=SOURCE)


class KnownBad(SuiteModel):
    """A combination that was reported broken: what happens, on which versions, and the way round. `link` is repository#number.

    `versions` is a PEP 440 specifier such as ">=0.20.0,<0.23.0" where the report allows one, else None: `seen_in` says what it was seen on.
    """

    engine: str
    kernel: str
    seen_in: str
    versions: str | None = None
    symptom: str
    workaround: str = ""
    link: str = Field(pattern=LINK)

    @field_validator("versions")
    @classmethod
    def _is_specifier(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                SpecifierSet(text)
            except InvalidSpecifier:
                raise ValueError(f'{text!r} is no range of versions; expected something like ">=0.20.0,<0.23.0"') from None
        return text

    def covers(self, engine: str, version: str) -> bool | None:
        """Whether the report is about this release; None if it names no range that can be compared."""
        if engine != self.engine:
            return False
        if self.versions is None:
            return None
        try:
            return SpecifierSet(self.versions).contains(Version(version), prereleases=True)
        except InvalidVersion:
            return None


class Claim(SuiteModel):
    """A decode rate that somebody published. Shown beside our measurements with its source, never stored or charted among them.

    `tok_s_low` and `tok_s_high` are equal for a single number. `version`, `context` and `date` (YYYY-MM or YYYY-MM-DD) are None where the
    source does not say; `note` holds what else it said (kernel, speculation, number of nodes).
    """

    engine: str
    version: str | None = None
    tok_s_low: float = Field(gt=0)
    tok_s_high: float = Field(gt=0)
    context: str | None = None
    date: str | None = Field(default=None, pattern=r"^\d{4}-\d{2}(-\d{2})?$")
    source: str = Field(pattern=SOURCE)
    note: str = ""

    @model_validator(mode="after")
    def _in_order(self) -> Claim:
        if self.tok_s_low > self.tok_s_high:
            raise ValueError("tok_s_low is more than tok_s_high")
        return self

    def above(self, weights: Weights | None) -> bool | None:
        """Whether even its low end lies above the roofline of these weights: then it read fewer bytes than the checkpoint says.

        None without a roofline, and for an `about` bound, which cannot decide it.
        """
        if weights is None or weights.roofline_tok_s is None or weights.bound == "about":
            return None
        return self.tok_s_low > weights.roofline_tok_s
