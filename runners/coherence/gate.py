"""The coherence gate of a boot: nothing is timed before it passed on the very server that will be timed (M11).

Trap: garbage is fast; a check in another process, in one order, one prompt at a time, passes engines that answer wrongly under load. Rule:
many prompts, interleaved, alone and in batches, by ids, through the chat endpoint and streamed, every answer judged and recorded; then the
numbers behind the answers (margins, log-probabilities of fixed texts). A server that dies or hangs is a failure of the boot, never a wrong
answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import httpx

from results.records import CoherenceRecord, ScoreRecord
from results.vocabulary import Outcome
from runners.coherence.asking import ask_chat, ask_chat_stream, ask_greedy
from runners.coherence.chat_golden_step import golden_finding, golden_scores, golden_step
from runners.coherence.determinism import flip_rates
from runners.coherence.drift import judge_drift
from runners.coherence.findings import POINTS_AT, Finding
from runners.coherence.judging import Judge, Judged
from runners.coherence.known_good import KnownGood, against_known
from runners.coherence.model_steps import ModelQuestions
from runners.coherence.numeric_path import PathReference
from runners.coherence.passages import STEP as PASSAGES_STEP
from runners.coherence.passages import PassageJudge, PassagesDone, Text
from runners.coherence.plan import EXTRA_TOKENS, RECHECKED, GoldenStep, Via, canary_steps, recheck_steps
from runners.coherence.steps import Clock, Progress, Question, Silence, Step, StepsDone, run_steps
from runners.coherence.summary import StepResult, Summary, summarise
from runners.coherence.transport import NoAnswer, Refused, Send, http_send
from runners.engines.base import AnswerError, EngineAdapter, PromptScores
from runners.server_client import is_loopback
from suites.canaries.zoo import Canary, GoldenPrompt
from suites.passages import canary_passages

T = TypeVar("T")
REQUEST_TIMEOUT_S = 300.0
"""One answer may take this long: the first ones may still compile kernels."""
_FOREIGN_CHAT = frozenset({"gpt-oss"})
"""Canaries of families whose chats an engine may encode without asking the model's own tokenizer."""
_SAYS_FOREIGN = ("out of vocabulary", "error downloading or loading vocab file")


@dataclass(frozen=True)
class GateTarget:
    """The server to be judged. `canary` None: a real model; `bos` "omit" sends it raw prompts without a BOS token.

    `paths` are the measured references of every numeric path that may be served (empty: margins are not judged), `path` the name of the
    path if only one may (a canary's weight format is `any`). `known_good`: what trusted boots of this model gave. `context`: tokens the
    server can hold. `instruct`: the recipe says that the model answers plain questions; `reasoning`: that it reasons before it does.
    """

    run_id: str
    base_url: str
    model: str
    canary: Canary | None = None
    bos: str = "auto"
    paths: tuple[PathReference, ...] = ()
    path: str | None = None
    known_good: KnownGood | None = None
    context: int | None = None
    instruct: bool = False
    reasoning: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GateResult:
    """`outcome` None: the gate passed. `min_margin` is the least top1-top2 gap of all answers (nats); `judged` and `passages` are the raw
    answers and scores behind the records, which a reference is made of."""

    outcome: Outcome | None
    reason: str
    records: tuple[CoherenceRecord, ...]
    scores: tuple[ScoreRecord, ...] = ()
    steps: tuple[StepResult, ...] = ()
    first_step: str | None = None
    min_margin: float | None = None
    min_margin_at: str | None = None
    notes: tuple[str, ...] = ()
    judged: tuple[Judged, ...] = ()
    passages: tuple[tuple[Text, PromptScores], ...] = ()


@dataclass(frozen=True)
class GateFailure:
    """The server did not answer: it died, refused or (`is_hang`) stayed silent in `step`. `records` and `scores` hold what came before."""

    reason: str
    is_hang: bool
    records: tuple[CoherenceRecord, ...]
    step: str
    scores: tuple[ScoreRecord, ...] = ()


def run_gate(target: GateTarget, adapter: EngineAdapter, progress: Progress) -> GateResult | GateFailure:
    """The whole gate against the server at `target.base_url`."""
    return over_http(target, lambda send: gate(send, target, adapter, progress))


