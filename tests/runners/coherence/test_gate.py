"""The gate against a server that is right, wrong, broken, dead, silent or odd."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import pytest

from results.vocabulary import Outcome
from runners.coherence.findings import POINTS_AT
from runners.coherence.gate import GateFailure, GateResult, GateTarget, gate, gate_again
from runners.coherence.numeric_path import PathReference
from runners.coherence.plan import Via, canary_steps
from runners.coherence.transport import NoAnswer, Refused, http_send
from runners.engines.base import HttpRequest
from runners.engines.registry import adapter_for
from suites.canaries import zoo
from suites.canaries.references import NumericPath, Reference
from suites.canaries.zoo import Canary, GoldenPrompt
from tests.runners.coherence.fake_server import EOS, FakeServer, make_canary


@pytest.fixture
def canary() -> Canary:
    return make_canary()


@pytest.fixture
def server(canary: Canary) -> FakeServer:
    return FakeServer(canary)


def run(
    server: FakeServer, canary: Canary, progress: Callable[[str], None] = lambda _line: None, **target: Any
) -> GateResult | GateFailure:
    seconds = count()
    goal = GateTarget("run-1", "http://server", "model", canary, **target)
    return asyncio.run(gate(server.send, goal, adapter_for("vllm"), progress, lambda: float(next(seconds))))


def passed(result: GateResult | GateFailure) -> GateResult:
    assert isinstance(result, GateResult), result
    return result


def test_right_server_passes_with_every_answer_recorded(server: FakeServer, canary: Canary) -> None:
    result = passed(run(server, canary))
    assert result.outcome is None
    assert len(result.records) == sum(step.answers for step in result.steps) == len(server.asked)
    assert result.first_step is None
    assert {record.verdict for record in result.records} == {"match"}
    assert {record.run_id for record in result.records} == {"run-1"}
    assert result.min_margin == pytest.approx(16.0)


def test_prompts_are_asked_again_after_other_prompts(server: FakeServer, canary: Canary) -> None:
    run(server, canary)
    first = canary.prompts[0].name
    places = [i for i, name in enumerate(server.asked) if name == first]
    others = [i for i, name in enumerate(server.asked) if name.startswith("nobos")]
    assert places[0] < min(others) < max(others) < places[-1]


def test_every_prompt_is_asked_early_and_most_again(canary: Canary) -> None:
    names = {step.name: [p.name for p in step.prompts] for step in canary_steps(canary)}
    everything = [p.name for p in canary.prompts]
    assert names["cold"] + names["batch_4"] == everything
    again = names["again"] + names["batch_8"]
    assert len(set(again)) == len(again) > len(everything) / 2
    assert names["bos"] == [p.name for p in canary.bos_prompts]


def test_the_schedule_of_the_shipped_canary_changes_one_thing_per_step() -> None:
    steps = {step.name: step for step in canary_steps(zoo.load("dense"))}
    assert list(steps) == [name for name in POINTS_AT if name in steps], "the order in which a first difference is read"
    assert [steps[name].concurrency for name in ("cold", "warm", "batch_4", "batch_8")] == [1, 1, 4, 8]
    assert {p.name for p in steps["warm"].prompts} <= {p.name for p in steps["cold"].prompts}
    a, b, again = steps["aba_replay"].prompts
    assert (a, len(a.prompt_ids)) == (again, len(b.prompt_ids))
    assert a.answer_ids != b.answer_ids
    assert all(len(p.prompt_ids) > 1024 for p in steps["long_prompt"].prompts)
    assert len({len(p.prompt_ids) for p in steps["batch_8"].prompts}) > 3
    assert [(steps[n].concurrency, len(steps[n].prompts), len(set(steps[n].prompts))) for n in ("repeat_1", "repeat_8")] == [
        (1, 4, 1),
        (8, 8, 1),
    ]
    assert all("system" in dict(p.messages) for p in steps["system_message"].prompts)
    assert not any("system" in dict(p.messages) for p in steps["chat"].prompts)
    assert steps["streaming"].via is Via.STREAM


def test_steps_with_a_meaning_are_the_steps_there_are() -> None:
    assert {step.name for step in canary_steps(zoo.load("dense"))} | {"recheck", "passages", "chat_golden"} == set(POINTS_AT)


def test_a_batch_of_eight_keeps_eight_in_flight_and_cold_one(server: FakeServer, canary: Canary) -> None:
    at_most: dict[str, int] = {}
    step = ""

    def progress(line: str) -> None:
        nonlocal step
        at_most[step] = server.most_in_flight
        server.most_in_flight = 0
        step = line.split()[1].rstrip(",")

    run(server, canary, progress)
    assert at_most["cold"] == 1
    assert at_most["batch_8"] == 8
    assert at_most["bos"] == 4


def test_flood_makes_the_boot_incoherent(server: FakeServer, canary: Canary) -> None:
    server.break_answer = lambda _prompt, _n: [0] * 40
    result = passed(run(server, canary))
    assert result.outcome is Outcome.INCOHERENT
    assert "structurally broken" in result.reason
    assert result.records[0].judge == "structural"


def test_one_wrong_token_makes_the_boot_wrong_and_names_step_prompt_and_token(server: FakeServer, canary: Canary) -> None:
    def one_wrong(prompt: GoldenPrompt, asked: int) -> list[int] | None:
        return [*prompt.answer_ids[:2], 77, *prompt.answer_ids[3:]] if prompt.name == "p03" and asked > 17 else None

    server.break_answer = one_wrong
    result = passed(run(server, canary))
    assert result.outcome is Outcome.WRONG
    assert result.reason.startswith("1 of ")
    assert "'p03' at token 2" in result.reason
    assert result.first_step in ("again", "batch_8")
    assert f"differs first in step {result.first_step}: points at {POINTS_AT[result.first_step]}" in result.reason
    (stored,) = [score for score in result.scores if score.metric == "first_difference"]
    assert (stored.step, stored.subject, stored.value, stored.verdict) == (result.first_step, "p03", 2.0, "wrong")


def test_one_broken_answer_among_right_ones_is_incoherent(server: FakeServer, canary: Canary) -> None:
    server.break_answer = lambda prompt, _n: [*prompt.answer_ids[:3], *[0] * 50] if prompt.name == "p07" else None
    result = passed(run(server, canary))
    assert result.outcome is Outcome.INCOHERENT


def test_engine_that_never_stops_is_wrong(server: FakeServer, canary: Canary) -> None:
    server.break_answer = lambda prompt, _n: [*prompt.answer_ids[:-1], *[60 + i for i in range(9)]]
    result = passed(run(server, canary))
    assert result.outcome is Outcome.WRONG
    assert "8 tokens" not in result.reason


def test_nan_logits_that_the_server_refuses_to_write_are_incoherent_and_no_crash(server: FakeServer, canary: Canary) -> None:
    server.nan_logprobs = True
    server.break_answer = lambda _prompt, _n: [0] * 30
    result = passed(run(server, canary))
    assert result.outcome is Outcome.INCOHERENT
    assert result.records[0].verdict == "nonfinite"
    assert "Out of range float" in result.records[0].reason


def test_nan_is_incoherent_even_if_the_tokens_are_right(server: FakeServer, canary: Canary) -> None:
    server.nan_logprobs = True
    assert passed(run(server, canary)).outcome is Outcome.INCOHERENT


def test_server_without_logprobs_is_judged_by_its_tokens(server: FakeServer, canary: Canary) -> None:
    server.refuse = lambda request: Refused(400, "logprobs are not supported") if "logprobs" in (request.body or {}) else None
    result = passed(run(server, canary))
    assert result.outcome is None
    assert result.min_margin is None


@pytest.mark.parametrize(("is_hang", "text"), [(False, "connection"), (True, "within")])
def test_dead_or_silent_server_is_a_failure_and_no_wrong_answer(server: FakeServer, canary: Canary, is_hang: bool, text: str) -> None:
    failure = NoAnswer("the connection died" if not is_hang else "no answer within 300 s", is_hang=is_hang)
    server.refuse = lambda _request: failure if len(server.asked) >= 9 else None
    result = run(server, canary)
    assert isinstance(result, GateFailure)
    assert result.is_hang is is_hang
    assert text in result.reason
    assert 6 <= len(result.records) <= 9
    assert {record.verdict for record in result.records} == {"match"}
    assert result.step == "aba_replay"


def test_internal_error_is_a_failure(server: FakeServer, canary: Canary) -> None:
    server.refuse = lambda _request: Refused(500, "EngineDeadError")
    result = run(server, canary)
    assert isinstance(result, GateFailure)
    assert "HTTP 500" in result.reason
    assert not result.is_hang


@pytest.mark.parametrize(
    ("field", "outcome"), [("content", None), ("reasoning", None), ("reasoning_content", None), ("refusal", Outcome.INCOHERENT)]
)
def test_chat_text_is_found_in_whichever_field_carries_it(server: FakeServer, canary: Canary, field: str, outcome: Outcome | None) -> None:
    server.chat_message = lambda prompt: {"role": "assistant", "content": None, field: prompt.answer_text}
    result = passed(run(server, canary))
    assert result.outcome is outcome
    chat = next(record for record in result.records if record.step == "chat")
    assert chat.carried_by == (field if outcome is None else None)
    if outcome is not None:
        assert "null" in chat.reason


def test_chat_template_fault_is_wrong(server: FakeServer, canary: Canary) -> None:
    server.chat_message = lambda _prompt: {"role": "assistant", "content": "BOS DOUBLED. This prompt begins with two copies."}
    result = passed(run(server, canary))
    assert result.outcome is Outcome.WRONG
    assert "step 'chat'" in result.reason


def _path(canary: Canary, margin: float, rms: float, most: float, activation: str = "none") -> PathReference:
    margins = {p.name: (margin,) * len(p.answer_ids) for p in (*canary.prompts, *canary.bos_prompts)}
    return PathReference(NumericPath("bf16", activation), Reference(margins, rms / 2, rms, most, "Measured for this test."))


def test_margins_within_the_thresholds_of_their_path_pass_and_are_stored(server: FakeServer, canary: Canary) -> None:
    result = passed(run(server, canary, paths=(_path(canary, 15.9, 0.2, 0.5),)))
    assert result.outcome is None
    scores = {score.metric: score for score in result.scores}
    assert scores["margin_drift_rms"].value == pytest.approx(0.1)
    assert (scores["margin_drift_rms"].threshold, scores["margin_drift_rms"].verdict) == (0.2, "ok")
    assert scores["margin_drift_rms"].reference == "bf16 / none / auto"
    assert scores["margin_drift_max"].value == pytest.approx(0.1)


@pytest.mark.parametrize(("rms", "most"), [(0.05, 0.5), (0.2, 0.05)])
def test_drift_beyond_a_threshold_is_wrong_though_every_token_is_right(server: FakeServer, canary: Canary, rms: float, most: float) -> None:
    result = passed(run(server, canary, paths=(_path(canary, 15.9, rms, most),)))
    assert result.outcome is Outcome.WRONG
    assert "answers have the right text, but the margins drifted by 0.100 nats rms" in result.reason
    assert "differs first in step cold" in result.reason
    assert {record.verdict for record in result.records} == {"match"}
    assert {score.verdict for score in result.scores if score.metric.startswith("margin_drift")} >= {"drift"}


def test_drift_in_one_step_names_that_step(server: FakeServer, canary: Canary) -> None:
    at = list(POINTS_AT).index("again")
    first = sum(len(step.prompts) for step in canary_steps(canary)[:at] if step.name in list(POINTS_AT)[:at])

    def margin_of(_prompt: GoldenPrompt, asked: int) -> None:
        server.margin = 12.0 if asked > first else 16.0

    server.break_answer = margin_of
    result = passed(run(server, canary, paths=(_path(canary, 16.0, 0.2, 0.5),)))
    assert result.outcome is Outcome.WRONG
    assert result.first_step == "again"


def test_a_path_that_is_not_known_is_judged_by_the_nearest_candidate(server: FakeServer, canary: Canary) -> None:
    far, near = _path(canary, 14.0, 0.2, 0.5), _path(canary, 15.9, 0.2, 0.5, "fp8")
    result = passed(run(server, canary, paths=(far, near)))
    assert result.outcome is None
    assert {score.reference for score in result.scores if score.metric == "margin_drift_rms"} == {"bf16 / fp8 / auto"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, '{"error":{"message":"Token id 200008 is out of vocabulary","type":"BadRequestError","param":null,"code":400}}'),
        (500, '{"error":{"message":"error downloading or loading vocab file: failed to download or load vocab file","code":500}}'),
    ],
)
def test_a_server_that_encodes_chats_of_gpt_oss_by_itself_is_judged_by_ids(
    server: FakeServer, canary: Canary, status: int, said: str
) -> None:
    """vLLM 0.26.0 (H200) and 0.32.0 (CPU) answered so, and every ordinary boot of this canary was filed as a crash of the release."""
    server.refuse = lambda request: Refused(status, said) if request.path == "/v1/chat/completions" else None
    result = passed(run(server, replace(canary, name="gpt-oss")))
    assert result.outcome is None
    assert {step.name for step in result.steps}.isdisjoint({"chat", "system_message", "streaming"})
    assert any(note.startswith("chat was not judged") for note in result.notes)
    assert isinstance(run(server, canary), GateFailure)  # any other canary has only its own tokenizer


def test_no_reference_of_the_path_is_said(server: FakeServer, canary: Canary) -> None:
    result = passed(run(server, canary))
    assert any("margin drift was not judged" in note for note in result.notes)
    assert not [score for score in result.scores if score.metric.startswith("margin_drift")]


def test_lost_text_in_a_stream_is_wrong_and_points_at_streaming(server: FakeServer, canary: Canary) -> None:
    server.streamed_text = lambda prompt: prompt.answer_text[:-1]
    result = passed(run(server, canary))
    assert (result.outcome, result.first_step) == (Outcome.WRONG, "streaming")
    assert "the detokeniser" in result.reason


def test_an_engine_that_repeats_itself_has_a_flip_rate_of_zero(server: FakeServer, canary: Canary) -> None:
    flips = {score.step: score for score in passed(run(server, canary)).scores if score.metric == "flip_rate"}
    assert {name: score.value for name, score in flips.items()} == {"repeat_1": 0.0, "repeat_8": 0.0}


def test_flips_are_counted(server: FakeServer, canary: Canary) -> None:
    repeated = canary_steps(canary)[-4].prompts[0].name
    seen: list[int] = []

    def flip(prompt: GoldenPrompt, _asked: int) -> list[int] | None:
        if prompt.name != repeated:
            return None
        seen.append(1)
        return [*prompt.answer_ids[:1], 77, *prompt.answer_ids[2:]] if len(seen) % 4 == 0 else None

    server.break_answer = flip
    flips = {score.step: score.value for score in passed(run(server, canary)).scores if score.metric == "flip_rate"}
    assert flips["repeat_8"] == 0.25


def test_fixed_texts_are_scored(server: FakeServer, canary: Canary) -> None:
    scores = [score for score in passed(run(server, canary)).scores if score.step == "passages"]
    means = [score.value for score in scores if score.metric == "nll_mean"]
    assert len(means) >= 4
    assert all(value is not None and value > 0 for value in means)
    assert {score.value for score in scores if score.metric == "top1_agreement"} == {1.0}


def test_a_text_that_the_server_refuses_to_score_is_recorded_and_no_failure(server: FakeServer, canary: Canary) -> None:
    server.refuse = lambda request: Refused(400, "prompt logprobs are off") if "prompt_logprobs" in (request.body or {}) else None
    result = passed(run(server, canary))
    assert result.outcome is None
    refused = [score for score in result.scores if score.metric == "nll_mean"]
    assert all(
        score.value is None and score.verdict == "not_scored" and "prompt logprobs are off" in (score.reason or "") for score in refused
    )


@pytest.mark.parametrize("bad", [float("nan"), None, -9999.0])
def test_a_fixed_text_with_a_score_that_is_no_number_is_incoherent(server: FakeServer, canary: Canary, bad: float | None) -> None:
    server.score = lambda token: bad if token == 5 else -0.5
    result = passed(run(server, canary))
    assert (result.outcome, result.first_step) == (Outcome.INCOHERENT, "passages")
    assert "no finite numbers" in result.reason


def test_a_server_that_dies_while_scoring_is_a_failure_with_everything_kept(server: FakeServer, canary: Canary) -> None:
    gone = NoAnswer("the connection died", is_hang=False)
    server.refuse = lambda request: gone if "prompt_logprobs" in (request.body or {}) else None
    result = run(server, canary)
    assert isinstance(result, GateFailure)
    assert result.step == "passages"
    assert len(result.records) == len(server.asked)


def test_recheck_asks_the_first_eight_prompts(server: FakeServer, canary: Canary) -> None:
    goal = GateTarget("run-1", "http://server", "model", canary)
    result = asyncio.run(gate_again(server.send, goal, adapter_for("vllm"), lambda _line: None))
    assert isinstance(result, GateResult)
    assert [record.prompt_name for record in result.records] == [p.name for p in canary.prompts[:8]]
    assert {record.step for record in result.records} == {"recheck"}


def test_records_are_in_the_order_of_the_prompts(server: FakeServer, canary: Canary) -> None:
    result = passed(run(server, canary))
    batch = [record.prompt_name for record in result.records if record.step == "batch_4"]
    assert batch == [p.name for p in canary.prompts[6:]]


def test_step_durations_come_from_the_injected_clock(server: FakeServer, canary: Canary) -> None:
    assert {step.duration_s for step in passed(run(server, canary)).steps} == {1.0}


def _over_http(handler: Callable[[httpx.Request], httpx.Response], request: HttpRequest) -> Any:
    async def ask() -> Any:
        async with httpx.AsyncClient(base_url="http://server", transport=httpx.MockTransport(handler)) as client:
            return await http_send(client, 5.0)(request)

    return asyncio.run(ask())


def test_transport_reads_nan_as_a_number_that_is_none() -> None:
    answer = _over_http(lambda _request: httpx.Response(200, text='{"x": NaN, "y": Infinity}'), HttpRequest("/generate", {}))
    assert answer["x"] != answer["x"]
    assert answer["y"] == float("inf")


def test_transport_names_status_and_what_the_server_said() -> None:
    with pytest.raises(Refused, match="HTTP 503: starting"):
        _over_http(lambda _request: httpx.Response(503, text="starting"), HttpRequest("/health"))


def test_transport_calls_html_no_json() -> None:
    with pytest.raises(Refused, match="no JSON"):
        _over_http(lambda _request: httpx.Response(200, text="<html>"), HttpRequest("/health"))


@pytest.mark.parametrize(("error", "is_hang"), [(httpx.ReadTimeout("slow"), True), (httpx.ConnectError("refused"), False)])
def test_transport_tells_a_dead_server_from_a_silent_one(error: httpx.HTTPError, is_hang: bool) -> None:
    def fail(_request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(NoAnswer) as caught:
        _over_http(fail, HttpRequest("/generate", {}))
    assert caught.value.is_hang is is_hang


def test_golden_answer_that_repeats_is_still_right(canary: Canary) -> None:
    echo = GoldenPrompt("echo", (1, 2), (*[21] * 40, EOS), "", ())
    repeating = Canary("test", (echo,), (), {}, EOS, 64, {})
    server = FakeServer(canary)
    server.by_ids[echo.prompt_ids] = echo
    assert passed(run(server, repeating)).outcome is None
