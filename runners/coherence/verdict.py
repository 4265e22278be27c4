"""The words of the structural judge.

Trap: "fail" without a kind, a place and a number cannot be argued with. Rule: every verdict carries its kind, one sentence, the index where
the broken part begins and the measurements behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class StructuralKind(StrEnum):
    """What an answer is, judged alone. All but `pass_structure` are broken."""

    PASS = "pass_structure"
    EMPTY = "empty"
    TOKEN_FLOOD = "token_flood"
    REPETITION_LOOP = "repetition_loop"
    TOKEN_SALAD = "token_salad"
    NONFINITE = "nonfinite"


@dataclass(frozen=True)
class StructuralVerdict:
    """`position` is the character (or token) index where the broken part begins; `numbers` are the measurements behind `reason`."""

    kind: StructuralKind
    reason: str
    position: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def broken(self) -> bool:
        return self.kind is not StructuralKind.PASS