def recheck(target: GateTarget, adapter: EngineAdapter, progress: Progress) -> GateResult | GateFailure:
    """The first prompts again, after load."""
    return over_http(target, lambda send: gate_again(send, target, adapter, progress))


def over_http(target: GateTarget, run: Callable[[Send], Awaitable[T]]) -> T:
    """Run questions against the server at `target.base_url`, to their end.

    Every request has a connection of its own: a server may close one after an answer, and the next question on it would look like a crash
    (seen: SGLang 0.5.14 after an HTTP 500 of /tokenize).
    """

    async def connected() -> T:
        limits = httpx.Limits(max_connections=32, max_keepalive_connections=0)
        trust_env = not is_loopback(target.base_url)
        async with httpx.AsyncClient(base_url=target.base_url, headers=dict(target.headers), trust_env=trust_env, limits=limits) as client:
            return await run(http_send(client, REQUEST_TIMEOUT_S))

    return asyncio.run(connected())


async def gate(
    send: Send, target: GateTarget, adapter: EngineAdapter, progress: Progress, clock: Clock = time.monotonic
) -> GateResult | GateFailure:
    """The whole gate over any transport."""
    if target.canary is None:
        return await _model_gate(send, target, adapter, progress, clock, first=None)
    foreign = await _foreign_chat(send, target.model, target.canary)
    steps = canary_steps(target.canary, chat=foreign is None)
    done = await run_steps(_golden_steps(send, target, adapter, steps), progress, clock)
    if done.silence is not None:
        return _failure(done, done.silence)
    passages = await _scored(send, target, adapter, canary_texts(target.canary), progress)
    result = _canary_result(target, done, "gate", passages)
    return result if foreign is None or isinstance(result, GateFailure) else replace(result, notes=(*result.notes, foreign))


async def _foreign_chat(send: Send, model: str, canary: Canary) -> str | None:
    """A note if the chat endpoint encodes for another model than the one served, so that no chat can be judged; None if it does not.

    vLLM encodes chats of every gpt-oss with openai-harmony, whose ids from 200,000 on a canary of 2,048 does not have (seen: 0.26.0 and
    0.32.0, HTTP 400 "Token id 200008 is out of vocabulary"), or, without network, fails to load its vocabulary.
    """
    if canary.name not in _FOREIGN_CHAT:
        return None
    messages = next(prompt.messages for prompt in canary.prompts if prompt.messages)
    try:
        await ask_chat(send, model, messages, 1)
    except Refused as refused:
        if any(words in refused.said for words in _SAYS_FOREIGN):
            return f"chat was not judged: the server encodes chats of this family with a vocabulary of its own ({refused.said[:120]})"
    except (NoAnswer, AnswerError):
        pass  # the steps ask again and name what is wrong
    return None


async def gate_again(
    send: Send, target: GateTarget, adapter: EngineAdapter, progress: Progress, clock: Clock = time.monotonic
) -> GateResult | GateFailure:
    """The first prompts again over any transport."""
    if target.canary is None:
        return await _model_gate(send, target, adapter, progress, clock, first=RECHECKED)
    done = await run_steps(_golden_steps(send, target, adapter, recheck_steps(target.canary)), progress, clock)
    return _failure(done, done.silence) if done.silence is not None else _canary_result(target, done, "recheck", PassagesDone())


def canary_texts(canary: Canary) -> tuple[Text, ...]:
    """Texts that a canary scores."""
    return tuple(Text(name, ids) for name, ids in canary_passages(canary))


async def _scored(send: Send, target: GateTarget, adapter: EngineAdapter, texts: Sequence[Text], progress: Progress) -> PassagesDone:
    if texts:
        progress(f"coherence: {PASSAGES_STEP}, {len(texts)} texts")
    return await PassageJudge(target.run_id, target.known_good, target.path).ask(send, adapter, target.model, texts)


def _canary_result(target: GateTarget, done: StepsDone, name: str, passages: PassagesDone) -> GateResult | GateFailure:
    drift = judge_drift(target.run_id, name, done.judged, target.paths)
    scores = (*drift.scores, *flip_rates(target.run_id, done.judged))
    findings = (drift.finding,) if drift.finding is not None else ()
    unjudged = not target.paths and name == "gate"
    notes = ("margin drift was not judged: no reference was measured for the numeric path served",) if unjudged else ()
    return _result(target, done, passages, scores, findings, notes)


