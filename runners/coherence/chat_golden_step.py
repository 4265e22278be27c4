"""The plain questions of `suites.chat_golden`, as one step of the gate.

Trap: a base model of 270 M parameters misses plain questions on every engine. Rule: misses are recorded and their share is stored; they
make a boot wrong only where the recipe says that the model answers such questions, or where a trusted boot answered them rightly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from results.records import ScoreRecord
from runners.coherence.asking import ChatAnswer, ask_chat
from runners.coherence.chat_golden import GoldenAnswer, judge_chat_golden
from runners.coherence.findings import Finding
from runners.coherence.golden import GoldenKind
from runners.coherence.judging import Judge, Judged
from runners.coherence.steps import Question as StepQuestion
from runners.coherence.steps import Step
from runners.coherence.transport import Send
from suites.chat_golden import Question, chat_golden

STEP = "chat_golden"
JUDGE = "chat_golden"
SHORT_TOKENS, REASONING_TOKENS = 48, 2_048
_QUESTION_TOKENS = 256
"""More than a question takes with any chat template seen."""
_MOST_MISSED = 0.25
_CONCURRENCY = 4


def golden_step(send: Send, model: str, judge: Judge, *, reasoning: bool, system: bool, context: int | None) -> Step:
    """All questions (those with a system message only if `system`), a few at once.

    An answer that was cut off in its reasoning is asked once more with room for it, as far as the `context` (tokens) allows.
    """
    most = max(min(REASONING_TOKENS, (context or REASONING_TOKENS) - _QUESTION_TOKENS), SHORT_TOKENS)

    async def asked(question: Question) -> Judged:
        room = most if reasoning else SHORT_TOKENS
        answer = await ask_chat(send, model, question.messages, room, logprobs=True)
        if not reasoning and judge_chat_golden(question, answer).kind is GoldenAnswer.CUT_OFF:
            answer = await ask_chat(send, model, question.messages, most, logprobs=True)
        return _judged(judge, question, answer)

    questions = (q for q in chat_golden() if system or q.system is None)
    return Step(STEP, _CONCURRENCY, tuple(StepQuestion(q.name, partial(asked, q)) for q in questions))


def _judged(judge: Judge, question: Question, answer: ChatAnswer) -> Judged:
    judged = judge.chat_structure(STEP, question.name, answer)
    found = judge_chat_golden(question, answer)
    if found.kind is GoldenAnswer.RIGHT and not _nonfinite(judged):
        return replace(judged, record=replace(judged.record, judge=JUDGE, verdict=GoldenKind.MATCH.value, reason=found.reason))
    if judged.broken:
        return judged
    return replace(judged, record=replace(judged.record, judge=JUDGE, reason=found.reason))


def _nonfinite(judged: Judged) -> bool:
    return judged.record.judge == "logprobs"


def golden_scores(run_id: str, judged: Sequence[Judged]) -> list[ScoreRecord]:
    """Share of right answers, `chat_golden_right`; empty if none was asked."""
    asked = [j for j in judged if j.record.step == STEP]
    if not asked:
        return []
    right = sum(j.record.verdict == GoldenKind.MATCH for j in asked)
    reason = f"{right} of {len(asked)} plain questions are answered rightly."
    return [ScoreRecord(run_id, STEP, "chat_golden_right", "all questions", right / len(asked), reason=reason)]


def golden_finding(judged: Sequence[Judged]) -> Finding | None:
    """Too many missed, where the recipe says that the model knows the answers. An answer that was cut off counts for nothing."""
    missed = [j for j in judged if j.record.step == STEP and j.record.judge == JUDGE and j.record.verdict != GoldenKind.MATCH]
    missed = [j for j in missed if not j.record.reason.startswith("The answer was cut off")]
    asked = sum(j.record.step == STEP for j in judged)
    if not asked or len(missed) <= _MOST_MISSED * asked:
        return None
    first = missed[0].record
    return Finding(STEP, first.prompt_name, f"{len(missed)} of {asked} plain questions are answered wrongly: {first.reason.rstrip('.')}")
