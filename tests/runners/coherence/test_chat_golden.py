"""Plain questions: what is searched is the answer after the reasoning."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.coherence.asking import ChatAnswer
from runners.coherence.chat_golden import GoldenAnswer, judge_chat_golden
from suites.chat_golden import Question, chat_golden

_SUM = Question(name="golden_sum", ask="What is 17 + 25?", accept=("42",))
_CAPITAL = Question(name="golden_capital", ask="Capital of France?", accept=("Paris",), reject=("Lyon",))


def answer(text: str, finish: str = "stop", field: str | None = "content", reasoning: str = "") -> ChatAnswer:
    return ChatAnswer(text, field, finish, reasoning)


@pytest.mark.parametrize(
    "text", ["42", "42.", "The answer is 42.", "**42**", "$42$", "\n\n42\n", "<think>6 * 7? 41? no</think>42", "17 + 25 = 42"]
)
def test_right_answers_are_found_in_their_usual_clothes(text: str) -> None:
    assert judge_chat_golden(_SUM, answer(text)).kind is GoldenAnswer.RIGHT


@pytest.mark.parametrize("text", ["43", "420", "142", "4.42", "42.5", "The sum of the two.", "", "<think>42 it is</think>It is 43."])
def test_wrong_answers_are_missed_even_if_the_reasoning_holds_the_right_one(text: str) -> None:
    found = judge_chat_golden(_SUM, answer(text))
    assert found.kind is GoldenAnswer.MISSED
    assert "expected 42" in found.reason


def test_a_rejected_word_beside_the_right_one_is_a_miss() -> None:
    assert judge_chat_golden(_CAPITAL, answer("Lyon, not Paris")).kind is GoldenAnswer.MISSED
    assert judge_chat_golden(_CAPITAL, answer("PARIS")).kind is GoldenAnswer.RIGHT


@pytest.mark.parametrize(
    "cut_off",
    [
        answer("<think>Let me see, 17 + 25 is 42, but", "length"),
        answer("17 + 25 is 42, but", "length", "reasoning"),
        answer("", "length", None),
    ],
)
def test_an_answer_cut_off_in_its_reasoning_is_not_judged(cut_off: ChatAnswer) -> None:
    assert judge_chat_golden(_SUM, cut_off).kind is GoldenAnswer.CUT_OFF


def test_an_answer_that_a_parser_put_into_the_reasoning_field_is_read() -> None:
    assert judge_chat_golden(_SUM, answer("42", "stop", "reasoning")).kind is GoldenAnswer.RIGHT


def test_a_right_word_far_back_in_an_essay_is_no_answer() -> None:
    assert judge_chat_golden(_SUM, answer("42 " + "and so on " * 80)).kind is GoldenAnswer.MISSED


def test_the_harmony_final_channel_is_the_answer() -> None:
    text = "<|channel|>analysis<|message|>maybe 41<|end|><|start|>assistant<|channel|>final<|message|>42"
    assert judge_chat_golden(_SUM, answer(text)).kind is GoldenAnswer.RIGHT


def test_questions_are_few_distinct_and_one_needs_a_system_message() -> None:
    questions = chat_golden()
    assert len({q.name for q in questions}) == len(questions) >= 6
    assert any(role == "system" for q in questions for role, _ in q.messages)
    assert all(len(word) <= 12 for q in questions for word in q.accept)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["stop", "length", "tool_calls"]), st.sampled_from(["content", "reasoning", None]))
def test_any_answer_is_judged(text: str, finish: str, field: str | None) -> None:
    assert judge_chat_golden(_CAPITAL, answer(text, finish, field)).reason
