"""References per numeric path: complete, honest about where their thresholds come from, and absent where nothing was measured."""

from __future__ import annotations

import json

import pytest

from suites.canaries import zoo
from suites.canaries.references import PATHS, NumericPath, reference_for

CANARIES = tuple(zoo.MANIFEST_SHA256)


def entries(name: str) -> list[dict[str, object]]:
    parsed: list[dict[str, object]] = json.loads(zoo.tracked_file(name, PATHS) or b"")["paths"]
    return parsed


@pytest.mark.parametrize("name", CANARIES)
def test_every_weight_format_has_a_reference_with_both_kv_dtypes(name: str) -> None:
    for weight_format in zoo.weight_formats(name):
        for kv_cache_dtype in ("auto", "fp8"):
            assert reference_for(name, NumericPath(weight_format, "none", kv_cache_dtype)) is not None, (weight_format, kv_cache_dtype)


@pytest.mark.parametrize("name", CANARIES)
@pytest.mark.parametrize(
    "path", [NumericPath("bf16", "nvfp4"), NumericPath("bf17"), NumericPath("bf16", "none", "fp4"), NumericPath("", "", "")]
)
def test_a_path_that_was_never_measured_has_no_reference(name: str, path: NumericPath) -> None:
    assert reference_for(name, path) is None


def test_unknown_canary_is_refused() -> None:
    with pytest.raises(zoo.UnknownCanaryError):
        reference_for("nothing", NumericPath("bf16"))


@pytest.mark.parametrize("name", CANARIES)
def test_margins_cover_every_answer_token_and_none_is_wrong(name: str) -> None:
    canary = zoo.load(name)
    prompts = {p.name: len(p.answer_ids) for p in (*canary.prompts, *canary.bos_prompts)}
    for entry in entries(name):
        margins = entry["margins"]
        assert isinstance(margins, dict)
        assert {prompt: len(values) for prompt, values in margins.items()} == prompts
        assert min(min(values) for values in margins.values()) > 5, (entry["activation_format"], entry["kv_cache_dtype"])
        assert entry["wrong_tokens"] == 0


@pytest.mark.parametrize("name", CANARIES)
def test_thresholds_stand_above_the_drift_of_prompts_they_were_not_chosen_on(name: str) -> None:
    for entry in entries(name):
        held_out = entry["held_out"]
        assert isinstance(held_out, dict)
        assert 0 < entry["drift_rms_floor"] < entry["drift_rms_threshold"]  # type: ignore[operator]
        assert held_out["drift_rms"] < entry["drift_rms_threshold"]
        assert held_out["drift_max"] < entry["drift_max_threshold"]
        assert "every second prompt" in str(entry["source"])


@pytest.mark.parametrize("name", [name for name in CANARIES if name != "gpt-oss"])
def test_rounded_activations_are_another_path_with_other_margins(name: str) -> None:
    exact, w4a4 = (reference_for(name, NumericPath("nvfp4", activation)) for activation in ("none", "nvfp4"))
    assert exact is not None and w4a4 is not None
    assert exact.margins != w4a4.margins
    assert w4a4.drift_rms_floor > exact.drift_rms_floor


EVERY_EXPERT = {(layer, expert) for layer in range(4) for expert in range(8)}


@pytest.mark.parametrize("name", ["moe", "gpt-oss"])
def test_every_expert_of_every_layer_decides_tokens_and_none_is_lost_unseen_in_the_margins(name: str) -> None:
    coverage = json.loads(zoo.tracked_file(name, "coverage.json") or b"")["experts"]
    exact = reference_for(name, NumericPath("bf16"))
    assert exact is not None
    assert {(entry["layer"], entry["expert"]) for entry in coverage} == EVERY_EXPERT
    assert {(entry["layer"], entry["expert"]) for entry in coverage if entry["wrong_tokens"] > 0} == EVERY_EXPERT
    assert min(entry["drift_rms"] for entry in coverage) > 4 * exact.drift_rms_threshold
