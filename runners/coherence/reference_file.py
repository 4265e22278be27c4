"""Known good references on disk: one JSON file per model, revision, chat template and set of prompts.

Trap: answers of last year's weights, of another chat template or of other prompts judge today's boot. Rule: the file is found by a key over
all of these, so a changed model has no reference rather than a wrong one; the file says which boots made it, and only the user's own word
(`sparkproof reference widen`) adds an answer later.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from runners.coherence.known_good import KnownAnswer, KnownGood, KnownPassage
from runners.errors import UsageError
from suites.toml_files import SuiteModel

FOLDER = "references"
_MOST_BYTES = 64 << 20
_TODO = "Make it anew: sparkproof reference make."


class Key(SuiteModel):
    """What a reference belongs to. `revision`: commit, or a fingerprint of the weights' files; `template`: of the chat template."""

    model: str
    revision: str | None
    template: str | None
    prompts: str

    @property
    def digest(self) -> str:
        """A short hash of everything."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def file_name(self) -> str:
        """A readable name that two different keys never share."""
        readable = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in self.model)[-60:].strip("._-")
        return f"{readable or 'model'}-{self.digest}.json"


class Made(SuiteModel):
    """One trusted boot behind the reference."""

    run_id: str
    made_at: str
    engine: str
    engine_version: str
    backend: str
    node: str
    kernels: dict[str, str] = Field(default_factory=dict)


class Answer(SuiteModel):
    """One known good answer of a prompt; `seen`: how often; `by`: whether trusted boots gave it or the user added it, and `why`."""

    text: str
    tokens: tuple[int | str, ...] = ()
    margins: tuple[float | None, ...] = ()
    seen: int = 1
    by: Literal["make", "widen"] = "make"
    run_id: str = ""
    why: str = ""


class Passage(SuiteModel):
    """Scores of one fixed text, how far honest other computations differed (nats), and the tokens where rounding may choose the expert."""

    logprobs: tuple[float | None, ...]
    floor_rms: float = Field(ge=0)
    floor_max: float = Field(ge=0)
    on_edge: tuple[int, ...] = ()


class Reference(SuiteModel):
    """The whole file: answers by prompt, token ids of the fixed texts by name, and their scores by numeric path and name."""

    format: Literal[1] = 1
    key: Key
    made: tuple[Made, ...]
    answers: dict[str, tuple[Answer, ...]] = Field(default_factory=dict)
    texts: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    passages: dict[str, dict[str, Passage]] = Field(default_factory=dict)

    def known_good(self) -> KnownGood:
        """As the gate uses it."""
        return KnownGood(
            answers={name: tuple(KnownAnswer(a.text, a.tokens, a.margins) for a in answers) for name, answers in self.answers.items()},
            texts=self.texts,
            passages={path: {name: _known(passage) for name, passage in scored.items()} for path, scored in self.passages.items()},
            source=self.source,
        )

    @property
    def source(self) -> str:
        """A sentence on where it comes from."""
        boots = ", ".join(f"{m.engine} {m.engine_version} ({m.backend}, {m.made_at[:10]})" for m in self.made)
        return f"Known good answers of {boots}."


def _known(passage: Passage) -> KnownPassage:
    return KnownPassage(passage.logprobs, passage.floor_rms, passage.floor_max, frozenset(passage.on_edge))


def read_reference(path: Path) -> Reference:
    """Read and check a file. Raises UsageError naming what is wrong and where."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}.", where=str(path), todo=_TODO) from error
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"is larger than {_MOST_BYTES:,} bytes.", where=str(path), todo=_TODO)
    try:
        return Reference.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"is no reference: {place}: {first['msg']}.", where=str(path), todo=_TODO) from error


def write_reference(path: Path, reference: Reference) -> None:
    """Write it whole or not at all. Raises UsageError if it cannot be written."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(reference.model_dump_json(indent=1, exclude_defaults=False) + "\n", encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise UsageError(f"cannot be written: {error.strerror}.", where=str(path), todo="Give another place with --to.") from error


def find_reference(key: Key, own: Path, shipped: Path) -> tuple[Path, Reference] | None:
    """The user's own reference of `key`, else the shipped one; None if there is none.

    Raises UsageError for a file that cannot be used, or an own one that belongs to another key. A shipped one of another key is another
    state of that model, which has no reference.
    """
    path = own / key.file_name
    if path.is_file():
        reference = read_reference(path)
        if reference.key != key:
            raise UsageError(
                "belongs to another model, revision, template or set of prompts than its name says.", where=str(path), todo=_TODO
            )
        return path, reference
    path = shipped / f"{key.model.replace('/', '-')}.json" if key.model.count("/") == 1 and ".." not in key.model else shipped / "none"
    if path.is_file():
        reference = read_reference(path)
        return (path, reference) if reference.key == key else None
    return None
