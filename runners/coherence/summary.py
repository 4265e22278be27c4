"""From judged answers and findings to one outcome and one sentence.

Trap: "12 % of answers differ" hides which path broke. Rule: the sentence says how many of how many, which step saw it first, on which
prompt, at which token, and what that step points at. Broken beats wrong: a structurally broken answer is `incoherent` even if all others
are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from results.vocabulary import Outcome
from runners.coherence.findings import Finding, points_at
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
    """Outcome (None: all right), sentence, the step that differs first (None: none does), and the least margin over all answers."""

    outcome: Outcome | None
    reason: str
    first_step: str | None
    min_margin: float | None
    min_margin_at: str | None


def step_result(name: str, concurrency: int, judged: Sequence[Judged], duration_s: float) -> StepResult:
    """Counts of one step."""
    right, broken = sum(j.right for j in judged), sum(j.broken for j in judged)
    return StepResult(name, concurrency, len(judged), right, len(judged) - right - broken, broken, duration_s)


def summarise(judged: Sequence[Judged], findings: Sequence[Finding] = ()) -> Summary:
    """Outcome of all answers, in the order they were asked, and of what was found beyond single answers."""
    broken = [j for j in judged if j.broken]
    off = [j for j in judged if not j.right]
    is_broken = bool(broken) or any(finding.broken for finding in findings)
    outcome = Outcome.INCOHERENT if is_broken else Outcome.WRONG if off or findings else None
    least, place = min(((j.margins.least, _place(j)) for j in judged if j.margins.least is not None), default=(None, None))
    first_step = off[0].record.step if off else findings[0].step if findings else None
    return Summary(outcome, _sentence(judged, off, broken, findings), first_step, least, place)


def _sentence(judged: Sequence[Judged], off: Sequence[Judged], broken: Sequence[Judged], findings: Sequence[Finding]) -> str:
    if not off:
        return _of_findings(judged, findings) if findings else _all_right(judged)
    first = (broken or off)[0].record
    at_token = "" if first.first_divergence is None else f" at token {first.first_divergence}"
    if broken:
        what = f"{len(broken)} of {len(judged)} answers are structurally broken"
        what += f" and {len(off) - len(broken)} more are wrong" if len(off) > len(broken) else ""
    else:
        what = f"{len(off)} of {len(judged)} answers differ from the known good ones"
    sentence = f"{what}, first in step {first.step!r} on prompt {first.prompt_name!r}{at_token} ({first.verdict}): {first.reason}"
    return sentence.rstrip(".") + points_at(off[0].record.step) + "."


def _all_right(judged: Sequence[Judged]) -> str:
    ties = sum(j.record.verdict == "tie" for j in judged)
    tied = f", {ties} of them by a tie" if ties else ""
    return f"All {len(judged)} answers are right{tied}."


def _of_findings(judged: Sequence[Judged], findings: Sequence[Finding]) -> str:
    first = findings[0]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"All {len(judged)} answers have the right text, but {first.what}, {first.place}{more}{points_at(first.step)}."


def _place(judged: Judged) -> str:
    return f"{judged.record.step}/{judged.record.prompt_name}@{judged.record.min_margin_position}"
