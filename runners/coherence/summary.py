"""From judged answers to one outcome and one sentence.

Trap: "12 % of answers differ" hides which path broke. Rule: the sentence says how many of how many, which step saw it first, on which
prompt, at which token. Broken beats wrong: a structurally broken answer is `incoherent` even if all others are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from results.vocabulary import Outcome
from runners.coherence.judging import Judged


@dataclass(frozen=True)
class StepResult:
    """One step: how many answers, at most how many at once, how many of them right, wrong and broken, and how long it took."""

    name: str
    concurrency: int
    answers: int
    right: int
    wrong: int
    broken: int
    duration_s: float


@dataclass(frozen=True)
class Summary:
    """Outcome (None: all right), sentence, and the margins over all answers."""

    outcome: Outcome | None
    reason: str
    min_margin: float | None
    min_margin_at: str | None
    drift_rms: float | None
    drift_max: float | None


def step_result(name: str, concurrency: int, judged: Sequence[Judged], duration_s: float) -> StepResult:
    """Counts of one step."""
    right, broken = sum(j.right for j in judged), sum(j.broken for j in judged)
    return StepResult(name, concurrency, len(judged), right, len(judged) - right - broken, broken, duration_s)


def summarise(judged: Sequence[Judged]) -> Summary:
    """Outcome and margins of all answers, in the order they were asked."""
    broken = [j for j in judged if j.broken]
    off = [j for j in judged if not j.right]
    outcome = Outcome.INCOHERENT if broken else Outcome.WRONG if off else None
    least, place = min(((j.margins.least, _place(j)) for j in judged if j.margins.least is not None), default=(None, None))
    compared = [j.margins for j in judged if j.margins.drift_rms is not None]
    squares = math.fsum((m.drift_rms or 0.0) ** 2 * m.compared for m in compared)
    tokens = sum(m.compared for m in compared)
    return Summary(
        outcome=outcome,
        reason=_sentence(judged, off, broken),
        min_margin=least,
        min_margin_at=place,
        drift_rms=math.sqrt(squares / tokens) if tokens else None,
        drift_max=max((m.drift_max for m in compared if m.drift_max is not None), default=None),
    )


def _sentence(judged: Sequence[Judged], off: Sequence[Judged], broken: Sequence[Judged]) -> str:
    ties = sum(j.record.verdict == "tie" for j in judged)
    if not off:
        tied = f", {ties} of them by an exact tie" if ties else ""
        return f"All {len(judged)} answers are right{tied}."
    first = (broken or off)[0].record
    at_token = "" if first.first_divergence is None else f" at token {first.first_divergence}"
    if broken:
        what = f"{len(broken)} of {len(judged)} answers are structurally broken"
        what += f" and {len(off) - len(broken)} more are wrong" if len(off) > len(broken) else ""
    else:
        what = f"{len(off)} of {len(judged)} answers differ from the known good ones"
    return f"{what}, first in step {first.step!r} on prompt {first.prompt_name!r}{at_token} ({first.verdict}): {first.reason}"


def _place(judged: Judged) -> str:
    return f"{judged.record.step}/{judged.record.prompt_name}@{judged.record.min_margin_position}"
