"""Which prompts the gate asks, in which order and how many at once.

Trap: a stale cache, a wrong graph replay or a race shows only when other prompts ran in between, when the batch is larger, or when a batch
size comes back; a gate of one pass in one order sees none of it. Rule: prompts A cold (alone, then a few at a time), other prompts B, A
again in another order, long and short ones together in one batch of eight, then A through the chat endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suites.canaries.zoo import Canary, GoldenPrompt

EXTRA_TOKENS = 8
"""An answer may be this much longer than the golden one: the engine's own stop must end it."""
MIXED = 8
RECHECKED = 8
_ALONE = 6
_CHAT = 7


@dataclass(frozen=True)
class GoldenStep:
    """`prompts` asked in order, at most `concurrency` at once; `chat`: through /v1/chat/completions."""

    name: str
    concurrency: int
    prompts: tuple[GoldenPrompt, ...]
    chat: bool = False


def canary_steps(canary: Canary) -> tuple[GoldenStep, ...]:
    """The steps of the whole gate of a canary."""
    prompts = canary.prompts
    mixed = _mixed_lengths(prompts)
    others = tuple(p for p in reversed(prompts) if p not in mixed)
    with_messages = [p for p in prompts if p.messages]
    stride = max(len(with_messages) // _CHAT, 1)
    steps = (
        GoldenStep("cold", 1, prompts[:_ALONE]),
        GoldenStep("cold_batch", 4, prompts[_ALONE:]),
        GoldenStep("bos", 16, canary.bos_prompts),
        GoldenStep("again", 8, others),
        GoldenStep("mixed", MIXED, mixed),
        GoldenStep("alone_again", 1, prompts[:2]),
        GoldenStep("chat", 4, tuple(with_messages[::stride][:_CHAT]), chat=True),
    )
    return tuple(step for step in steps if step.prompts)


def recheck_steps(canary: Canary) -> tuple[GoldenStep, ...]:
    """The first prompts once more, after load."""
    return (GoldenStep("recheck", 4, canary.prompts[:RECHECKED]),)


def _mixed_lengths(prompts: Sequence[GoldenPrompt]) -> tuple[GoldenPrompt, ...]:
    """The longest (prompt and answer) and the shortest, alternating, `MIXED` of them."""
    by_length = sorted(prompts, key=lambda p: len(p.prompt_ids) + len(p.answer_ids), reverse=True)
    half = min(MIXED, len(by_length)) // 2
    longest, shortest = by_length[:half], by_length[len(by_length) - half :]
    return tuple(p for pair in zip(longest, reversed(shortest), strict=True) for p in pair)
