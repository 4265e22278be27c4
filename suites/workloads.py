"""What is timed: how many prompt tokens go in, how many completion tokens must come out, and how many streams run at once.

Trap: two tools time "the same model" with different lengths and concurrency and disagree by a factor. Rule: a workload is a named, frozen
shape; its name is stored with every sample, and changing a shape means a new name (and a new `PROTOCOL_VERSION`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ConfigDict, Field

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"workload name {name!r}: use 1-40 of a-z, 0-9 and _, starting with a letter")
    return name


Count = Annotated[int, Field(ge=1)]
"""Checked where a file is read, so that the error names the line; `__post_init__` checks what code makes."""


@dataclass(frozen=True)
class Workload:
    """`repeats` batches of `concurrency` streams started together; each stream has exactly these token counts (M12, M15)."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: Annotated[str, AfterValidator(_checked)]
    prompt_tokens: Count
    completion_tokens: Count
    concurrency: Count
    repeats: Count

    def __post_init__(self) -> None:
        _checked(self.name)
        for field_name in ("prompt_tokens", "completion_tokens", "concurrency", "repeats"):
            value = getattr(self, field_name)
            if value < 1:
                raise ValueError(f"workload {self.name}: {field_name} is {value}, must be at least 1")

    @property
    def total_tokens(self) -> int:
        """Context length one stream needs."""
        return self.prompt_tokens + self.completion_tokens


DECODE_C1 = Workload("decode_c1", prompt_tokens=128, completion_tokens=256, concurrency=1, repeats=5)
DECODE_C8 = Workload("decode_c8", prompt_tokens=128, completion_tokens=256, concurrency=8, repeats=5)

STANDARD_WORKLOADS = (DECODE_C1, DECODE_C8)
