"""The fault injection behind benchmarks/gate: each fault does what it says, and the gate sees those that a proxy makes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gate.cases import clean_cases, distinct_requests, fault_cases
from benchmarks.gate.proxy import BATCH, FLOOD_AFTER, Corruption
from results.vocabulary import Outcome
from runners.coherence.gate import GateResult, GateTarget, gate
from runners.engines.base import HttpRequest
from runners.engines.registry import adapter_for
from runners.sweep.jobs import key_of
from suites.canaries import corrupt, fault_catalogue, zoo
from suites.canaries.tensorfile import RawTensor, read_tensors
from tests.runners.coherence.fake_server import FakeServer, make_canary


class Corrupted:
    """A fake server behind the proxy's corruption, without sockets."""

    def __init__(self, fault: str) -> None:
        self.server, self.corruption, self.in_flight = FakeServer(make_canary()), Corruption(fault), 0

    async def send(self, request: HttpRequest) -> Any:
        self.in_flight += 1
        company = self.in_flight
        try:
            for _ in range(4):  # let everything that is asked at once arrive
                await asyncio.sleep(0)
            said = await self.server.send(request)
            return self.corruption.answer(request.path, request.body or {}, said, max(company, self.in_flight))
        finally:
            self.in_flight -= 1


def through(fault: str) -> GateResult:
    corrupted = Corrupted(fault)
    target = GateTarget("run", "", "model", make_canary())
    result = asyncio.run(gate(corrupted.send, target, adapter_for("vllm"), lambda line: None))
    assert isinstance(result, GateResult), result
    return result


def test_a_proxy_without_a_fault_changes_nothing() -> None:
    assert through("none").outcome is None


@pytest.mark.parametrize(("fault", "outcome"), [("flood", Outcome.WRONG), ("stale", Outcome.WRONG), ("batch", Outcome.WRONG)])
def test_the_gate_sees_what_a_proxy_breaks(fault: str, outcome: Outcome) -> None:
    result = through(fault)
    assert result.outcome is outcome, result.reason


def test_a_fault_of_large_batches_is_seen_there_and_nowhere_else() -> None:
    wrong = {r.step for r in through("batch").records if r.verdict != "match"}
    assert wrong and "cold" not in wrong and "batch_4" not in wrong


def test_a_flood_keeps_the_beginning_of_an_answer() -> None:
    said = {"choices": [{"text": "a" * 40, "token_ids": list(range(20)), "finish_reason": "stop", "logprobs": None}]}
    out = Corruption("flood").answer("/v1/completions", {"max_tokens": 30}, said, 1)["choices"][0]
    assert out["token_ids"] == [*range(FLOOD_AFTER), *[0] * (30 - FLOOD_AFTER)]
    assert out["finish_reason"] == "length"
    assert said["choices"][0]["token_ids"] == list(range(20)), "the engine's own answer is not touched"


def test_both_dialects_are_corrupted_alike() -> None:
    meta = {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[-0.1, i, None] for i in range(6)]}
    said = {"text": "abcdef", "output_ids": list(range(6)), "meta_info": meta}
    out = Corruption("batch").answer("/generate", {}, said, BATCH)
    assert sum(a != b for a, b in zip(out["output_ids"], said["output_ids"], strict=True)) == 1
    assert [entry[1] for entry in out["meta_info"]["output_token_logprobs"]] == out["output_ids"]


def test_scored_texts_pass_a_proxy_unchanged() -> None:
    said = {"choices": [{"text": "", "token_ids": [1], "prompt_logprobs": [None]}]}
    assert Corruption("stale").answer("/v1/completions", {"prompt_logprobs": 1}, said, 9) is said


@pytest.fixture(scope="module")
def tensors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, RawTensor]]:
    """Tensors of one checkpoint per format."""
    root = tmp_path_factory.mktemp("zoo")
    return {
        weight_format: read_tensors((zoo.materialise("moe", weight_format, root) / zoo.MODEL_FILE).read_bytes())
        for weight_format in zoo.weight_formats("moe")
    }


