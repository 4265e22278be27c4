"""The structural judge on recorded cases, on legitimate and broken texts of many kinds, and on anything at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.coherence.structural import judge_ids, judge_logprobs, judge_text
from runners.coherence.verdict import StructuralKind
from tests.runners.coherence.broken import BROKEN
from tests.runners.coherence.legitimate import LEGITIMATE

_CASES = json.loads((Path(__file__).parents[2] / "data" / "structural_cases.json").read_text(encoding="utf-8"))

_GEMMA = json.loads((Path(__file__).parents[2] / "data" / "answers" / "gemma3-270m-vllm-0.32.0-cpu.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["name"])
def test_recorded_output_is_judged_as_its_kind(case: dict[str, str]) -> None:
    expected = "pass_structure" if case["expect"] == "wrong" else case["expect"]
    assert judge_text(case["text"]).kind == expected


@pytest.mark.parametrize("name", LEGITIMATE)
def test_legitimate_text_is_not_called_broken(name: str) -> None:
    verdict = judge_text(LEGITIMATE[name])
    assert verdict.kind is StructuralKind.PASS, verdict


@pytest.mark.parametrize("name", BROKEN)
def test_broken_text_is_judged_as_its_kind(name: str) -> None:
    expected, text = BROKEN[name]
    verdict = judge_text(text)
    assert verdict.kind == expected, verdict
    assert verdict.position is not None
    assert 0 <= verdict.position <= len(text)


@pytest.mark.parametrize("answer", _GEMMA["with_bos"], ids=lambda answer: answer["prompt"])
def test_small_base_model_with_its_bos_token_is_not_called_broken(answer: dict[str, Any]) -> None:
    assert not judge_text(answer["text"], finish_reason=answer["finish_reason"]).broken
    assert not judge_ids(answer["token_ids"], finish_reason=answer["finish_reason"]).broken


def test_small_base_model_without_its_bos_token_is_called_broken() -> None:
    verdicts = {
        answer["prompt"]: judge_text(answer["text"], finish_reason=answer["finish_reason"]).kind for answer in _GEMMA["without_bos"]
    }
    assert verdicts["raw_capital"] is StructuralKind.REPETITION_LOOP
    assert verdicts["raw_german"] is StructuralKind.REPETITION_LOOP
    assert verdicts["raw_code"] is StructuralKind.TOKEN_FLOOD


def test_loop_position_is_where_the_loop_begins_and_not_the_good_beginning() -> None:
    good = "The capital of France is Paris. "
    verdict = judge_text(good + "so it goes " * 30)
    assert verdict.kind is StructuralKind.REPETITION_LOOP
    assert abs((verdict.position or 0) - len(good)) <= len("so it goes ")
    assert verdict.numbers["period"] == len("so it goes ")


def test_salad_after_a_good_beginning_is_placed_after_it() -> None:
    good = LEGITIMATE["english_long"]
    verdict = judge_text(good + " " + BROKEN["subwords"][1] * 2)
    assert verdict.kind is StructuralKind.TOKEN_SALAD
    assert (verdict.position or 0) > len(good) / 2


@pytest.mark.parametrize("paragraphs", [30, 200])
def test_salad_at_the_end_of_a_long_answer_is_found(paragraphs: int) -> None:
    prose = "".join(
        f"Paragraph {i} says that the {w} was seen near the mill, and then again at dusk.\n"
        for i in range(paragraphs)
        for w in ("heron", "owl")
    )
    assert len(prose) > 4200
    assert judge_text(prose).kind is StructuralKind.PASS
    verdict = judge_text(prose + BROKEN["many_scripts"][1] * 2)
    assert verdict.kind is StructuralKind.TOKEN_SALAD
    assert (verdict.position or 0) > len(prose) - 400


def test_repetition_that_ended_by_itself_may_be_an_answer() -> None:
    lines = "I will not feed the printer to the goat.\n" * 10
    assert judge_text(lines).kind is StructuralKind.REPETITION_LOOP
    assert judge_text(lines, finish_reason="length").kind is StructuralKind.REPETITION_LOOP
    assert judge_text(lines, finish_reason="stop").kind is StructuralKind.PASS


def test_flood_is_broken_even_if_it_ended_by_itself() -> None:
    assert judge_text("!" * 160, finish_reason="stop").kind is StructuralKind.TOKEN_FLOOD


def test_endless_loop_is_broken_even_if_it_ended_by_itself() -> None:
    assert judge_text("I am here. You are there. " * 60, finish_reason="stop").kind is StructuralKind.REPETITION_LOOP


@pytest.mark.parametrize("unit_length", [2, 17, 160, 900, 2500])
def test_exact_loop_of_any_period_is_found(unit_length: int) -> None:
    unit = "".join(chr(ord("a") + (i * i + i // 3) % 26) + (" " if i % 5 == 4 else "") for i in range(unit_length))[:unit_length]
    verdict = judge_text("Well, here it comes: " + unit * max(4, 240 // unit_length + 2))
    assert verdict.kind is StructuralKind.REPETITION_LOOP


def test_run_longer_than_the_searched_tail_begins_where_it_begins() -> None:
    verdict = judge_text("Good morning. " + "all work " * 20_000)
    assert (verdict.position or 0) <= len("Good morning. ")
    assert verdict.numbers["repeats"] >= 20_000


def test_reason_shows_no_control_characters() -> None:
    reason = judge_text("\x1b[31m\u202e evil" * 60).reason
    assert reason.isprintable()


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400))
def test_any_text_gets_a_verdict(text: str) -> None:
    verdict = judge_text(text)
    assert verdict.broken == (verdict.kind is not StructuralKind.PASS)
    assert verdict.position is None or 0 <= verdict.position <= len(text)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab<|>[] \n\ud800\ufffd0.!"), max_size=300))
def test_any_text_of_few_characters_gets_a_verdict(text: str) -> None:
    assert judge_text(text).reason


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.characters(categories=["Lu", "Ll", "Nd"]), min_size=2, max_size=40), st.text(max_size=30))
def test_long_exact_repetition_is_always_broken(unit: str, beginning: str) -> None:
    assert judge_text(beginning + unit * 400).broken


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2_000_000,
        "xy" * 1_000_000,
        "(" * 2_000_000,
        "<" * 2_000_000,
        "a" * 3999 + "b" * 2_000_000,
        "<|a|" * 400_000,
        "\n" * 2_000_000,
        "aab" * 700_000,
    ],
    ids=["x", "xy", "paren", "less", "ab", "open", "newline", "aab"],
)
def test_huge_hostile_text_is_judged(text: str) -> None:
    assert judge_text(text).broken


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([], StructuralKind.EMPTY),
        ([0] * 28, StructuralKind.TOKEN_FLOOD),
        ([5, 9, 3, 2] + [0] * 40, StructuralKind.TOKEN_FLOOD),
        ([5, 9, 3, 2] + [7, 8] * 30, StructuralKind.REPETITION_LOOP),
        ([1, 2] + list(range(40, 70)) * 5, StructuralKind.REPETITION_LOOP),
        ([7, *[11] * 10], StructuralKind.PASS),
        (list(range(50)), StructuralKind.PASS),
    ],
)
def test_token_ids_are_judged(ids: list[int], kind: StructuralKind) -> None:
    assert judge_ids(ids).kind is kind


def test_flood_of_ids_begins_where_it_begins() -> None:
    assert judge_ids([5, 9, 3, 2] + [0] * 40).position == 4


@settings(deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=2**31), max_size=60))
def test_any_ids_get_a_verdict(ids: list[int]) -> None:
    assert judge_ids(ids).reason


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), -9999.0, None])
def test_logprob_that_is_no_number_is_a_finding(bad: float | None) -> None:
    verdict = judge_logprobs([-0.1, -0.2, bad, -0.3, bad])
    assert verdict.kind is StructuralKind.NONFINITE
    assert verdict.position == 2
    assert verdict.numbers["nonfinite"] == 2


def test_very_unlikely_but_finite_logprob_is_no_finding() -> None:
    assert judge_logprobs([-0.0, -250.0]).kind is StructuralKind.PASS
