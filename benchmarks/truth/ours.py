"""Sparkproof against the truth server: the same client, reader and formulas that time an engine.

Completions scenarios go through `runners.throughput.measure`, the whole of the product's timing; chat scenarios, which the product never
times but whose streams it must read right, through its transport, reader and formulas.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass

from benchmarks.truth.process import RunningTruth
from benchmarks.truth.scenarios import Api, Scenario
from benchmarks.truth.server import prompt_key
from runners.prompts import PromptKey, Vocabulary, timed_prompt
from runners.rates import rates_of
from runners.request_fields import probe_request_fields
from runners.sse import read_trace
from runners.stream import CHAT_COMPLETIONS, StreamPolicy, Target, open_client, record_stream
from runners.throughput import ThroughputPlan, measure
from suites.workloads import Workload

RUN_ID = "truth"
PROMPT_TOKENS = 64
VOCABULARY = Vocabulary(1000)


@dataclass(frozen=True)
class Said:
    """What a tool said of one stream; `key` ties it to the sent one. `reason` says why a number is None."""

    key: str
    ttft_s: float | None
    decode_tok_s: float | None
    prefill_tok_s: float | None
    reason: str | None
    lag_s: float | None = None


@dataclass(frozen=True)
class OurRun:
    """What Sparkproof said of one scenario, and its cost: CPU seconds of this process, tokens received, all warm-up included."""

    said: tuple[Said, ...]
    cpu_s: float
    tokens: int


def measure_scenario(server: RunningTruth, scenario: Scenario, repeats: int) -> OurRun:
    """Time `repeats` batches of the scenario as the product does."""
    target = Target(server.base_url, "truth")
    cpu = time.process_time()
    said = _chat(target, scenario, repeats) if scenario.api is Api.CHAT else _completions(target, scenario, repeats)
    spent = time.process_time() - cpu
    return OurRun(said, spent, sum(stream.events[-1].tokens for stream, _ in server.sent() if stream.events))


def _completions(target: Target, scenario: Scenario, repeats: int) -> tuple[Said, ...]:
    probe = tuple(range(PROMPT_TOKENS))
    fields = probe_request_fields(target, probe)
    workload = Workload(scenario.name, PROMPT_TOKENS, scenario.tokens, scenario.streams, repeats)
    plan = ThroughputPlan(RUN_ID, (workload,), VOCABULARY, fields.accepted, launch_bound=False, max_warmups=2)
    result = measure(target, plan, generated_tokens=lambda page: None)
    return tuple(
        Said(
            prompt_key(list(timed_prompt(PromptKey(RUN_ID, s.workload, s.repeat, s.stream, s.cold), PROMPT_TOKENS, VOCABULARY))),
            s.ttft_s,
            s.decode_tok_s,
            s.prefill_tok_s,
            s.invalid_reason or s.null_reason,
            s.client_lag_s,
        )
        for s in result.samples
        if not s.cold
    )


def _chat(target: Target, scenario: Scenario, repeats: int) -> tuple[Said, ...]:
    async def one(client_messages: list[dict[str, str]]) -> Said:
        body = {"model": "truth", "messages": client_messages, "max_tokens": scenario.tokens, "temperature": 0, "stream": True}
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        async with open_client(target) as client:
            raw = await record_stream(client, CHAT_COMPLETIONS, json.loads(json.dumps(body)), StreamPolicy())
        rates = rates_of(read_trace(raw, scenario.tokens))
        reason = rates.invalid_reason or rates.null_reason
        return Said(prompt_key(client_messages), rates.ttft_s, rates.decode_tok_s, rates.prefill_tok_s, reason)

    async def all_of_them() -> tuple[Said, ...]:
        said: list[Said] = []
        for repeat in range(repeats):
            batch = [[{"role": "user", "content": f"say {repeat} {stream}"}] for stream in range(scenario.streams)]
            said += await asyncio.gather(*(one(messages) for messages in batch))
        return tuple(said)

    return asyncio.run(all_of_them())
