"""Ask the questions of one step after the other, a given number at once.

Trap: one dead connection leaves half a step waiting, or the answers judged before it are lost. Rule: the first failure cancels its step,
ends the gate, and everything judged so far is kept; the order of the records is the order of the questions, not of arrival.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from runners.coherence.judging import Judged
from runners.coherence.summary import StepResult, step_result
from runners.coherence.transport import NoAnswer, Refused
from runners.engines.base import AnswerError

Progress = Callable[[str], None]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Question:
    """One prompt of one step; `ask` sends it and judges the answer."""

    name: str
    ask: Callable[[], Awaitable[Judged]]


@dataclass(frozen=True)
class Step:
    """`questions` asked in order, at most `concurrency` at once."""

    name: str
    concurrency: int
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Silence:
    """Why a question got no answer that can be judged."""

    step: str
    reason: str
    is_hang: bool


@dataclass(frozen=True)
class StepsDone:
    """Everything judged, in order, and why it ended early (`silence`), if it did."""

    judged: tuple[Judged, ...]
    results: tuple[StepResult, ...]
    silence: Silence | None = None


async def run_steps(steps: Sequence[Step], progress: Progress, clock: Clock) -> StepsDone:
    """Run all steps, or up to the first question that got no answer."""
    judged: list[Judged] = []
    results: list[StepResult] = []
    for step in steps:
        progress(f"coherence: {step.name}, {len(step.questions)} prompts, {step.concurrency} at once")
        began = clock()
        answers, silence = await _run_step(step)
        judged += answers
        results.append(step_result(step.name, step.concurrency, answers, clock() - began))
        if silence is not None:
            return StepsDone(tuple(judged), tuple(results), silence)
    return StepsDone(tuple(judged), tuple(results))


async def _run_step(step: Step) -> tuple[list[Judged], Silence | None]:
    waiting = iter(enumerate(step.questions))
    answers: dict[int, Judged] = {}

    async def worker() -> None:
        for i, question in waiting:
            try:
                answers[i] = await question.ask()
            except (Refused, NoAnswer, AnswerError) as error:
                raise _Unanswered(question.name, error) from error

    tasks = [asyncio.ensure_future(worker()) for _ in range(min(step.concurrency, len(step.questions)))]
    silence: Silence | None = None
    try:
        await asyncio.gather(*tasks)
    except _Unanswered as unanswered:
        silence = _silence(step.name, unanswered)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [answers[i] for i in sorted(answers)], silence


class _Unanswered(Exception):
    def __init__(self, question: str, error: Refused | NoAnswer | AnswerError) -> None:
        super().__init__(question)
        self.question = question
        self.error = error


def _silence(step: str, unanswered: _Unanswered) -> Silence:
    error = unanswered.error
    what = {Refused: "the server refused", NoAnswer: "the server did not answer", AnswerError: "the server's answer cannot be read for"}
    reason = f"coherence step {step!r}: {what[type(error)]} prompt {unanswered.question!r}: {error}"
    return Silence(step, reason, isinstance(error, NoAnswer) and error.is_hang)
