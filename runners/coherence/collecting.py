"""Collect what a trusted server answers, for a known good reference.

Trap: one answer per prompt is taken for the only right one, and a bistable prompt then fails every second sound boot. Rule: every prompt is
asked several times alone and in batches of eight, each different answer is kept with how often it was seen, and the fixed texts are scored
several times, so that the server's own noise is part of the reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runners.coherence.chat_golden_step import golden_step
from runners.coherence.findings import Finding
from runners.coherence.gate import GateTarget, canary_texts
from runners.coherence.judging import Judge, Judged
from runners.coherence.model_steps import ModelQuestions
from runners.coherence.passages import PassageJudge, PassagesDone, Text
from runners.coherence.reference_file import Answer, Passage
from runners.coherence.steps import Clock, Progress, Question, Silence, Step, run_steps
from runners.coherence.transport import Send
from runners.engines.base import EngineAdapter, PromptScores

ALONE, TOGETHER = 2, 2
"""How often everything is asked, one at a time and eight at a time, on top of the gate."""
SCORED = 3
LEAST_FLOOR_RMS, LEAST_FLOOR_MAX = 0.05, 0.25
"""Nats. A boot repeats itself nearly exactly, so its own noise says little about another sound engine: the floor is this at least."""
_BATCH = 8


@dataclass(frozen=True)
class Collected:
    """Answers by prompt, fixed texts and their scores by name.

    `problem` says why it is no reference (a broken answer, a server that stopped answering).
    """

    answers: dict[str, tuple[Answer, ...]]
    passages: dict[str, Passage]
    texts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problem: str | None = None


async def collect(send: Send, target: GateTarget, adapter: EngineAdapter, progress: Progress, clock: Clock) -> Collected:
    """Ask a server that has passed its gate for everything that a reference holds."""
    if target.canary is not None:
        return await _with_passages(send, target, adapter, canary_texts(target.canary), {}, (), progress)
    judge = Judge(target.run_id)
    prepared = await ModelQuestions(send, adapter, target.model, judge, target.bos, target.context).prepare()
    if isinstance(prepared, Silence):
        return Collected({}, {}, problem=prepared.reason)
    once = list(_each_prompt_once(prepared.steps))
    if prepared.chat:
        options = {"reasoning": target.reasoning, "system": prepared.system}
        once += golden_step(send, target.model, judge, context=target.context, **options).questions
    steps = [Step("reference_1", 1, tuple(once))] * ALONE + [Step("reference_8", _BATCH, tuple(once))] * TOGETHER
    done = await run_steps(steps, progress, clock)
    if done.silence is not None:
        return Collected({}, {}, problem=done.silence.reason)
    broken = next((j for j in done.judged if j.broken), None)
    if broken is not None:
        return Collected({}, {}, problem=f"prompt {broken.record.prompt_name!r}: {broken.record.reason}")
    answers = alternatives(done.judged, target.run_id)
    return await _with_passages(send, target, adapter, prepared.texts, answers, prepared.notes, progress)


def _each_prompt_once(steps: Sequence[Step]) -> Iterator[Question]:
    seen: set[str] = set()
    for step in steps:
        if step.name == "streaming":
            continue
        for question in step.questions:
            if question.name not in seen:
                seen.add(question.name)
                yield question


def alternatives(judged: Sequence[Judged], run_id: str) -> dict[str, tuple[Answer, ...]]:
    """The different answers of each prompt, the most frequent first."""
    found: dict[str, dict[object, Answer]] = {}
    for answer in judged:
        observed, record = answer.observed, answer.record
        same = observed.tokens or record.text
        of_prompt = found.setdefault(record.prompt_name, {})
        known = of_prompt.get(same)
        of_prompt[same] = (
            known.model_copy(update={"seen": known.seen + 1})
            if known is not None
            else Answer(text=record.text, tokens=observed.tokens, margins=observed.margins, run_id=run_id)
        )
    return {name: tuple(sorted(answers.values(), key=lambda a: -a.seen)) for name, answers in found.items()}


async def _with_passages(
    send: Send,
    target: GateTarget,
    adapter: EngineAdapter,
    texts: Sequence[Text],
    answers: dict[str, tuple[Answer, ...]],
    notes: tuple[str, ...],
    progress: Progress,
) -> Collected:
    judge = PassageJudge(target.run_id)
    rounds: list[PassagesDone] = []
    for number in range(SCORED):
        progress(f"reference: {len(texts)} fixed texts, round {number + 1} of {SCORED}")
        rounds.append(await judge.ask(send, adapter, target.model, texts))
    silence = next((r.silence for r in rounds if r.silence is not None), None)
    finding = next((f for r in rounds for f in r.findings), None)
    if silence is not None or finding is not None:
        return Collected({}, {}, notes=notes, problem=str(silence) if silence is not None else _words(finding))
    passages = {text.name: passage for text in texts if (passage := passage_of([dict(r.raw).get(text) for r in rounds])) is not None}
    return Collected(answers, passages, {text.name: text.token_ids for text in texts if text.name in passages}, notes)


def _words(finding: Finding | None) -> str:
    return f"{finding.what}, {finding.place}" if finding is not None else ""


def passage_of(rounds: Sequence[PromptScores | None]) -> Passage | None:
    """Mean log-probabilities of several rounds and how far they lie from it, the least floor at least; None if a round has none."""
    scored = [scores.logprobs for scores in rounds if scores is not None]
    if not scored or len(scored) < len(rounds):
        return None
    means = tuple(_mean(values) for values in zip(*scored, strict=True))
    drifts = [
        abs(value - mean) for values in scored for value, mean in zip(values, means, strict=True) if value is not None and mean is not None
    ]
    rms = math.sqrt(math.fsum(d * d for d in drifts) / len(drifts)) if drifts else 0.0
    return Passage(logprobs=means, floor_rms=max(rms, LEAST_FLOOR_RMS), floor_max=max([*drifts, LEAST_FLOOR_MAX]))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if len(known) == len(values) else None


def widened(answers: Sequence[Answer], added: Answer) -> tuple[Answer, ...]:
    """The answers with one more, which the user vouches for; as they were if it is among them."""
    if any(a.text == added.text and (not a.tokens or not added.tokens or a.tokens == added.tokens) for a in answers):
        return tuple(answers)
    return (*answers, added.model_copy(update={"by": "widen"}))
