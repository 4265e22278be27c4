"""Ask a server that has failed its gate a few things more before it is ended.

Trap: a control boot of a large model costs ten minutes, and the running server could have said in ten seconds that the same answer is right
when asked alone, or right with a BOS token. Rule: the answers that were wrong are asked again alone, again together, and, for a real model,
with and without a BOS token; few prompts, bounded in time, and whatever the server does now changes nothing about how its boot ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from results.records import CoherenceRecord
from runners.boot import Boot
from runners.coherence.asking import ask_greedy
from runners.coherence.gate import GateTarget, over_http
from runners.coherence.judging import RIGHT, Judge, Judged
from runners.coherence.plan import EXTRA_TOKENS
from runners.coherence.steps import Question, Step, run_steps
from runners.coherence.tokenizing import Tokenizer
from runners.coherence.transport import NoAnswer, Refused, Send
from runners.diagnose.evidence import ALONE, TOGETHER, WITH_BOS, WITHOUT_BOS
from runners.engines.base import AnswerError, EngineAdapter
from suites.canaries.zoo import Canary, GoldenPrompt
from suites.prompts import MODEL_PROMPTS, ModelPrompt

MOST_PROMPTS = 6
BATCH = 8
LONGEST_S = 180.0


def ask_again(boot: Boot) -> None:
    """Ask, and append what came to the boot's records. What could not be asked is a warning of the boot."""
    wrong = [r for r in boot.recorder.folder.read().of(CoherenceRecord) if r.verdict not in RIGHT and r.carried_by == "output_ids"]
    try:
        target = boot.gate_target()
        over_http(target, lambda send: asyncio.wait_for(_ask(send, boot, target, wrong), LONGEST_S))
    except TimeoutError:
        boot.recorder.warn(f"the questions after the failed gate were given up after {LONGEST_S:.0f} s")
    except (Refused, NoAnswer, AnswerError) as error:
        boot.recorder.warn(f"the questions after the failed gate could not be asked: {error}")


async def _ask(send: Send, boot: Boot, target: GateTarget, wrong: Sequence[CoherenceRecord]) -> None:
    steps = await steps_for(send, target, boot.adapter, wrong)
    done = await run_steps(steps, boot.progress, time.monotonic)
    boot.recorder.append([judged.record for judged in done.judged])
    if done.silence is not None:
        boot.recorder.warn(f"after the failed gate: {done.silence.reason}")


async def steps_for(send: Send, target: GateTarget, adapter: EngineAdapter, wrong: Sequence[CoherenceRecord]) -> tuple[Step, ...]:
    """The steps to run, few and short. `wrong` are the records of the answers from ids that were not right."""
    if not wrong:
        return ()
    if target.canary is not None:
        return _canary_steps(send, target, target.canary, adapter, wrong)
    return await _model_steps(send, target, adapter, wrong)


Ask = Callable[[str], Question]
"""One prompt as a question of the step with that name."""


def _canary_steps(
    send: Send, target: GateTarget, canary: Canary, adapter: EngineAdapter, wrong: Sequence[CoherenceRecord]
) -> tuple[Step, ...]:
    names = {r.prompt_name for r in wrong}
    known = {p.name: p for p in (*canary.prompts, *canary.bos_prompts)}
    prompts = sorted((known[n] for n in names if n in known), key=lambda p: (len(p.answer_ids), p.name))[:MOST_PROMPTS]
    judge = Judge(target.run_id, canary.eos_token_id)

    def asking(prompt: GoldenPrompt) -> Ask:
        def question(step: str) -> Question:
            async def ask() -> Judged:
                asked = await ask_greedy(send, adapter, target.model, prompt.prompt_ids, len(prompt.answer_ids) + EXTRA_TOKENS)
                return judge.golden(step, prompt, asked)

            return Question(prompt.name, ask)

        return question

    return _alone_and_together([asking(p) for p in prompts])


async def _model_steps(send: Send, target: GateTarget, adapter: EngineAdapter, wrong: Sequence[CoherenceRecord]) -> tuple[Step, ...]:
    names = {r.prompt_name for r in wrong}
    prompts = [p for p in MODEL_PROMPTS if p.text is not None and p.name in names][:MOST_PROMPTS]
    judge = Judge(target.run_id)

    tokenizer = Tokenizer(send, adapter, target.model)

    async def ids_of(*, bos: bool) -> dict[str, tuple[int, ...]]:
        return {p.name: await tokenizer.ids(p.text or "", add_special_tokens=bos) for p in prompts}

    def asking(prompt: ModelPrompt, ids: tuple[int, ...]) -> Ask:
        def question(step: str) -> Question:
            async def ask() -> Judged:
                return judge.structure(step, prompt.name, await ask_greedy(send, adapter, target.model, ids, prompt.max_tokens))

            return Question(prompt.name, ask)

        return question

    with_bos, without = await ids_of(bos=True), await ids_of(bos=False)
    steps = _alone_and_together([asking(p, (without if target.bos == "omit" else with_bos)[p.name]) for p in prompts])
    if with_bos == without:
        return steps  # this tokenizer has no BOS token
    with_step = Step(WITH_BOS, 1, tuple(asking(p, with_bos[p.name])(WITH_BOS) for p in prompts))
    without_step = Step(WITHOUT_BOS, 1, tuple(asking(p, without[p.name])(WITHOUT_BOS) for p in prompts))
    return (with_step, without_step, *steps)


def _alone_and_together(prompts: Sequence[Ask]) -> tuple[Step, ...]:
    """Each once with the server to itself, then `BATCH` at once (the same ones again and again, if there are fewer)."""
    if not prompts:
        return ()
    batch = [prompts[i % len(prompts)] for i in range(BATCH)]
    return (
        Step(ALONE, 1, tuple(ask(ALONE) for ask in prompts)),
        Step(TOGETHER, BATCH, tuple(ask(TOGETHER) for ask in batch)),
    )
