"""Which controls a failed boot has, and the exact command of each."""

from __future__ import annotations

import pytest

from runners.diagnose.controls import Failed, cell_of, controls_for, unchanged, with_flags
from runners.diagnose.evidence import Evidence
from runners.diagnose.planner import Control, Family
from runners.plan import Cell
from runners.spec import EngineSpec
from suites.backends import Expressed, backend_for, express
from suites.recipes import Recipe, recipe_for


def cell(engine: str = "vllm==0.32.0", backend: str = "default", recipe: Recipe | None = None) -> Cell:
    spec, chosen = EngineSpec.parse(engine), backend_for(backend)
    return Cell(spec, recipe or recipe_for("canary-dense"), chosen, (), express(chosen, spec.name, spec.version or ""))


def names(failed: Failed) -> list[str]:
    return [control.name for control in controls_for(failed)]


def test_a_dense_bf16_model_on_a_gpu_has_no_control_for_experts_or_quantised_layers() -> None:
    found = controls_for(Failed(cell(), True, Evidence(), proven="golden"))
    families = [control.family for control in found]
    assert Family.MOE not in families and Family.LINEAR not in families
    assert families[0] is Family.EXECUTION


def test_without_a_gpu_no_kernel_can_be_chosen() -> None:
    failed = Failed(cell(backend="eager"), False, Evidence(), has_experts=True, quantised=True, proven="golden")
    assert names(failed) == ["no-prefix-cache", "one-sequence"]


def test_quantised_experts_suspect_the_kernels_before_the_graphs() -> None:
    failed = Failed(cell(), True, Evidence(), has_experts=True, quantised=True, proven="golden")
    assert names(failed)[:2] == ["moe=marlin", "moe=triton"]


def test_what_is_right_alone_suspects_the_graphs_first() -> None:
    failed = Failed(cell(), True, Evidence(alone_right=True), has_experts=True, quantised=True, proven="golden")
    assert names(failed)[0] == "eager"


def test_the_kernel_that_failed_is_no_control_of_itself() -> None:
    kernels = {"moe": "MARLIN", "attention": "TRITON_ATTN"}
    found = names(Failed(cell(), True, Evidence(), kernels, has_experts=True, proven="golden"))
    assert "moe=marlin" not in found and "moe=triton" in found
    assert "attention=TRITON_ATTN" not in found and "attention=FLASHINFER" in found


@pytest.mark.parametrize(
    ("engine", "name", "arguments", "environment"),
    [
        ("vllm==0.32.0", "moe=marlin", ("--moe-backend", "marlin"), ()),
        ("vllm==0.32.0", "linear=marlin", ("--linear-backend", "marlin"), ()),
        ("vllm==0.17.1", "moe=marlin", ("--moe-backend", "marlin"), (("VLLM_MXFP4_USE_MARLIN", "1"),)),
        ("vllm==0.17.1", "linear=marlin", (), (("VLLM_NVFP4_GEMM_BACKEND", "marlin"),)),
        ("vllm==0.12.0", "attention=TRITON_ATTN", (), (("VLLM_ATTENTION_BACKEND", "TRITON_ATTN"),)),
        ("sglang==0.5.23", "moe=marlin", ("--moe-runner-backend", "marlin"), ()),
        ("sglang==0.5.23", "linear=marlin", ("--fp4-gemm-backend", "marlin"), ()),
    ],
)
def test_a_control_takes_one_slot_of_a_backend_in_the_versions_own_spelling(
    engine: str, name: str, arguments: tuple[str, ...], environment: tuple[tuple[str, str], ...]
) -> None:
    failed = Failed(cell(engine), True, Evidence(), has_experts=True, quantised=True, proven="golden")
    control = next(c for c in controls_for(failed) if c.name == name)
    assert (control.arguments, control.environment) == (arguments, environment)


def test_the_rest_of_the_failed_boot_stays() -> None:
    before = cell(backend="flashinfer_cutlass")
    failed = Failed(before, True, Evidence(), has_experts=True, quantised=True, proven="golden")
    control = next(c for c in controls_for(failed) if c.name == "moe=marlin")
    changed = cell_of(before, control)
    assert isinstance(changed.expressed, Expressed)
    assert changed.expressed.arguments == ("--linear-backend", "flashinfer_cutlass", "--moe-backend", "marlin")
    assert changed.backend.name == "flashinfer_cutlass+moe=marlin"
    assert "moe" not in changed.expressed.configured, "what the control changes is no longer asked for"
    assert changed.expressed == express(changed.backend, "vllm", "0.32.0")


def test_a_kv_cache_type_set_by_the_recipe_is_overridden() -> None:
    recipe = recipe_for("canary-dense").model_copy(update={"arguments": {"vllm": ("--kv-cache-dtype=fp8",)}})
    control = controls_for(Failed(cell(recipe=recipe), True, Evidence(), proven="golden"))[0]
    assert (control.family, control.suspect, control.arguments) == (Family.KV_DTYPE, "fp8", ("--kv-cache-dtype", "auto"))


def test_an_endpoint_has_no_controls() -> None:
    assert controls_for(Failed(cell("vllm==0.32.0@endpoint:http://127.0.0.1:1"), True, Evidence())) == ()


@pytest.mark.parametrize(
    ("size", "proven", "expected"), [(5_000_000, None, True), (5_000_000, "golden", False), (10**12, None, False), (None, None, False)]
)
def test_a_reference_is_computed_for_small_weights_that_nothing_vouches_for(size: int | None, proven: str | None, expected: bool) -> None:
    found = controls_for(Failed(cell(), False, Evidence(), weight_bytes=size, proven=proven))
    assert (found[0].family is Family.REFERENCE) is expected
    if expected:
        assert cell_of(cell(), found[0]).spec.name == "transformers"


def test_the_previous_release_keeps_the_backend_in_its_own_spelling() -> None:
    failed = Failed(cell("vllm==0.24.0", "marlin"), True, Evidence(), proven="golden", previous_good="0.20.0")
    older = cell_of(failed.cell, controls_for(failed)[-1])
    assert str(older.spec) == "vllm==0.20.0"
    assert isinstance(older.expressed, Expressed)
    assert older.expressed.environment == {"VLLM_NVFP4_GEMM_BACKEND": "marlin"}


def test_no_change_is_the_same_cell() -> None:
    assert cell_of(cell(), unchanged()) == cell()


def test_flags_are_replaced_and_not_given_twice() -> None:
    assert with_flags(("--a", "1", "--b", "2", "--a=3"), ("--a", "4")) == ("--b", "2", "--a", "4")


def test_every_control_of_a_boot_has_a_name_of_its_own() -> None:
    failed = Failed(cell("vllm==0.24.0"), True, Evidence(), has_experts=True, quantised=True, weight_bytes=1, previous_good="0.20.0")
    found = names(failed)
    assert len(found) == len(set(found))
    assert all(isinstance(control, Control) for control in controls_for(failed))
