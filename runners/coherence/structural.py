"""Is this answer structurally broken, judged alone, without any reference?

Trap: a broken kernel writes `!!!!`, `carecarecare` or token salad at full speed, and a judge that looks for known strings misses the next
one; a judge that punishes repetition fails tables, code, refrains and lists. Rule: judge the kind (flood, loop, salad), never the string;
whatever repeats needs both enough characters and enough repeats for its class, and a good beginning does not excuse a broken end.

Fluent but wrong text passes here: only a golden answer or a control can call it wrong. Every judge is linear in its input, bounded in what
it inspects closely, and defined for every input of its type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runners.coherence.loops import Run, symbols_of, tail_runs
from runners.coherence.repetition import find_repetition
from runners.coherence.salad import find_salad
from runners.coherence.units import FLOOD_NEEDS, LoopNeeds, Needs, UnitClass, is_visible
from runners.coherence.verdict import StructuralKind, StructuralVerdict
from runners.engines.answers import is_nonfinite

SELF_ENDED = "stop"
"""The word of both engines for an answer that ended by itself."""

_ID_FLOOD = Needs(whole=12, tail=24)
_ID_LOOP = LoopNeeds(((32, 8), (96, 4), (240, 3)))
_ID_LOOP_SELF_ENDED = LoopNeeds(((64, 24), (160, 12), (480, 6)))


def judge_text(text: str, *, finish_reason: str | None = None) -> StructuralVerdict:
    """Judge one answer. `finish_reason` "stop" says that the answer ended by itself: then a repetition must be longer to be a loop."""
    if len(text) < FLOOD_NEEDS[UnitClass.BLANK].whole and not any(map(is_visible, text)):
        return StructuralVerdict(StructuralKind.EMPTY, "The answer holds no visible character.", 0, {"chars": len(text)})
    symbols = symbols_of(text)
    return (
        find_repetition(text, symbols, finish_reason == SELF_ENDED)
        or find_salad(text, symbols)
        or StructuralVerdict(StructuralKind.PASS, "No flood, loop or salad found.", None, {"chars": len(text)})
    )


def judge_ids(ids: Sequence[int], *, finish_reason: str | None = None) -> StructuralVerdict:
    """Judge the token ids of one answer: floods and loops only. It sees what the text hides (special tokens that decode to nothing)."""
    if not ids:
        return StructuralVerdict(StructuralKind.EMPTY, "The answer holds no token.", 0, {"tokens": 0})
    needs = _ID_LOOP_SELF_ENDED if finish_reason == SELF_ENDED else _ID_LOOP
    for run in tail_runs(np.asarray(ids, dtype=np.int64)):
        if run.period == 1:
            if run.length >= (_ID_FLOOD.whole if run.start == 0 else _ID_FLOOD.tail):
                return _id_verdict(StructuralKind.TOKEN_FLOOD, f"Token {ids[run.start]}", run)
        elif needs.met(run.length, run.repeats):
            return _id_verdict(StructuralKind.REPETITION_LOOP, f"A loop of {run.period} tokens from token {ids[run.start]}", run)
    return StructuralVerdict(StructuralKind.PASS, "No flood or loop of token ids found.", None, {"tokens": len(ids)})


def _id_verdict(kind: StructuralKind, what: str, run: Run) -> StructuralVerdict:
    reason = f"{what} repeats {run.repeats:.1f} times up to the end, from position {run.start}."
    return StructuralVerdict(kind, reason, run.start, {"period": run.period, "repeats": round(run.repeats, 2), "tokens": run.length})


def judge_logprobs(logprobs: Sequence[float | None]) -> StructuralVerdict:
    """Judge the log-probabilities of the chosen tokens (nats): NaN, inf, null and -9999 mean that the logits were no numbers (M17)."""
    bad = [i for i, value in enumerate(logprobs) if is_nonfinite(value)]
    if not bad:
        return StructuralVerdict(StructuralKind.PASS, "All log-probabilities are finite.", None, {"tokens": len(logprobs)})
    reason = f"{len(bad)} of {len(logprobs)} log-probabilities are no finite numbers, the first at token {bad[0]}."
    return StructuralVerdict(StructuralKind.NONFINITE, reason, bad[0], {"nonfinite": len(bad), "tokens": len(logprobs)})
