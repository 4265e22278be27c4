"""Plain questions with one short right answer, for instruct models. Data: `chat_golden.toml`.

Trap: a benchmark of knowledge measures the model, not the engine. Rule: questions that every instruct model of some billion parameters
answers, short and exact, so that a wrong answer says that something under the model is wrong.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from suites.toml_files import SuiteModel, read_toml

_FILE = Path(__file__).with_name("chat_golden.toml")


class Question(SuiteModel):
    """One question. `accept`: words of a right answer; `reject`: words that make it wrong even beside a right one."""

    name: str = Field(pattern=r"^golden_[a-z0-9_]{1,40}$")
    ask: str = Field(min_length=1)
    system: str | None = None
    accept: tuple[str, ...] = Field(min_length=1)
    reject: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """(role, content) pairs for the chat template."""
        system = (("system", self.system),) if self.system is not None else ()
        return (*system, ("user", self.ask))


class _Questions(SuiteModel):
    questions: tuple[Question, ...] = Field(min_length=1)


@lru_cache(maxsize=1)
def chat_golden() -> tuple[Question, ...]:
    """All questions. Raises SuiteError with file and line."""
    return read_toml(_FILE, _Questions).questions


def chat_golden_digest() -> str:
    """What the questions are, as part of a reference's key."""
    return hashlib.sha256(_FILE.read_bytes()).hexdigest()
