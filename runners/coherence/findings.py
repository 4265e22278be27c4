"""What is wrong with a boot beyond single answers, and which step of the gate points where.

Trap: "3 answers differ" leaves a maintainer with the whole engine to search. Rule: the steps of the gate change one thing at a time, in a
fixed order, so the first step that differs names the mechanism; that step is stored and its meaning stands in the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

POINTS_AT = {
    "cold": "the kernels, the weights or the prompt itself: it is wrong alone and at first",
    "warm": "what the first requests left behind: the prefix cache, or what was compiled lazily",
    "aba_replay": "CUDA-graph caching: a replay with other inputs of the same shape",
    "batch_4": "batching: it was right alone",
    "long_prompt": "chunked prefill or attention over a long context",
    "batch_8": "a larger batch of mixed lengths: padding, another graph size or paging of the KV cache",
    "bos": "what an unusual beginning of the prompt meets: positions, sink tokens or BOS handling",
    "again": "what other prompts in between left behind: the prefix cache or stale state",
    "repeat_1": "an engine that does not repeat itself alone",
    "repeat_8": "equal prompts in one batch: races or batch-dependent kernels",
    "chat": "the chat template, the BOS token it adds, or the parser behind the chat endpoint",
    "system_message": "the chat template's handling of a system message",
    "streaming": "streaming: the detokeniser or the parser loses or changes text",
    "passages": "the numbers themselves: text that was given and not generated",
    "chat_golden": "the model, its quantisation or its chat template: plain questions are answered wrongly",
    "recheck": "what load left behind: it was right before the timing",
}
"""Step of the gate to what a first difference there points at."""


@dataclass(frozen=True)
class Finding:
    """Why a boot is wrong though no single answer is: `what` is a clause, `position` a token index where there is one."""

    step: str
    subject: str
    what: str
    position: int | None = None
    broken: bool = False
    """True: numbers that are no numbers, which is broken and not merely wrong."""

    @property
    def place(self) -> str:
        """Step, subject and token, for a sentence."""
        token = "" if self.position is None else f" at token {self.position}"
        return f"first in step {self.step!r} on {self.subject!r}{token}"


def points_at(step: str) -> str:
    """The clause that names the mechanism, with its separator; empty for a step without one."""
    meaning = POINTS_AT.get(step)
    return f"; differs first in step {step}: points at {meaning}" if meaning else ""
