"""A shape is timed only where its canaries passed: same build, format, backend and session."""

from __future__ import annotations

import dataclasses

import pytest

from results.records import NodeRecord, RunRecord
from results.vocabulary import Outcome, Purpose
from runners.admission import admit, canaries_of, with_canaries
from runners.errors import UsageError
from runners.failure import PhaseFailure
from runners.plan import plan_boots
from runners.session import RunRequest, make_plan
from runners.spec import EngineSpec
from suites.backends import backend_for
from suites.recipes import recipe_for
from suites.workloads import STANDARD_WORKLOADS

SPEC, OTHER = EngineSpec.parse("vllm==0.32.0"), EngineSpec.parse("vllm==0.31.0")
EAGER, DEFAULT = backend_for("eager"), backend_for("default")
SHAPE, QWEN, CANARY, GEMMA = (
    recipe_for(name) for name in ("shape-tiny-llama-3.1-8b-fp8", "shape-tiny-qwen3.5-35b-a3b", "canary-dense-fp8", "gemma3-270m")
)
NODE = NodeRecord("n", "node", memory_total_bytes=32 << 30)
RUN = RunRecord(
    run_id="shape",
    session_id="s",
    cell_id="c",
    series_id="e",
    engine="vllm",
    engine_version="0.32.0",
    distribution="venv",
    recipe_name=SHAPE.name,
    backend_name="eager",
    node_id="n",
    protocol_version=1,
    started_at="2026-11-30T13:00:00+00:00",
    recipe_id=SHAPE.recipe_id,
    build_id="build",
    backend_id="backend",
)
PASSED = dataclasses.replace(RUN, run_id="canary", recipe_id=CANARY.recipe_id, recipe_name=CANARY.name, outcome=Outcome.PASS)


def refusal(*made: RunRecord, run: RunRecord = RUN) -> tuple[Outcome, str]:
    with pytest.raises(PhaseFailure) as caught:
        admit(SHAPE, run, made)
    return caught.value.outcome, str(caught.value.reason)


def test_a_shape_asks_for_the_canaries_of_its_kernels_in_its_own_format() -> None:
    assert [r.name for r in canaries_of(SHAPE)] == ["canary-dense-fp8"]
    assert [r.name for r in canaries_of(QWEN)] == ["canary-hybrid", "canary-moe"]
    assert [r.name for r in canaries_of(recipe_for("shape-gpt-oss-120b"))] == ["canary-gpt-oss-mxfp4"]
    assert canaries_of(GEMMA) == canaries_of(CANARY) == ()


def test_a_shape_whose_canary_passed_is_admitted_and_other_models_always_are() -> None:
    admit(SHAPE, RUN, [PASSED])
    admit(GEMMA, RUN, [])


@pytest.mark.parametrize(
    "change",
    [
        {"session_id": "another"},
        {"build_id": "another"},
        {"backend_id": "another"},
        {"engine": "sglang"},
        {"recipe_id": recipe_for("canary-dense").recipe_id},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_canary_of_anything_else_does_not_vouch(change: dict[str, str]) -> None:
    outcome, reason = refusal(dataclasses.replace(PASSED, **change))  # type: ignore[arg-type]
    assert outcome is Outcome.INFRASTRUCTURE
    assert "canary-dense-fp8" in reason and "not booted in this session" in reason


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.PASS])
def test_a_canary_that_did_not_pass_refuses_with_its_reason(outcome: Outcome) -> None:
    failed = dataclasses.replace(PASSED, run_id="bad", outcome=outcome, reason="4 answers differ")
    said, reason = refusal(PASSED, failed)
    assert said is (Outcome.UNSUPPORTED if outcome is Outcome.UNSUPPORTED else Outcome.INFRASTRUCTURE)
    assert f"{outcome} (bad): 4 answers differ" in reason


def test_a_canary_refused_before_it_had_a_build_refuses_too() -> None:
    early = dataclasses.replace(PASSED, build_id=None, outcome=Outcome.UNSUPPORTED, reason="no kernel for fp8 on a CPU")
    assert refusal(early) == (
        Outcome.UNSUPPORTED,
        "not admitted: its canary canary-dense-fp8 is unsupported (canary): no kernel for fp8 on a CPU",
    )
    never = dataclasses.replace(early, outcome=Outcome.PASS)
    assert refusal(never)[0] is Outcome.INFRASTRUCTURE, "without a build nothing is admitted"


def test_a_server_whose_build_is_not_known_admits_nothing() -> None:
    outcome, reason = refusal(dataclasses.replace(PASSED, build_id=None), run=dataclasses.replace(RUN, build_id=None))
    assert outcome is Outcome.INFRASTRUCTURE and "no build to compare" in reason


def test_each_shape_has_its_canaries_before_it_once_for_each_release_and_backend() -> None:
    planned = plan_boots([SPEC, OTHER], [GEMMA, recipe_for("shape-tiny-llama-3.1-8b"), QWEN], [EAGER, DEFAULT], STANDARD_WORKLOADS, 2)
    boots = with_canaries(planned, NODE)
    added = [b for b in boots if b.purpose is Purpose.ADMISSION]
    assert len(added) == len({(str(b.cell.spec), b.cell.recipe.name, b.cell.backend.name) for b in added}) == 3 * 4
    assert not any(b.timed for b in added) and [b for b in boots if b not in added] == planned
    for place, boot in enumerate(boots):
        before = {(b.cell.spec, b.cell.recipe.name, b.cell.backend.name) for b in boots[:place]}
        assert all((boot.cell.spec, c.name, boot.cell.backend.name) in before for c in canaries_of(boot.cell.recipe))


def test_a_canary_that_is_planned_or_made_anyway_is_not_made_again() -> None:
    planned = plan_boots([SPEC], [SHAPE, CANARY], [EAGER], STANDARD_WORKLOADS, 1)
    assert [b.cell.recipe.name for b in with_canaries(planned, NODE)] == ["canary-dense-fp8", "shape-tiny-llama-3.1-8b-fp8"]
    assert with_canaries(planned[1:], NODE, [planned[0].cell]) == planned[1:]


@pytest.mark.parametrize("name", ["shape-qwen3.5-122b-a10b", "shape-tiny-llama-3.1-8b-fp8"], ids=["too large", "no kernel for its format"])
def test_no_canary_is_booted_for_a_shape_that_cannot_be(name: str) -> None:
    planned = plan_boots([SPEC], [recipe_for(name)], [EAGER], STANDARD_WORKLOADS, 1)
    assert with_canaries(planned, NODE) == planned


def test_a_shape_at_an_endpoint_is_refused_before_anything_starts() -> None:
    request = RunRequest(engines=("vllm==0.32.0@endpoint:http://127.0.0.1:1",), models=(SHAPE.name,))
    with pytest.raises(UsageError, match="an endpoint serves its own model"):
        make_plan(request, lambda label: NODE)


def test_canaries_then_shapes_then_models() -> None:
    planned = plan_boots([SPEC], [GEMMA, SHAPE, CANARY], [EAGER], STANDARD_WORKLOADS, 1)
    assert [b.cell.recipe.kind for b in planned] == ["canary", "shape", "model"]
