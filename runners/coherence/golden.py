"""Is this answer exactly the known good one?

Trap: greedy decoding is called deterministic, but two logits may be exactly equal, and then either token is right (seen with bf16 on the
CPU); and an answer that is right in every token but does not stop where it should is not right. Rule: ids are compared exactly, the
engine's own stop is part of the answer, and only an exact tie between the two ids in question excuses a divergence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from runners.engines.base import GreedyAnswer

STOPPED = "stop"


class GoldenKind(StrEnum):
    """How an answer compares with the known good one."""

    MATCH = "match"
    TIE = "tie"
    WRONG = "wrong"


@dataclass(frozen=True)
class MarginStatistics:
    """Least top1-top2 gap of an answer, in nats, up to and including its first divergence; None where nothing was measured."""

    least: float | None = None
    least_position: int | None = None


@dataclass(frozen=True)
class GoldenVerdict:
    """`first_divergence` is the index of the first token that differs, is missing or is one too many; None for a match."""

    kind: GoldenKind
    reason: str
    first_divergence: int | None
    margins: MarginStatistics


def judge_golden(answer: GreedyAnswer, expected: Sequence[int], eos_id: int) -> GoldenVerdict:
    """Compare `answer` with the golden ids, which end with `eos_id`."""
    ids = _with_stop(answer, expected, eos_id)
    position = next((i for i, (got, want) in enumerate(zip(ids, expected, strict=False)) if got != want), min(len(ids), len(expected)))
    margins = margin_statistics(answer, position)
    if position == len(expected) == len(ids):
        if answer.finish_reason == STOPPED:
            return GoldenVerdict(GoldenKind.MATCH, f"All {len(expected)} tokens are the golden ones.", None, margins)
        reason = f"All tokens are the golden ones, but the engine ended the answer with {answer.finish_reason!r} and not by its own stop."
        return GoldenVerdict(GoldenKind.WRONG, reason, position, margins)
    if _is_tie(answer, position, expected):
        reason = f"Token {position} is {ids[position]} and not {expected[position]}: both are exactly as likely, so either is right."
        return GoldenVerdict(GoldenKind.TIE, reason, position, margins)
    return GoldenVerdict(GoldenKind.WRONG, _difference(ids, expected, position), position, margins)


def _with_stop(answer: GreedyAnswer, expected: Sequence[int], eos_id: int) -> tuple[int, ...]:
    """The ids with the end-of-sequence id, for an engine that stops at it without listing it."""
    listed = answer.token_ids
    if answer.finish_reason == STOPPED and len(listed) == len(expected) - 1 and expected[-1] == eos_id and eos_id not in listed:
        return (*listed, eos_id)
    return listed


def _is_tie(answer: GreedyAnswer, position: int, expected: Sequence[int]) -> bool:
    """True if the chosen id and the golden id had exactly the same, highest log-probability (the adapter names the one not chosen)."""
    if position >= min(len(answer.margins), len(answer.top1_ids), len(expected)):
        return False
    return answer.margins[position] == 0.0 and answer.top1_ids[position] == expected[position]


def _difference(ids: Sequence[int], expected: Sequence[int], position: int) -> str:
    if position >= len(expected):
        return f"The answer goes on after its {len(expected)} golden tokens, with token {ids[position]}: the engine did not stop."
    if position >= len(ids):
        return f"The answer ends after {len(ids)} of {len(expected)} golden tokens."
    return f"Token {position} of {len(expected)} is {ids[position]} and should be {expected[position]}."


def margin_statistics(answer: GreedyAnswer, divergence: int) -> MarginStatistics:
    """Least margin up to and including the divergence."""
    measured = [(margin, i) for i, margin in enumerate(answer.margins[: divergence + 1]) if margin is not None]
    return MarginStatistics(*min(measured, default=(None, None)))
