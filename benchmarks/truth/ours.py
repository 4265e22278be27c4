"""Sparkproof against the truth server: the same client, reader and formulas that time an engine.

Completions scenarios go through `runners.throughput.measure`, the whole of the product's timing; chat scenarios, which the product never
times but whose streams it must read right, through its transport, reader and formulas.

`python -m benchmarks.truth.ours BASE_URL SCENARIO_JSON REPEATS FILE` does so in a process of its own, as the peers run.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.truth.accuracy import Said
from benchmarks.truth.scenarios import Api, Scenario, scenario_of
from benchmarks.truth.server import prompt_key
from runners.prompts import PromptKey, Vocabulary, timed_prompt
from runners.rates import rates_of
from runners.request_fields import probe_request_fields
from runners.sse import read_trace
from runners.stream import CHAT_COMPLETIONS, StreamPolicy, Target, open_client, record_stream, run_for, undisturbed
from runners.throughput import ThroughputPlan, measure
from suites.workloads import Workload

RUN_ID = "truth"
PROMPT_TOKENS = 64
VOCABULARY = Vocabulary(1000)


def measure_scenario(base_url: str, scenario: Scenario, repeats: int) -> tuple[Said, ...]:
    """Time `repeats` batches of the scenario as the product does, after warm-up."""
    target = Target(base_url, "truth")
    return _chat(target, scenario, repeats) if scenario.api is Api.CHAT else _completions(target, scenario, repeats)


def _completions(target: Target, scenario: Scenario, repeats: int) -> tuple[Said, ...]:
    fields = probe_request_fields(target, tuple(range(PROMPT_TOKENS)))
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
            s.itl_p50_s,
        )
        for s in result.samples
        if not s.cold
    )


def _chat(target: Target, scenario: Scenario, repeats: int) -> tuple[Said, ...]:
    async def one(messages: list[dict[str, str]]) -> Said:
        body: dict[str, Any] = {"model": "truth", "messages": messages, "max_tokens": scenario.tokens, "temperature": 0, "stream": True}
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        async with open_client(target) as client:
            raw = await record_stream(client, CHAT_COMPLETIONS, body, StreamPolicy())
        rates = rates_of(read_trace(raw, scenario.tokens))
        reason = rates.invalid_reason or rates.null_reason
        return Said(prompt_key(messages), rates.ttft_s, rates.decode_tok_s, rates.prefill_tok_s, reason)

    async def all_of_them() -> tuple[Said, ...]:
        said: list[Said] = []
        for repeat in range(repeats + 1):
            batch = [[{"role": "user", "content": f"say {repeat} {stream}"}] for stream in range(scenario.streams)]
            with undisturbed():
                latest = await asyncio.gather(*(one(messages) for messages in batch))
            said += latest if repeat > 0 else ()
        return tuple(said)

    return run_for(target, all_of_them())


def main(argv: list[str]) -> None:
    """Measure and write what was said."""
    base_url, scenario, repeats, file = argv
    said = measure_scenario(base_url, scenario_of(json.loads(scenario)), int(repeats))
    Path(file).write_text(json.dumps([asdict(one) for one in said]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