@pytest.mark.parametrize("fault", list(fault_catalogue.WEIGHT_FAULTS))
def test_every_weight_fault_changes_its_tensors_and_keeps_their_shape(tensors: dict[str, dict[str, RawTensor]], fault: str) -> None:
    for weight_format in fault_catalogue.WEIGHT_FAULTS[fault].formats:
        healthy = tensors[weight_format]
        broken = corrupt.apply_fault(healthy, fault)
        changed = [name for name in healthy if not np.array_equal(healthy[name].array, broken[name].array)]
        assert changed, weight_format
        assert {n: (t.dtype, t.array.shape) for n, t in healthy.items()} == {n: (t.dtype, t.array.shape) for n, t in broken.items()}
        assert all("layers" in name for name in changed)


def test_a_model_that_fuses_its_experts_can_have_every_fault_of_one_that_does_not(tmp_path: Path) -> None:
    healthy = read_tensors((zoo.materialise("gpt-oss", "bf16", tmp_path) / zoo.MODEL_FILE).read_bytes())
    for fault in (case.fault for case in fault_cases("gpt-oss", "bf16") if case.kind == "weights"):
        assert fault is not None
        broken = corrupt.apply_fault(healthy, fault)
        changed = {name for name in healthy if not np.array_equal(healthy[name].array, broken[name].array)}
        assert changed and all("layers" in name for name in changed), fault
        if fault == "expert_zero":
            experts = "model.layers.1.mlp.experts."
            assert changed == {f"{experts}down_proj", f"{experts}down_proj_bias"}
            assert not (broken[f"{experts}down_proj"].array[3] & 0x7FFF).any()
            assert np.array_equal(
                np.delete(broken[f"{experts}down_proj"].array, 3, 0), np.delete(healthy[f"{experts}down_proj"].array, 3, 0)
            )
        if fault == "gate_up_swap_1":
            name = "model.layers.1.mlp.experts.gate_up_proj"
            assert np.array_equal(broken[name].array[..., ::2], healthy[name].array[..., 1::2])


def test_a_fault_that_a_checkpoint_cannot_have_is_refused(tensors: dict[str, dict[str, RawTensor]]) -> None:
    with pytest.raises(corrupt.CorruptionError, match="int4_nibbles_swapped"):
        corrupt.apply_fault(tensors["bf16"], "int4_nibbles_swapped")


def test_int4_and_fp4_nibbles_are_exchanged_in_pairs(tensors: dict[str, dict[str, RawTensor]]) -> None:
    for weight_format, fault in (("int4", "int4_nibbles_swapped"), ("nvfp4", "fp4_nibbles_swapped")):
        once = corrupt.apply_fault(tensors[weight_format], fault)
        twice = corrupt.apply_fault(once, fault)
        assert all(np.array_equal(twice[n].array, t.array) for n, t in tensors[weight_format].items())


@pytest.mark.parametrize("canary", list(zoo.MANIFEST_SHA256))
def test_every_case_has_a_name_of_its_own_and_can_be_written(canary: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("written")
    cases = [case for weight_format in zoo.weight_formats(canary) for case in fault_cases(canary, weight_format)]
    assert len({case.name for case in cases}) == len(cases) > 0
    config = [case for case in cases if case.kind in ("configuration", "template")]
    for case in config:
        healthy = zoo.materialise(canary, "bf16", root)
        assert case.fault is not None
        broken = corrupt.write_corrupted(healthy, case.fault, root / case.name)
        differing = [p.name for p in healthy.iterdir() if p.read_bytes() != (broken / p.name).read_bytes()]
        assert differing == ["config.json" if case.kind == "configuration" else "chat_template.jinja"]


def test_distinct_requests_are_all_of_the_gates_and_none_twice() -> None:
    requests = distinct_requests("dense")
    canary = zoo.load("dense")
    keys = [key_of(r) for r in requests]
    assert len(set(keys)) == len(keys)
    asked = {tuple((r.body or {}).get("prompt") or ()) for r in requests}
    assert {p.prompt_ids for p in (*canary.prompts, *canary.bos_prompts)} <= asked


def test_clean_runs_of_quantised_weights_do_not_change_their_type() -> None:
    assert not any("--dtype" in case.arguments for case in clean_cases("moe", "int4", 1))
