"""Reading real answers of real servers, and anything else that a server may send."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.coherence.asking import read_chat
from runners.engines.answers import counter_total, margin_of, without_logprobs
from runners.engines.base import UNKNOWN, AnswerError, GreedyAnswer
from runners.engines.identity import same_public_version
from runners.engines.registry import ADAPTERS, adapter_for

_ANSWERS = Path(__file__).parents[2] / "data" / "answers"
RECORDED = {"vllm": "vllm-0.32.0-cpu.json", "sglang": "sglang-0.5.14-cpu.json"}
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.14"}
ENGINES = sorted(RECORDED)
FRANCE = (294, 504, 286, 909, 290, 429, 299, 311, 11, 259, 775, 292, 258, 291, 72, 334, 395, 1013, 13, 1020)
FRANCE_TEXT = "The capital of France is Paris, a city on the river Seine."


def recorded(engine: str, checkpoint: str, name: str) -> Any:
    """Body of a recorded answer, as our transport would parse it."""
    entry = json.loads((_ANSWERS / RECORDED[engine]).read_text(encoding="utf-8"))[checkpoint][name]
    assert entry["status"] == 200, entry
    return json.loads(entry["body"])


def greedy(engine: str, checkpoint: str, name: str) -> GreedyAnswer:
    return adapter_for(engine).read_greedy(recorded(engine, checkpoint, name))


@pytest.mark.parametrize("engine", ENGINES)
def test_ids_include_the_end_token_and_the_engines_own_stop(engine: str) -> None:
    answer = greedy(engine, "healthy", "greedy s03.0")
    assert answer.token_ids == FRANCE
    assert answer.text == FRANCE_TEXT
    assert answer.finish_reason == "stop"
    assert answer.nonfinite is None


@pytest.mark.parametrize("engine", ENGINES)
def test_margins_are_gaps_of_the_two_best_tokens(engine: str) -> None:
    answer = greedy(engine, "healthy", "greedy s03.0")
    assert len(answer.margins) == len(answer.top1_ids) == len(FRANCE)
    assert answer.top1_ids == FRANCE
    margins = [margin for margin in answer.margins if margin is not None]
    assert len(margins) == len(FRANCE)
    assert margins[0] == pytest.approx(19.55, abs=0.1)
    assert min(margins) > 16


@pytest.mark.parametrize("engine", ENGINES)
def test_both_engines_measure_the_same_margins(engine: str) -> None:
    here, there = greedy(engine, "healthy", "greedy s19.0"), greedy("vllm", "healthy", "greedy s19.0")
    assert here.token_ids == there.token_ids
    assert here.margins == pytest.approx(there.margins, abs=0.15)


@pytest.mark.parametrize("engine", ENGINES)
def test_answer_cut_by_the_limit_says_length(engine: str) -> None:
    answer = greedy(engine, "healthy", "greedy cut s03.0")
    assert answer.token_ids == FRANCE[:6]
    assert answer.finish_reason == "length"


@pytest.mark.parametrize("engine", ENGINES)
def test_answer_without_logprobs_has_ids_and_no_margins(engine: str) -> None:
    answer = greedy(engine, "healthy", "greedy without logprobs s03.0")
    assert answer.token_ids == FRANCE
    assert set(answer.margins) == {None}
    assert answer.nonfinite is None


def test_null_logprobs_of_sglang_are_a_finding_at_the_first_token() -> None:
    answer = greedy("sglang", "nan", "greedy s03.0")
    assert answer.nonfinite == 0
    assert set(answer.token_ids) == {0}
    assert set(answer.margins) == {None}


def test_vllm_refuses_to_write_nan_and_answers_without_logprobs() -> None:
    entry = json.loads((_ANSWERS / RECORDED["vllm"]).read_text(encoding="utf-8"))["nan"]["greedy s03.0"]
    assert entry["status"] == 400
    assert "Out of range float" in entry["body"]
    assert set(greedy("vllm", "nan", "greedy without logprobs s03.0").token_ids) == {0}


@pytest.mark.parametrize("engine", ENGINES)
def test_chat_answer_names_the_field_that_carried_it(engine: str) -> None:
    answer = read_chat(recorded(engine, "healthy", "chat s03.0"))
    assert (answer.text, answer.carried_by, answer.finish_reason) == (FRANCE_TEXT, "content", "stop")


@pytest.mark.parametrize("engine", ENGINES)
def test_identity_is_what_the_server_says(engine: str) -> None:
    adapter = adapter_for(engine)
    answers = {request.path: _maybe(engine, f"GET {request.path}") for request in adapter.info_requests(VERSIONS[engine])}
    identity = adapter.identify(VERSIONS[engine], {path: body for path, body in answers.items() if body is not None}, "")
    assert identity.version == VERSIONS[engine]
    assert identity.model == "canary"
    assert identity.max_model_len == 1024


def _maybe(engine: str, name: str) -> Any:
    entry = json.loads((_ANSWERS / RECORDED[engine]).read_text(encoding="utf-8"))["healthy"].get(name)
    return json.loads(entry["body"]) if entry is not None and entry["status"] == 200 else None


@pytest.mark.parametrize("engine", ENGINES)
def test_server_that_says_nothing_stays_unknown(engine: str) -> None:
    identity = adapter_for(engine).identify(UNKNOWN, {}, "")
    assert (identity.version, identity.model, identity.max_model_len, identity.kv_cache_tokens) == (None, None, None, None)
    assert set(identity.kernels.values()) <= {UNKNOWN}


@pytest.mark.parametrize("engine", ENGINES)
def test_generated_tokens_are_counted_by_the_engine(engine: str) -> None:
    page = json.loads((_ANSWERS / RECORDED[engine]).read_text(encoding="utf-8"))["healthy"]["GET /metrics"]["body"]
    count = adapter_for(engine).generated_tokens(page)
    assert count is not None
    assert count > 100


def test_counter_is_summed_over_labels_and_nothing_else() -> None:
    page = (
        "# TYPE sglang:generation_tokens_total counter\n"
        'sglang:generation_tokens_total{is_streaming="False",model_name="m"} 60.0\n'
        'sglang:generation_tokens_total{is_streaming="True",model_name="m"} 8.0\n'
        'sglang:generation_tokens_histogram_sum{model_name="m"} 999.0\n'
        'sglang:prompt_tokens_total{model_name="m"} 5.0\n'
    )
    assert adapter_for("sglang").generated_tokens(page) == 68
    assert adapter_for("vllm").generated_tokens(page) is None


@pytest.mark.parametrize("page", ["", "<html>", "vllm:generation_tokens_total{engine NaN", "vllm:generation_tokens_total{} NaN\n"])
def test_page_without_the_counter_gives_none_or_an_answer_error(page: str) -> None:
    try:
        assert adapter_for("vllm").generated_tokens(page) is None
    except AnswerError as error:
        assert "generation_tokens" in str(error)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_metrics_page_is_read_or_refused(page: str) -> None:
    try:
        total = counter_total("vllm:generation_tokens_total" + page, "vllm:generation_tokens")
    except AnswerError:
        return
    assert total is None or isinstance(total, int)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "text",
                    "token_ids",
                    "logprobs",
                    "finish_reason",
                    "top_logprobs",
                    "token_logprobs",
                    "tokens",
                    "output_ids",
                    "meta_info",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
@settings(deadline=None)
@given(answer=_JSON)
def test_anything_else_is_an_answer_error(engine: str, answer: Any) -> None:
    try:
        read = adapter_for(engine).read_greedy(answer)
    except AnswerError as error:
        assert str(error)
    else:
        assert len(read.margins) == len(read.token_ids)


@pytest.mark.parametrize("engine", ENGINES)
@settings(deadline=None)
@given(data=st.data())
def test_answer_with_one_damaged_place_is_read_or_refused(engine: str, data: st.DataObject) -> None:
    answer = recorded(engine, "healthy", "greedy s03.0")
    here = answer
    for _ in range(data.draw(st.integers(0, 4))):
        keys = list(here) if isinstance(here, dict) else list(range(len(here))) if isinstance(here, list) else []
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list):
            here[key] = data.draw(st.none() | st.just([]) | st.just({}) | st.just("x") | st.floats())
            break
        here = here[key]
    try:
        assert adapter_for(engine).read_greedy(answer).token_ids
    except AnswerError as error:
        assert str(error)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, -9999.0, "x", True])
@pytest.mark.parametrize("engine", ENGINES)
def test_logprob_that_is_no_number_is_reported_where_it_is(engine: str, value: Any) -> None:
    answer = recorded(engine, "healthy", "greedy s03.0")
    if engine == "vllm":
        answer["choices"][0]["logprobs"]["token_logprobs"][3] = value
    else:
        answer["meta_info"]["output_token_logprobs"][3][0] = value
    assert adapter_for(engine).read_greedy(answer).nonfinite == 3


def test_vllm_tokens_written_as_ids_replace_missing_token_ids() -> None:
    answer = recorded("vllm", "healthy", "greedy s03.0")
    answer["choices"][0]["token_ids"] = None
    assert adapter_for("vllm").read_greedy(answer).token_ids == FRANCE


def test_exact_tie_has_margin_zero_and_names_the_token_not_chosen() -> None:
    assert margin_of(5, [(5, -0.7), (9, -0.7)]) == (0.0, 9)
    assert margin_of(9, [(5, -0.7), (9, -0.7)]) == (0.0, 5)


def test_chosen_token_that_is_not_the_best_shows_the_best() -> None:
    assert margin_of(7, [(7, -3.0), (5, -0.1), (9, -2.1)]) == (2.0, 5)


@pytest.mark.parametrize("best", [[], [(5, -0.1)], [(5, -0.1), (9, None)], [(5, math.nan), (9, -1.0)]])
def test_margin_needs_two_finite_values(best: list[tuple[int, Any]]) -> None:
    assert margin_of(5, best) == (None, None)


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
def test_request_without_logprobs_keeps_prompt_and_sampling(engine: str) -> None:
    request = adapter_for(engine).greedy_request("m", [1, 2, 3], 20)
    stripped = without_logprobs(request)
    assert request.body is not None
    assert stripped.body is not None
    assert stripped.path == request.path
    removed = set(request.body) - set(stripped.body)
    assert removed
    assert all("logprob" in name or name in ("return_tokens_as_token_ids", "n_probs") for name in removed)
    assert [1, 2, 3] in stripped.body.values()


def test_greedy_requests_ask_for_exact_ids_and_the_engines_own_stop() -> None:
    vllm = adapter_for("vllm").greedy_request("m", (1, 2), 20)
    assert (vllm.path, vllm.body and vllm.body["temperature"]) == ("/v1/completions", 0)
    assert vllm.body is not None
    assert vllm.body["add_special_tokens"] is False
    assert vllm.body["skip_special_tokens"] is False
    assert "ignore_eos" not in vllm.body
    sglang = adapter_for("sglang").greedy_request("m", (1, 2), 20)
    assert sglang.body is not None
    assert sglang.body["sampling_params"] == {"temperature": 0, "max_new_tokens": 20, "skip_special_tokens": False}
    assert sglang.body["logprob_start_len"] == -1


@pytest.mark.parametrize(
    ("spec", "reported", "same"),
    [
        ("0.32.0", "0.32.0", True),
        ("0.32.0", "0.32.0+cpu", True),
        ("0.32.0+cu130", "0.32.0+cpu", True),
        ("v0.17.1", "0.17.1", True),
        ("0.5.12.post1", "0.5.12.post1", True),
        ("0.5.12", "0.5.12.post1", False),
        ("0.32.0", "0.32.1.dev3+g1a2b3c", False),
        ("0.17.1", "0.1.dev21830+g1a2b3c", False),
        ("0.32", "0.32.0", True),
        ("nightly", "nightly", True),
        ("0.32.0", "nightly", False),
    ],
)
def test_versions_are_the_same_by_their_public_part(spec: str, reported: str, same: bool) -> None:
    assert same_public_version(spec, reported) is same
