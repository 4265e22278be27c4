"""The coherence gate of a boot: nothing is timed before it passed on the very server that will be timed (M11).

Trap: garbage is fast; a check in another process, in one order, one prompt at a time, passes engines that answer wrongly under load. Rule:
many prompts, interleaved, alone and in batches, by ids and through the chat endpoint, every answer judged and recorded. A server that dies
or hangs is a failure of the boot, never a wrong answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from results.records import CoherenceRecord
from results.vocabulary import Outcome
from runners.coherence.asking import ask_chat, ask_greedy
from runners.coherence.judging import Judge, Judged
from runners.coherence.model_steps import ModelQuestions
from runners.coherence.plan import EXTRA_TOKENS, RECHECKED, GoldenStep, canary_steps, recheck_steps
from runners.coherence.steps import Clock, Progress, Question, Silence, Step, run_steps
from runners.coherence.summary import StepResult, summarise
from runners.coherence.transport import Send, http_send
from runners.engines.base import EngineAdapter
from runners.server_client import is_loopback
from suites.canaries.zoo import Canary, GoldenPrompt

REQUEST_TIMEOUT_S = 300.0
"""One answer may take this long: the first ones may still compile kernels."""
_REFERENCE_DTYPE = "bfloat16"


@dataclass(frozen=True)
class GateTarget:
    """The server to be judged. `canary` None: a real model, judged by structure; `bos` "omit" sends it raw prompts without a BOS token.

    `reference_margins` (prompt name to margins) belongs to the numeric path served; None: the canary's own, measured in bfloat16.
    `known_answers` (prompt name to complete answers) comes from the recipe.
    """

    run_id: str
    base_url: str
    model: str
    canary: Canary | None = None
    bos: str = "auto"
    reference_margins: Mapping[str, tuple[float, ...]] | None = None
    known_answers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GateResult:
    """`outcome` None: the gate passed. `min_margin` is the least top1-top2 gap of all answers (nats); drift is against the reference."""

    outcome: Outcome | None
    reason: str
    records: tuple[CoherenceRecord, ...]
    steps: tuple[StepResult, ...] = ()
    min_margin: float | None = None
    min_margin_at: str | None = None
    drift_rms: float | None = None
    drift_max: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class GateFailure:
    """The server did not answer: it died, refused or (`is_hang`) stayed silent in `step`. `records` holds what was judged before."""

    reason: str
    is_hang: bool
    records: tuple[CoherenceRecord, ...]
    step: str


def run_gate(target: GateTarget, adapter: EngineAdapter, progress: Progress) -> GateResult | GateFailure:
    """The whole gate against the server at `target.base_url`."""
    return asyncio.run(_with_client(target, lambda send: gate(send, target, adapter, progress)))


def recheck(target: GateTarget, adapter: EngineAdapter, progress: Progress) -> GateResult | GateFailure:
    """The first prompts again, after load."""
    return asyncio.run(_with_client(target, lambda send: gate_again(send, target, adapter, progress)))


async def _with_client(target: GateTarget, run: Callable[[Send], Awaitable[GateResult | GateFailure]]) -> GateResult | GateFailure:
    limits = httpx.Limits(max_connections=32, max_keepalive_connections=32)
    async with httpx.AsyncClient(
        base_url=target.base_url, headers=dict(target.headers), trust_env=not is_loopback(target.base_url), limits=limits
    ) as client:
        return await run(http_send(client, REQUEST_TIMEOUT_S))


async def gate(
    send: Send, target: GateTarget, adapter: EngineAdapter, progress: Progress, clock: Clock = time.monotonic
) -> GateResult | GateFailure:
    """The whole gate over any transport."""
    if target.canary is not None:
        return await _judged(_golden_steps(send, target, adapter, canary_steps(target.canary)), (), progress, clock)
    return await _model_gate(send, target, adapter, progress, clock, first=None)


async def gate_again(
    send: Send, target: GateTarget, adapter: EngineAdapter, progress: Progress, clock: Clock = time.monotonic
) -> GateResult | GateFailure:
    """The first prompts again over any transport."""
    if target.canary is not None:
        return await _judged(_golden_steps(send, target, adapter, recheck_steps(target.canary)), (), progress, clock)
    return await _model_gate(send, target, adapter, progress, clock, first=RECHECKED)


async def _model_gate(
    send: Send, target: GateTarget, adapter: EngineAdapter, progress: Progress, clock: Clock, *, first: int | None
) -> GateResult | GateFailure:
    questions = ModelQuestions(send, adapter, target.model, Judge(target.run_id), target.bos, target.known_answers)
    prepared = await questions.steps(first)
    if isinstance(prepared, Silence):
        return GateFailure(prepared.reason, prepared.is_hang, (), prepared.step)
    return await _judged(prepared.steps, prepared.notes, progress, clock)


async def _judged(steps: Sequence[Step], notes: tuple[str, ...], progress: Progress, clock: Clock) -> GateResult | GateFailure:
    done = await run_steps(steps, progress, clock)
    records = tuple(j.record for j in done.judged)
    if done.silence is not None:
        return GateFailure(done.silence.reason, done.silence.is_hang, records, done.silence.step)
    summary = summarise(done.judged)
    return GateResult(
        outcome=summary.outcome,
        reason=summary.reason,
        records=records,
        steps=done.results,
        min_margin=summary.min_margin,
        min_margin_at=summary.min_margin_at,
        drift_rms=summary.drift_rms,
        drift_max=summary.drift_max,
        notes=notes,
    )


def _golden_steps(send: Send, target: GateTarget, adapter: EngineAdapter, steps: Sequence[GoldenStep]) -> tuple[Step, ...]:
    assert target.canary is not None
    judge = Judge(target.run_id, target.canary.eos_token_id)
    reference = target.reference_margins or target.canary.reference_margins.get(_REFERENCE_DTYPE, {})

    def question(step: GoldenStep, prompt: GoldenPrompt) -> Question:
        max_tokens = len(prompt.answer_ids) + EXTRA_TOKENS

        async def by_ids() -> Judged:
            asked = await ask_greedy(send, adapter, target.model, prompt.prompt_ids, max_tokens)
            return judge.golden(step.name, prompt, asked, reference.get(prompt.name))

        async def by_chat() -> Judged:
            return judge.golden_chat(step.name, prompt, await ask_chat(send, target.model, prompt.messages, max_tokens))

        return Question(prompt.name, by_chat if step.chat else by_ids)

    return tuple(Step(s.name, s.concurrency, tuple(question(s, p) for p in s.prompts)) for s in steps)