async def _model_gate(
    send: Send, target: GateTarget, adapter: EngineAdapter, progress: Progress, clock: Clock, *, first: int | None
) -> GateResult | GateFailure:
    judge = Judge(target.run_id)
    prepared = await ModelQuestions(send, adapter, target.model, judge, target.bos, target.context).prepare(first)
    if isinstance(prepared, Silence):
        return GateFailure(prepared.reason, prepared.is_hang, (), prepared.step)
    steps = list(prepared.steps)
    if prepared.chat and first is None:
        options = {"reasoning": target.reasoning, "system": prepared.system}
        steps.append(golden_step(send, target.model, judge, context=target.context, **options))
    done = await run_steps(steps, progress, clock)
    if done.silence is not None:
        return _failure(done, done.silence)
    passages = await _scored(send, target, adapter, prepared.texts, progress)
    judged, outside = against_known(done.judged, target.known_good)
    done = StepsDone(tuple(judged), done.results)
    scores = (*flip_rates(target.run_id, judged), *golden_scores(target.run_id, judged))
    plain = golden_finding(judged) if target.instruct else None
    findings = tuple(finding for finding in (outside, plain) if finding is not None)
    return _result(target, done, passages, scores, findings, prepared.notes)


def _result(
    target: GateTarget,
    done: StepsDone,
    passages: PassagesDone,
    scores: Sequence[ScoreRecord],
    findings: Sequence[Finding],
    notes: Sequence[str],
) -> GateResult | GateFailure:
    if passages.silence is not None:
        silence = Silence(PASSAGES_STEP, f"coherence step {PASSAGES_STEP!r}: {passages.silence}", passages.silence.is_hang)
        return _failure(done, silence, (*scores, *passages.scores))
    summary = summarise(done.judged, (*findings, *passages.findings))
    first = _first_difference(target.run_id, summary, done.judged, (*findings, *passages.findings))
    return GateResult(
        outcome=summary.outcome,
        reason=summary.reason,
        records=tuple(j.record for j in done.judged),
        scores=(*scores, *passages.scores, *first),
        steps=done.results,
        first_step=summary.first_step,
        min_margin=summary.min_margin,
        min_margin_at=summary.min_margin_at,
        notes=tuple(notes),
        judged=done.judged,
        passages=passages.raw,
    )


def _failure(done: StepsDone, silence: Silence, scores: Sequence[ScoreRecord] = ()) -> GateFailure:
    return GateFailure(silence.reason, silence.is_hang, tuple(j.record for j in done.judged), silence.step, tuple(scores))


def _first_difference(run_id: str, summary: Summary, judged: Sequence[Judged], findings: Sequence[Finding]) -> tuple[ScoreRecord, ...]:
    """The step that differs first, as data: controls and reports start from it."""
    if summary.first_step is None or summary.outcome is None:
        return ()
    off = next((j.record for j in judged if not j.right), None)
    subject, position = (off.prompt_name, off.first_divergence) if off is not None else (findings[0].subject, findings[0].position)
    meaning = POINTS_AT.get(summary.first_step)
    value = None if position is None else float(position)
    return (ScoreRecord(run_id, summary.first_step, "first_difference", subject, value, verdict=summary.outcome, reason=meaning),)


def _golden_steps(send: Send, target: GateTarget, adapter: EngineAdapter, steps: Sequence[GoldenStep]) -> tuple[Step, ...]:
    assert target.canary is not None
    judge = Judge(target.run_id, target.canary.eos_token_id)

    def question(step: GoldenStep, prompt: GoldenPrompt) -> Question:
        max_tokens = len(prompt.answer_ids) + EXTRA_TOKENS

        async def by_ids() -> Judged:
            return judge.golden(step.name, prompt, await ask_greedy(send, adapter, target.model, prompt.prompt_ids, max_tokens))

        async def by_chat() -> Judged:
            return judge.golden_text(step.name, prompt, await ask_chat(send, target.model, prompt.messages, max_tokens))

        async def by_stream() -> Judged:
            return judge.golden_text(step.name, prompt, await ask_chat_stream(send, target.model, prompt.messages, max_tokens))

        return Question(prompt.name, {Via.IDS: by_ids, Via.CHAT: by_chat, Via.STREAM: by_stream}[step.via])

    return tuple(Step(s.name, s.concurrency, tuple(question(s, p) for p in s.prompts)) for s in steps)
