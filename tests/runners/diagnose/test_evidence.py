"""What the records of a failed gate say before any control is made."""

from __future__ import annotations

import dataclasses

import pytest

from results.records import CoherenceRecord
from runners.diagnose.evidence import ALONE, TOGETHER, WITH_BOS, WITHOUT_BOS, evidence_of
from suites.canaries import zoo

RECORD = CoherenceRecord("run", "cold", "p", "golden", "match", "", "text", carried_by="output_ids")
CANARY = zoo.load("dense")
MISSING = next(p for p in CANARY.bos_prompts if p.name.startswith("nobos")).answer_text
DOUBLED = next(p for p in CANARY.bos_prompts if p.name.startswith("twobos")).answer_text


def record(step: str = "cold", name: str = "p", verdict: str = "wrong", **fields: str) -> CoherenceRecord:
    return dataclasses.replace(RECORD, step=step, prompt_name=name, verdict=verdict, **fields)


@pytest.mark.parametrize(("text", "fault"), [(MISSING, "bos_missing"), (DOUBLED + "<|end|>", "bos_doubled"), ("something else", None)])
def test_a_canary_names_a_fault_of_its_bos_token(text: str, fault: str | None) -> None:
    records = [record(name=f"s{i:02d}.0", text=text) for i in range(5)]
    assert evidence_of(records, CANARY).template == fault


def test_an_answer_that_is_cut_off_names_the_fault_as_well_and_prompts_that_begin_wrongly_have_no_say() -> None:
    """A front end that drops the BOS token before a real engine (vLLM 0.32.0): 61 of 97 wrong answers named it, 23 of them cut off."""
    ordinary = [record(name=f"s{i:02d}.0", text=MISSING[:51]) for i in range(3)]
    others = [record(name=p.name, text="one two three") for p in CANARY.bos_prompts if p.name.startswith("twobos")]
    assert evidence_of([*ordinary, *others], CANARY).template == "bos_missing"
    assert evidence_of([dataclasses.replace(r, text="BOS M") for r in ordinary], CANARY).template is None


def test_one_answer_that_names_a_fault_among_many_wrong_ones_is_not_believed() -> None:
    records = [record(name="s00.0", text=MISSING), *(record(name=f"s{i:02d}.0", text="salad") for i in range(1, 6))]
    assert evidence_of(records, CANARY).template is None


def test_answers_to_bos_prompts_themselves_are_no_evidence() -> None:
    records = [record(name=p.name, text=MISSING) for p in CANARY.bos_prompts if p.name.startswith("twobos")]
    assert evidence_of(records, CANARY).template is None


def test_right_by_ids_and_wrong_by_chat_is_the_template() -> None:
    records = [record(verdict="match"), record(step="chat", carried_by="content")]
    assert evidence_of(records).template == "chat_template"


def test_one_salad_among_many_chat_answers_is_not_the_template() -> None:
    """Nibbles swapped in NVFP4 (vLLM 0.26.0 on an H200), a model judged by structure alone: 1 of 8 plain questions was salad."""
    by_ids = [record(verdict="pass_structure") for _ in range(30)]
    chats = [record(step="chat_golden", verdict="pass_structure", carried_by="content") for _ in range(7)]
    salad = record(step="chat_golden", verdict="token_salad", carried_by="content")
    assert evidence_of([*by_ids, *chats, salad]).template is None
    assert evidence_of([*by_ids, *chats, salad, record(step="streaming", carried_by="content")]).template == "chat_template"


def test_wrong_by_ids_as_well_is_not_the_template() -> None:
    assert evidence_of([record(), record(step="chat", carried_by="content")]).template is None


@pytest.mark.parametrize(
    ("bos", "with_bos", "without", "fault"),
    [
        ("omit", "pass_structure", "repetition_loop", "bos_missing"),
        ("auto", "repetition_loop", "pass_structure", "bos_doubled"),
        ("omit", "repetition_loop", "repetition_loop", None),
        ("auto", "pass_structure", "repetition_loop", None),
        ("auto", "pass_structure", "pass_structure", None),
    ],
)
def test_a_model_asked_with_and_without_its_bos_token_tells(bos: str, with_bos: str, without: str, fault: str | None) -> None:
    records = [record(verdict="repetition_loop"), record(WITH_BOS, verdict=with_bos), record(WITHOUT_BOS, verdict=without)]
    assert evidence_of(records, bos=bos).template == fault


def test_alone_and_together_are_read_from_their_steps_and_none_where_not_asked() -> None:
    records = [record(), record(ALONE, verdict="match"), record(TOGETHER, "p", "match"), record(TOGETHER, "q", "wrong")]
    found = evidence_of(records)
    assert (found.alone_right, found.together_right, found.comes_and_goes) == (True, False, True)
    assert (evidence_of([record()]).alone_right, evidence_of([record()]).together_right) == (None, None)


def test_control_steps_do_not_count_as_gate_answers() -> None:
    found = evidence_of([record(), record(verdict="match"), record(ALONE)])
    assert (found.wrong, found.judged) == (1, 2)


def test_two_different_prompts_right_and_wrong_do_not_come_and_go() -> None:
    assert not evidence_of([record(name="a"), record(name="b", verdict="match")]).comes_and_goes
