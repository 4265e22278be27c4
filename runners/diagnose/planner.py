"""Which control boot comes next, or what all of them together say. Pure: no boot is made here.

Trap: every backend is tried, and the one that passes is called the fix although a boot without any change would have passed as well; or a
batch of one "fixes" a kernel that is wrong from eight rows on. Rule: the most specific cause is tried first and the first right answer
decides; where the failure comes and goes on one server, a control that passes counts only after a repeat without any change has failed
again; and a boot that could not be made says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from runners.diagnose.evidence import Evidence


class Family(StrEnum):
    """What a control changes."""

    REFERENCE = "reference"
    EXECUTION = "execution"
    MOE = "moe"
    LINEAR = "linear"
    ATTENTION = "attention"
    KV_DTYPE = "kv_cache_dtype"
    PREFIX_CACHE = "prefix_cache"
    CONCURRENCY = "concurrency"
    VERSION = "version"
    UNCHANGED = "unchanged"


class Cause(StrEnum):
    """Conclusions, as `DiagnosisRecord.conclusion` holds them."""

    KERNEL = "kernel"
    EXECUTION_PATH = "execution_path"
    ATTENTION = "attention"
    KV_CACHE = "kv_cache"
    CONCURRENCY = "concurrency"
    TEMPLATE_OR_BOS = "template_or_bos"
    WEIGHTS_OR_MODEL = "weights_or_model"
    ENGINE_VERSION = "engine_version"
    UNDECIDED = "undecided"


class Result(StrEnum):
    """What a control boot says. `nothing`: it was not made, or it failed in another way than the boot it is a control of."""

    RIGHT = "right"
    WRONG = "wrong"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Control:
    """One change on the same weights.

    `arguments` and `environment` are what changes in the serve command; `suspect` is what ran in the failed boot in place of it (the
    kernel, the KV-cache dtype, the version), and `use_instead` what a user would type to get this control's behaviour.
    """

    name: str
    family: Family
    suspect: str | None = None
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    version: str | None = None
    use_instead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tried:
    """A control that was made: its run (None: it was never started) and what it says."""

    control: Control
    result: Result
    run_id: str | None = None


@dataclass(frozen=True)
class Conclusion:
    """Why the boot failed, as far as its controls tell. `detail` is exact where something exact is known."""

    cause: Cause
    detail: str | None
    sentence: str
    use_instead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A failed boot: its evidence, the controls for it in the order of their use, and what vouches for its weights (None: nothing)."""

    evidence: Evidence
    controls: tuple[Control, ...]
    unchanged: Control | None = None
    weights_proven: str | None = None


ATTEMPTS = 2
"""Controls of one family at most: the second only where the first one said nothing."""

_TEMPLATES = {
    "bos_missing": "The prompts reach the model without their BOS token: with it the same server answers right.",
    "bos_doubled": "The prompts reach the model with a BOS token too many: without it the same server answers right.",
    "chat_template": "Every answer from token ids is right and only chat answers are wrong: the chat template or a parser is at fault.",
}
_TEMPLATE_HELP = {
    "bos_missing": ("add_special_tokens=true in the request",),
    "bos_doubled": ("add_special_tokens=false in the request",),
    "chat_template": (),
}
_CAUSES = {
    Family.EXECUTION: Cause.EXECUTION_PATH,
    Family.MOE: Cause.KERNEL,
    Family.LINEAR: Cause.KERNEL,
    Family.ATTENTION: Cause.ATTENTION,
    Family.KV_DTYPE: Cause.KV_CACHE,
    Family.PREFIX_CACHE: Cause.KV_CACHE,
    Family.CONCURRENCY: Cause.CONCURRENCY,
    Family.VERSION: Cause.ENGINE_VERSION,
}
_NAMED = {Family.MOE, Family.LINEAR}


