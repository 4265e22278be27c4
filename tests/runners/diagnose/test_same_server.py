"""What is asked of a server that has failed its gate, and how little."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from results.records import CoherenceRecord
from runners.coherence.gate import GateTarget
from runners.coherence.judging import RIGHT
from runners.coherence.steps import StepsDone, run_steps
from runners.diagnose.evidence import ALONE, TOGETHER, WITH_BOS, WITHOUT_BOS, evidence_of
from runners.diagnose.same_server import BATCH, MOST_PROMPTS, steps_for
from runners.engines.base import HttpRequest
from runners.engines.registry import adapter_for
from suites.prompts import MODEL_PROMPTS
from tests.runners.coherence.fake_server import FakeServer, make_canary

WRONG = CoherenceRecord("run", "cold", "p", "golden", "wrong", "", "text", carried_by="output_ids")
RAW = [p for p in MODEL_PROMPTS if p.text is not None]


class ModelServer:
    """A model that answers sensibly with its BOS token (id 2) and loops without."""

    def __init__(self, *, has_bos: bool = True) -> None:
        self.has_bos = has_bos
        self.asked: list[tuple[int, ...]] = []

    async def send(self, request: HttpRequest) -> Any:
        body = request.body or {}
        if request.path == "/tokenize":
            ids = [10 + len(word) for word in str(body["prompt"]).split()][:20]
            return {"tokens": [2, *ids] if body["add_special_tokens"] and self.has_bos else ids}
        prompt = tuple(body["prompt"])
        self.asked.append(prompt)
        good = prompt[0] == 2
        text = "A ferry crosses the strait twice a day." if good else "The The The The The The The The The The The The The The The The"
        ids = list(range(50, 60)) if good else [7] * 40
        return {"choices": [{"index": 0, "text": text, "token_ids": ids, "finish_reason": "stop" if good else "length", "logprobs": None}]}


def ask(send: Any, target: GateTarget, names: list[str]) -> StepsDone:
    wrong = [dataclasses.replace(WRONG, prompt_name=name) for name in names]

    async def run() -> StepsDone:
        steps = await steps_for(send, target, adapter_for("vllm"), wrong)
        return await run_steps(steps, lambda line: None, lambda: 0.0)

    return asyncio.run(run())


def records(done: StepsDone) -> list[CoherenceRecord]:
    return [judged.record for judged in done.judged]


def test_a_canary_is_asked_a_few_of_its_wrong_prompts_alone_and_together() -> None:
    canary = make_canary()
    server = FakeServer(canary)
    done = ask(server.send, GateTarget("run", "", "model", canary), [p.name for p in canary.prompts])
    steps = [r.step for r in records(done)]
    assert steps == [ALONE] * MOST_PROMPTS + [TOGETHER] * BATCH
    assert all(r.verdict in RIGHT for r in records(done))
    assert evidence_of(records(done)).alone_right is True
    assert server.most_in_flight == BATCH


def test_nothing_wrong_by_ids_asks_nothing() -> None:
    canary = make_canary()
    done = ask(FakeServer(canary).send, GateTarget("run", "", "model", canary), [])
    assert done.judged == ()


def test_a_model_asked_without_its_bos_token_is_asked_with_it() -> None:
    server = ModelServer()
    done = ask(server.send, GateTarget("run", "", "model", bos="omit"), [p.name for p in RAW])
    found = evidence_of([WRONG, *records(done)], bos="omit")
    assert found.template == "bos_missing"
    assert {r.step for r in records(done)} == {WITH_BOS, WITHOUT_BOS, ALONE, TOGETHER}
    assert found.alone_right is False, "alone is asked as the gate asked"


def test_a_model_without_a_bos_token_is_not_asked_both_ways() -> None:
    done = ask(ModelServer(has_bos=False).send, GateTarget("run", "", "model"), [RAW[0].name])
    assert {r.step for r in records(done)} == {ALONE, TOGETHER}
