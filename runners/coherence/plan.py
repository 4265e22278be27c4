"""Which prompts the gate asks a canary, in which order and how many at once.

Trap: a stale cache, a wrong graph replay or a race shows only when other prompts ran in between, when the batch is larger, or when a batch
size comes back; a gate of one pass in one order sees none of it. Rule: each step changes one thing against the steps before it (alone;
again; other inputs of the same shape; four at once; long; eight at once of mixed lengths; ...), so that the step that differs first names
the mechanism (`runners.coherence.findings`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from runners.coherence.determinism import CONCURRENCY, REPEAT_ALONE, REPEAT_TOGETHER, REPEATS
from suites.canaries.zoo import Canary, GoldenPrompt

EXTRA_TOKENS = 8
"""An answer may be this much longer than the golden one: the engine's own stop must end it."""
MIXED = 8
RECHECKED = 8
LONG_TOKENS = 256
"""A prompt from this length on is a long one."""
_ALONE = 6
_WARM = 2
_CHAT = 6
_STREAMED = 3


class Via(StrEnum):
    """How a prompt is sent: as ids, through the chat endpoint, or streamed by it."""

    IDS = "ids"
    CHAT = "chat"
    STREAM = "stream"


@dataclass(frozen=True)
class GoldenStep:
    """`prompts` asked in order, at most `concurrency` at once."""

    name: str
    concurrency: int
    prompts: tuple[GoldenPrompt, ...]
    via: Via = Via.IDS


def canary_steps(canary: Canary, *, chat: bool = True) -> tuple[GoldenStep, ...]:
    """The steps of the whole gate of a canary; `chat` False: without those that go through the chat endpoint."""
    prompts = canary.prompts
    long = tuple(p for p in prompts if len(p.prompt_ids) >= LONG_TOKENS)
    alone = tuple(p for p in prompts if p not in long)[:_ALONE]
    mixed = _mixed_lengths(prompts)
    others = tuple(p for p in reversed(prompts) if p not in mixed)[::2]
    chats = [p for p in prompts if p.messages and p not in long]
    with_system = tuple(p for p in chats if any(role == "system" for role, _ in p.messages))
    without_system = _spread([p for p in chats if p not in with_system], _CHAT)
    repeated = _shortest(prompts)
    steps = (
        GoldenStep("cold", 1, alone),
        GoldenStep("warm", 1, alone[:_WARM]),
        GoldenStep("aba_replay", 1, _replayed(prompts)),
        GoldenStep("batch_4", 4, tuple(p for p in prompts if p not in alone and p not in long)),
        GoldenStep("long_prompt", 1, tuple(p for p in long if len(p.answer_ids) < LONG_TOKENS)),
        GoldenStep("batch_8", MIXED, mixed),
        GoldenStep("bos", 16, canary.bos_prompts),
        GoldenStep("again", 8, others),
        GoldenStep(REPEAT_ALONE, CONCURRENCY[REPEAT_ALONE], repeated * REPEATS[REPEAT_ALONE]),
        GoldenStep(REPEAT_TOGETHER, CONCURRENCY[REPEAT_TOGETHER], repeated * REPEATS[REPEAT_TOGETHER]),
        GoldenStep("chat", 4, without_system, Via.CHAT),
        GoldenStep("system_message", 1, with_system[:_WARM], Via.CHAT),
        GoldenStep("streaming", _STREAMED, without_system[:_STREAMED], Via.STREAM),
    )
    return tuple(step for step in steps if step.prompts and (chat or step.via is Via.IDS))


def recheck_steps(canary: Canary) -> tuple[GoldenStep, ...]:
    """The first prompts once more, after load."""
    return (GoldenStep("recheck", 4, canary.prompts[:RECHECKED]),)


def _mixed_lengths(prompts: Sequence[GoldenPrompt]) -> tuple[GoldenPrompt, ...]:
    """The longest (prompt and answer) and the shortest, alternating, `MIXED` of them."""
    by_length = sorted(prompts, key=_length, reverse=True)
    half = min(MIXED, len(by_length)) // 2
    longest, shortest = by_length[:half], by_length[len(by_length) - half :]
    return tuple(p for pair in zip(longest, reversed(shortest), strict=True) for p in pair)


def _replayed(prompts: Sequence[GoldenPrompt]) -> tuple[GoldenPrompt, ...]:
    """A, B, A: the two shortest prompts of one length, so that a captured graph of one shape sees other inputs in between."""
    pairs = [(a, b) for a, b in combinations(prompts, 2) if len(a.prompt_ids) == len(b.prompt_ids) and a.answer_ids != b.answer_ids]
    if not pairs:
        return ()
    first, second = min(pairs, key=lambda pair: _length(pair[0]) + _length(pair[1]))
    return first, second, first


def _shortest(prompts: Sequence[GoldenPrompt]) -> tuple[GoldenPrompt, ...]:
    return (min(prompts, key=_length),) if prompts else ()


def _spread(prompts: Sequence[GoldenPrompt], count: int) -> tuple[GoldenPrompt, ...]:
    """`count` of them, evenly spaced."""
    return tuple(prompts[:: max(len(prompts) // count, 1)][:count])


def _length(prompt: GoldenPrompt) -> int:
    return len(prompt.prompt_ids) + len(prompt.answer_ids)