def next_control(case: Case, tried: Sequence[Tried]) -> Control | Conclusion:
    """The next boot to make, or the conclusion."""
    if case.evidence.template is not None:
        fault = case.evidence.template
        return Conclusion(Cause.TEMPLATE_OR_BOS, fault, _TEMPLATES[fault], _TEMPLATE_HELP[fault])
    repeat = next((t for t in tried if t.control.family is Family.UNCHANGED), None)
    if repeat is not None and repeat.result is Result.RIGHT:
        return Conclusion(
            Cause.UNDECIDED, "does_not_repeat", "The same boot made again without any change passes: the failure comes and goes."
        )
    for done in tried:
        if done.control.family is Family.REFERENCE and done.result is Result.WRONG:
            return _weights(case)
        if done.result is Result.RIGHT and done.control.family in _CAUSES:
            if case.evidence.comes_and_goes and case.unchanged is not None and repeat is None:
                return case.unchanged
            return _found(done)
    waiting = next((c for c in case.controls if _worth_making(c, case.evidence, tried)), None)
    return waiting or _exhausted(case, tried)


def _worth_making(control: Control, evidence: Evidence, tried: Sequence[Tried]) -> bool:
    same = [t for t in tried if t.control.family is control.family]
    if control.family is Family.CONCURRENCY and evidence.alone_right is False:
        return False  # it is wrong with the server to itself: a batch of one changes nothing
    return all(t.control != control and t.result is Result.NOTHING for t in same) and len(same) < ATTEMPTS


def _weights(case: Case) -> Conclusion:
    sentence = "transformers answers wrongly with the same weights, without any engine: the checkpoint or its configuration is at fault."
    return Conclusion(Cause.WEIGHTS_OR_MODEL, "reference_fails_too", sentence)


def _found(done: Tried) -> Conclusion:
    control, cause = done.control, _CAUSES[done.control.family]
    detail = f"{control.family}={control.suspect}" if control.family in _NAMED else control.suspect
    instead = f"; use instead: {' '.join(control.use_instead)}" if control.use_instead else ""
    return Conclusion(
        cause,
        detail,
        f"With {control.name} the same weights pass the gate, so the cause is {_words(cause, detail)}{instead}.",
        control.use_instead,
    )


def _words(cause: Cause, detail: str | None) -> str:
    return {
        Cause.KERNEL: f"the kernel ({detail})",
        Cause.EXECUTION_PATH: f"the execution path ({detail}), not a kernel",
        Cause.ATTENTION: f"the attention backend ({detail})",
        Cause.KV_CACHE: f"the KV cache ({detail})",
        Cause.CONCURRENCY: "how several requests are computed together",
        Cause.ENGINE_VERSION: f"the release ({detail})",
    }[cause]


def _exhausted(case: Case, tried: Sequence[Tried]) -> Conclusion:
    evidence = case.evidence
    wrong = [t.control.name for t in tried if t.result is Result.WRONG]
    if evidence.alone_right and evidence.together_right is False:
        sentence = "Asked one at a time the same server answers right, together it does not" + (
            f"; {_listed(wrong)} changed nothing." if wrong else "."
        )
        return Conclusion(Cause.CONCURRENCY, "batch", sentence, ())
    vouched = case.weights_proven or next(
        (_REFERENCE_RIGHT for t in tried if t.control.family is Family.REFERENCE and t.result is Result.RIGHT), None
    )
    if not wrong:
        none = "Nothing here can be changed for a control: the server is not ours, or there is no other path to try."
        return Conclusion(Cause.UNDECIDED, None, "No control boot could be made that says anything." if case.controls else none)
    if vouched is not None:
        sentence = (
            f"The weights are right ({vouched}), and {_listed(wrong)} changed nothing: what is at fault is common to every path tried."
        )
        return Conclusion(Cause.UNDECIDED, "every_path_tried", sentence)
    if len(wrong) > 1:
        sentence = (
            f"It fails in the same way with {_listed(wrong)}: what all of them share is the checkpoint, its configuration and the prompts."
        )
        return Conclusion(Cause.WEIGHTS_OR_MODEL, "every_path_fails", sentence)
    return Conclusion(Cause.UNDECIDED, None, f"Only one control could be made ({_listed(wrong)}), and it fails as well.")


_REFERENCE_RIGHT = "transformers answers right with them"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
