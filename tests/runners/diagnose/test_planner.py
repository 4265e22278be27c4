"""The planner: which control comes next, and when all of them together decide."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.diagnose.evidence import Evidence
from runners.diagnose.planner import ATTEMPTS, Case, Cause, Conclusion, Control, Family, Result, Tried, next_control

EAGER = Control("eager", Family.EXECUTION, "cuda_graphs", ("--enforce-eager",), use_instead=("--enforce-eager",))
MARLIN = Control("moe=marlin", Family.MOE, "flashinfer_cutlass", ("--moe-backend", "marlin"), use_instead=("--moe-backend marlin",))
TRITON = Control("moe=triton", Family.MOE, "flashinfer_cutlass", ("--moe-backend", "triton"))
CUTLASS = Control("moe=cutlass", Family.MOE, "flashinfer_cutlass", ("--moe-backend", "cutlass"))
ONE = Control("one-sequence", Family.CONCURRENCY, "batch", ("--max-num-seqs", "1"))
OLDER = Control("vllm==0.31.0", Family.VERSION, "0.32.0, last good 0.31.0", version="0.31.0", use_instead=("vllm==0.31.0",))
REFERENCE = Control("transformers", Family.REFERENCE)
AGAIN = Control("no-change", Family.UNCHANGED)
ALL = (REFERENCE, EAGER, MARLIN, TRITON, CUTLASS, ONE, OLDER)


def conclude(case: Case, answer: Callable[[Control], Result]) -> tuple[Conclusion, list[str]]:
    """Play a whole investigation; every control asked for, in order."""
    tried: list[Tried] = []
    while isinstance(step := next_control(case, tried), Control):
        assert all(t.control != step for t in tried), "no control is made twice"
        tried.append(Tried(step, answer(step), f"run-{len(tried)}"))
    return step, [t.control.name for t in tried]


def only(*right: Control) -> Callable[[Control], Result]:
    """Every boot is wrong but these."""
    return lambda control: Result.RIGHT if control in right else Result.WRONG


@pytest.mark.parametrize(
    ("right", "cause", "detail"),
    [
        (EAGER, Cause.EXECUTION_PATH, "cuda_graphs"),
        (MARLIN, Cause.KERNEL, "moe=flashinfer_cutlass"),
        (ONE, Cause.CONCURRENCY, "batch"),
        (OLDER, Cause.ENGINE_VERSION, "0.32.0, last good 0.31.0"),
    ],
)
def test_the_first_change_that_helps_names_the_cause_and_ends_the_search(right: Control, cause: Cause, detail: str) -> None:
    conclusion, made = conclude(Case(Evidence(), ALL[1:]), only(right))
    assert (conclusion.cause, conclusion.detail, conclusion.use_instead) == (cause, detail, right.use_instead)
    assert made[-1] == right.name


def test_a_reference_that_fails_too_blames_the_weights_at_once() -> None:
    conclusion, made = conclude(Case(Evidence(), ALL), only())
    assert (conclusion.cause, made) == (Cause.WEIGHTS_OR_MODEL, ["transformers"])


def test_without_a_reference_failures_of_every_path_blame_the_weights_by_exclusion() -> None:
    conclusion, _ = conclude(Case(Evidence(), (EAGER, MARLIN)), only())
    assert (conclusion.cause, conclusion.detail) == (Cause.WEIGHTS_OR_MODEL, "every_path_fails")


def test_verified_weights_are_not_blamed() -> None:
    conclusion, _ = conclude(Case(Evidence(), (EAGER, MARLIN), weights_proven="golden"), only())
    assert (conclusion.cause, conclusion.detail) == (Cause.UNDECIDED, "every_path_tried")
    assert "golden" in conclusion.sentence


def test_one_control_alone_is_too_little_to_blame_the_weights() -> None:
    assert conclude(Case(Evidence(), (EAGER,)), only())[0].cause is Cause.UNDECIDED


def test_a_second_backend_of_one_slot_is_tried_only_where_the_first_said_nothing() -> None:
    refused = {MARLIN: Result.NOTHING}
    _, made = conclude(Case(Evidence(), (MARLIN, TRITON, CUTLASS)), lambda c: refused.get(c, Result.WRONG))
    assert made == ["moe=marlin", "moe=triton"]
    _, made = conclude(Case(Evidence(), (MARLIN, TRITON, CUTLASS)), lambda c: Result.NOTHING)
    assert len(made) == ATTEMPTS


def test_a_batch_of_one_is_not_tried_on_what_is_wrong_alone() -> None:
    _, made = conclude(Case(Evidence(alone_right=False), (EAGER, ONE)), only())
    assert made == ["eager"]


def test_right_alone_and_wrong_together_is_concurrency_even_without_any_boot() -> None:
    conclusion, made = conclude(Case(Evidence(alone_right=True, together_right=False), ()), only())
    assert (conclusion.cause, made) == (Cause.CONCURRENCY, [])


def test_a_control_that_passes_on_what_comes_and_goes_is_believed_after_a_repeat_failed() -> None:
    case = Case(Evidence(comes_and_goes=True), (EAGER,), AGAIN)
    conclusion, made = conclude(case, only(EAGER))
    assert (conclusion.cause, made) == (Cause.EXECUTION_PATH, ["eager", "no-change"])
    conclusion, made = conclude(case, only(EAGER, AGAIN))
    assert (conclusion.cause, conclusion.detail) == (Cause.UNDECIDED, "does_not_repeat")


@pytest.mark.parametrize("fault", ["bos_missing", "bos_doubled", "chat_template"])
def test_a_fault_of_the_prompt_needs_no_boot(fault: str) -> None:
    conclusion, made = conclude(Case(Evidence(template=fault), ALL), only(EAGER))
    assert (conclusion.cause, conclusion.detail, made) == (Cause.TEMPLATE_OR_BOS, fault, [])


def test_boots_that_could_not_be_made_decide_nothing() -> None:
    conclusion, _ = conclude(Case(Evidence(), ALL), lambda c: Result.NOTHING)
    assert (conclusion.cause, conclusion.use_instead) == (Cause.UNDECIDED, ())


@given(
    st.lists(st.sampled_from(ALL), unique=True),
    st.dictionaries(st.sampled_from((*ALL, AGAIN)), st.sampled_from(Result)),
    st.builds(
        Evidence,
        alone_right=st.sampled_from([None, True, False]),
        together_right=st.sampled_from([None, True, False]),
        comes_and_goes=st.booleans(),
    ),
)
def test_every_investigation_ends_with_a_sentence_and_makes_no_boot_twice(
    controls: list[Control], answers: dict[Control, Result], evidence: Evidence
) -> None:
    conclusion, made = conclude(Case(evidence, tuple(controls), AGAIN), lambda c: answers.get(c, Result.WRONG))
    assert conclusion.sentence.endswith(".")
    assert len(made) <= len(controls) + 1
    if conclusion.use_instead:
        assert any(c.use_instead == conclusion.use_instead and answers.get(c) is Result.RIGHT for c in controls)
