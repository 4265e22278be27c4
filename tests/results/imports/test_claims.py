"""Other tools' numbers are claims: kept under their own names, never read by a verdict, the same file once."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.errors import FolderError
from results.imports.claims import ClaimedCell, claims_of
from results.store import Store
from tests.results.conftest import MakeBoot

CELL = ClaimedCell("a colleague", engine="vllm", engine_version="0.32.0", recipe_name="gpt-oss-120b")
DATA = Path(__file__).parents[2] / "data" / "claims"


def _file(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps(data))
    return path


def test_llama_benchys_report_becomes_claims_under_its_own_names() -> None:
    claims = {(claim.metric, claim.concurrency): claim for claim in claims_of(DATA / "llama-benchy-0.4.0.json", CELL)}
    claim = claims["tg_throughput_tok_s", 1]
    assert (claim.value, claim.tool, claim.model) == (52.5, "llama-benchy 0.4.0", "openai/gpt-oss-120b")
    assert claim.note == "pp2048 tg32 at depth 0, mean of 3, std 0.5; the tool's own formula"
    assert not any(claim.metric == "decode_tok_s" for claim in claims.values()), "their formula is not ours"
    assert claims["e2e_ttft_ms", 8].value == 910.0


def test_vllm_bench_serves_result_becomes_claims() -> None:
    claims = {claim.metric: claim for claim in claims_of(DATA / "vllm-bench-serve-0.27.1.json", CELL)}
    assert (claims["output_throughput_tok_s"].value, claims["output_throughput_tok_s"].concurrency) == (410.2, 8)
    assert claims["median_ttft_ms"].note == "100 of 100 requests, rate inf; the tool's own formula"
    assert claims["median_ttft_ms"].claimed_at == "20261130-101500"


def test_the_same_file_is_the_same_claims(store: Store) -> None:
    claims = claims_of(DATA / "llama-benchy-0.4.0.json", CELL)
    for claim in [*claims, *claims_of(DATA / "llama-benchy-0.4.0.json", CELL)]:
        store.keep(claim)
    assert store.query("SELECT count(*) AS n FROM claims") == [{"n": len(claims)}]


def test_no_verdict_reads_a_claim(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    before = [store.query(f"SELECT * FROM {table}") for table in ("verdicts", "number_verdicts", "findings", "stored_medians")]
    for claim in claims_of(DATA / "llama-benchy-0.4.0.json", CELL):
        store.keep(claim)
    assert [store.query(f"SELECT * FROM {table}") for table in ("verdicts", "number_verdicts", "findings", "stored_medians")] == before


def test_a_benchmark_whose_requests_were_all_refused_is_an_error_and_no_zeros(tmp_path: Path) -> None:
    run = {
        "concurrency": 1,
        "context_size": 0,
        "prompt_size": 8,
        "response_size": 8,
        "is_context_prefill_phase": False,
        "tg_throughput": None,
    }
    with pytest.raises(FolderError, match="no usable number"):
        claims_of(_file(tmp_path, {"benchmarks": [run]}), CELL)
    failed = {"model_id": "m", "num_prompts": 5, "completed": 0, "duration": 1.0, "output_throughput": 0.0}
    with pytest.raises(FolderError, match="no usable number"):
        claims_of(_file(tmp_path, failed), CELL)


@pytest.mark.parametrize("data", [{}, [], {"benchmarks": 1}, {"benchmarks": [{}]}, {"model_id": "m", "duration": "x"}, None, 5])
def test_a_file_that_is_neither_tools_is_refused(tmp_path: Path, data: Any) -> None:
    with pytest.raises(FolderError):
        claims_of(_file(tmp_path, data), CELL)


def test_escapes_and_secrets_in_a_model_name_do_not_get_in(tmp_path: Path) -> None:
    data = json.loads((DATA / "llama-benchy-0.4.0.json").read_text())
    data["model"] = "\x1b[31mred api_key=abcdef0123456789"
    claims = claims_of(_file(tmp_path, data), CELL)
    assert {claim.model for claim in claims} == {"red api_key=[redacted]"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_BENCHY_RUN = st.fixed_dictionaries(
    {
        "concurrency": st.integers(0, 9),
        "context_size": st.integers(0, 9),
        "prompt_size": st.integers(0, 9),
        "response_size": st.integers(0, 9),
    },
    optional={"tg_throughput": st.fixed_dictionaries({"mean": st.floats()}) | _JSON, "ttfr": _JSON},
)


@given(st.dictionaries(st.sampled_from(["benchmarks", "model_id", "duration", "model"]), _JSON | st.lists(_BENCHY_RUN, max_size=3)))
def test_any_json_gives_finite_claims_or_a_named_error(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Any]) -> None:
    path = _file(tmp_path_factory.mktemp("claims"), data)
    try:
        claims = claims_of(path, CELL)
    except FolderError:
        return
    assert claims
    assert all(math.isfinite(claim.value) for claim in claims)
