"""What a failed gate itself says about the cause, before any control boot.

Trap: a missing BOS token, a wrong chat template and a race in a batch all look like a broken kernel, and an hour of control boots tells
them from it no better than the answers that are already there. Rule: the answers are read first. A canary names a BOS fault in its own
words, an answer that is right alone and wrong in company is no weight's fault, and one that is right once and wrong once proves nothing
by passing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from results.records import CoherenceRecord
from runners.coherence.judging import RIGHT
from suites.canaries.zoo import Canary

ALONE, TOGETHER, WITH_BOS, WITHOUT_BOS = "control_alone", "control_together", "control_with_bos", "control_without_bos"
"""Steps that are asked of a server which has failed its gate (`runners/diagnose/same_server.py`)."""
CONTROL_STEPS = (ALONE, TOGETHER, WITH_BOS, WITHOUT_BOS)
_BY_IDS = "output_ids"
_MISSING, _DOUBLED = "nobos", "twobos"
_MOSTLY = 0.5
_NAMED = len("BOS MISSING.")


@dataclass(frozen=True)
class Evidence:
    """`template` names the fault of the prompt: `bos_missing`, `bos_doubled` or `chat_template`; None if nothing points there.

    `alone_right`: what failed was right when asked again one at a time; `together_right`: in a batch. None: not asked.
    `comes_and_goes`: one prompt was answered both right and wrong by the same server.
    """

    wrong: int = 0
    judged: int = 0
    template: str | None = None
    alone_right: bool | None = None
    together_right: bool | None = None
    comes_and_goes: bool = False


def evidence_of(records: Sequence[CoherenceRecord], canary: Canary | None = None, bos: str = "auto") -> Evidence:
    """Evidence in the records of one failed boot. `bos` is the recipe's: "omit" asked raw prompts without a BOS token."""
    gate = [r for r in records if r.step not in CONTROL_STEPS]
    wrong = [r for r in gate if r.verdict not in RIGHT]
    return Evidence(
        wrong=len(wrong),
        judged=len(gate),
        template=_bos_in_words(wrong, canary) or _bos_by_asking(records, bos) or _chat_only(gate, wrong),
        alone_right=_all_right(records, ALONE),
        together_right=_all_right(records, TOGETHER),
        comes_and_goes=_comes_and_goes(records),
    )


def _all_right(records: Iterable[CoherenceRecord], step: str) -> bool | None:
    verdicts = [r.verdict in RIGHT for r in records if r.step == step]
    return all(verdicts) if verdicts else None


def _bos_in_words(wrong: Sequence[CoherenceRecord], canary: Canary | None) -> str | None:
    """A canary answers a prompt with a wrong beginning by naming the fault; most wrong answers to ordinary prompts must say the same.

    Its prompts that begin wrongly on purpose are not asked: a BOS token that the front end adds makes some of them ordinary.
    """
    if canary is None:
        return None
    words = {prompt.answer_text: prompt.name.partition("_")[0] for prompt in canary.bos_prompts}
    on_purpose = {prompt.name for prompt in canary.bos_prompts}
    said = [_named_fault(r.text, words) for r in wrong if r.prompt_name not in on_purpose]
    for name, fault in ((_MISSING, "bos_missing"), (_DOUBLED, "bos_doubled")):
        if said.count(name) > _MOSTLY * len(said):
            return fault
    return None


def _named_fault(text: str, words: Mapping[str, str]) -> str | None:
    """The kind of prompt whose answer this is, or begins: a short prompt allows fewer tokens than the naming of a fault takes."""
    said = text.removesuffix("<|end|>")
    return next((kind for answer, kind in words.items() if len(said) >= _NAMED and answer.startswith(said)), None)


def _bos_by_asking(records: Sequence[CoherenceRecord], bos: str) -> str | None:
    """A real model: the same prompts with and without a BOS token on the same server."""
    with_bos, without = _all_right(records, WITH_BOS), _all_right(records, WITHOUT_BOS)
    if with_bos and without is False and bos == "omit":
        return "bos_missing"
    if without and with_bos is False and bos != "omit":
        return "bos_doubled"
    return None


def _chat_only(gate: Sequence[CoherenceRecord], wrong: Sequence[CoherenceRecord]) -> str | None:
    """Every answer from ids is right, most of a step through the chat endpoint are not: the template or its parsers are at fault.

    One of many does not show it: swapped nibbles in NVFP4 of a model judged by structure alone gave 1 salad in 20 chat answers and none
    from ids, and the template was blamed (vLLM 0.26.0 on an H200).
    """
    by_chat = Counter(r.step for r in gate if r.carried_by != _BY_IDS)
    if len(gate) == by_chat.total() or any(r.carried_by == _BY_IDS for r in wrong):
        return None
    wrong_in = Counter(r.step for r in wrong)
    return "chat_template" if any(count > _MOSTLY * by_chat[step] for step, count in wrong_in.items()) else None


def _comes_and_goes(records: Iterable[CoherenceRecord]) -> bool:
    seen: defaultdict[str, set[bool]] = defaultdict(set)
    for record in records:
        if record.carried_by == _BY_IDS and record.step not in (WITH_BOS, WITHOUT_BOS):
            seen[record.prompt_name].add(record.verdict in RIGHT)
    return any(len(verdicts) == 2 for verdicts in seen.values())
