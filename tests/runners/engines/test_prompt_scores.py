"""Scoring a given text: real answers of real servers, and anything else that a server may send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.coherence.asking import is_not_serialisable
from runners.engines.base import AnswerError, PromptScores
from runners.engines.registry import ADAPTERS, adapter_for

_ANSWERS = Path(__file__).parents[2] / "data" / "answers"
FILES = {"vllm": "scoring-vllm-0.32.0-cpu.json", "sglang": "scoring-sglang-0.5.14-cpu.json"}
NAMES = {"vllm": "prompt_logprobs 1", "sglang": "logprob_start_len 0"}
TOKENS = 32


def recorded(engine: str, name: str) -> dict[str, Any]:
    """Request, status and body of one recorded exchange."""
    entry = json.loads((_ANSWERS / FILES[engine]).read_text(encoding="utf-8"))[name]
    assert isinstance(entry, dict)
    return entry


def scores(engine: str) -> PromptScores:
    return adapter_for(engine).read_score(json.loads(recorded(engine, NAMES[engine])["body"]), TOKENS)


@pytest.mark.parametrize("engine", FILES)
def test_every_token_but_the_first_is_scored(engine: str) -> None:
    read = scores(engine)
    assert len(read.logprobs) == len(read.top1) == TOKENS
    assert (read.logprobs[0], read.top1[0], read.nonfinite) == (None, None, None)
    assert read.logprobs[1] == pytest.approx(-16.8, abs=0.2)
    assert read.logprobs[11:] == pytest.approx([0.0] * 21, abs=1e-4), "the memorised answer"
    assert all(read.top1[11:])
    assert read.top1[1:11] == (False, False, False, False, False, True, False, False, False, False)


def test_both_engines_score_the_same_text_alike() -> None:
    one, other = scores("vllm").logprobs[1:], scores("sglang").logprobs[1:]
    gaps = [abs((a or 0.0) - (b or 0.0)) for a, b in zip(one, other, strict=True)]
    assert 0.0 < max(gaps) < 0.2


@pytest.mark.parametrize("engine", FILES)
def test_the_request_is_the_one_that_was_recorded(engine: str) -> None:
    sent = recorded(engine, NAMES[engine])["request"]
    ids = sent["body"].get("prompt") or sent["body"]["input_ids"]
    request = adapter_for(engine).score_request("canary", ids)
    assert request is not None
    assert request.path == sent["path"]
    for field in ("prompt", "input_ids", "prompt_logprobs", "logprob_start_len", "return_logprob", "top_logprobs_num", "max_tokens"):
        assert (request.body or {}).get(field) == sent["body"].get(field), field


def test_an_engine_that_scores_no_prompts_says_so() -> None:
    assert adapter_for("llamacpp").score_request("m", (1, 2)) is None


@pytest.mark.parametrize("engine", FILES)
def test_another_number_of_tokens_is_refused(engine: str) -> None:
    with pytest.raises(AnswerError, match="33 tokens were to be scored, the answer has 32"):
        adapter_for(engine).read_score(json.loads(recorded(engine, NAMES[engine])["body"]), TOKENS + 1)


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "null", "-9999.0", "1" * 400])
@pytest.mark.parametrize("engine", FILES)
def test_a_score_that_is_no_finite_number_is_a_finding_with_its_place(engine: str, bad: str) -> None:
    body = recorded(engine, NAMES[engine])["body"]
    value = {"vllm": "-13.596576690673828", "sglang": "-13.535691261291504"}[engine]
    assert body.count(value) == 1
    read = adapter_for(engine).read_score(json.loads(body.replace(value, bad)), TOKENS)
    assert read.nonfinite == 4
    assert read.logprobs[4] is None
    assert read.logprobs[5] is not None


def test_nan_of_a_real_checkpoint_is_a_finding_or_a_refusal() -> None:
    read = adapter_for("sglang").read_score(json.loads(recorded("sglang", "nan logprob_start_len 0")["body"]), TOKENS)
    assert read.nonfinite == 1
    refused = recorded("vllm", "nan prompt_logprobs 1")
    assert refused["status"] == 400
    assert is_not_serialisable(refused["body"])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
@settings(max_examples=150, deadline=None)
@given(_JSON, st.integers(min_value=0, max_value=4))
def test_any_json_is_scores_or_an_answer_error(engine: str, data: Any, tokens: int) -> None:
    wrapped = (data, {"choices": [{"prompt_logprobs": data}]}, {"meta_info": {"input_token_logprobs": data, "input_top_logprobs": data}})
    for answer in wrapped:
        try:
            read = adapter_for(engine).read_score(answer, tokens)
        except AnswerError:
            continue
        assert len(read.logprobs) == tokens
