"""Did an instruct model answer a plain question rightly?

Trap: the answer is searched in the reasoning, where every wrong candidate is weighed, or a model that was cut off while it still reasoned
is called wrong. Rule: only what follows the reasoning is searched, for whole words; an answer that was cut off before it began is no answer
to judge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from runners.coherence.asking import ChatAnswer
from runners.coherence.units import shown
from suites.chat_golden import Question

_END_OF_REASONING = re.compile(
    r"</(?:think|thinking|thought|reasoning|seed:think)>|<channel\|>|\[/THINK\]|<\|channel\|>final<\|message\|>|◁/think▷"
)
_BEGIN_OF_REASONING = re.compile(r"<(?:think|thinking|thought|reasoning|seed:think)>|<\|channel\|?>|\[THINK\]|◁think▷")
_LONGEST = 400
"""Characters of the final answer that are searched: the right word somewhere in an essay is no short answer."""
CUT_OFF = "length"


class GoldenAnswer(StrEnum):
    """How an answer stands to the question's golden ones."""

    RIGHT = "right"
    MISSED = "missed"
    CUT_OFF = "cut_off"


@dataclass(frozen=True)
class GoldenFound:
    """With a sentence that shows what was found."""

    kind: GoldenAnswer
    reason: str


def judge_chat_golden(question: Question, answer: ChatAnswer) -> GoldenFound:
    """Search the answer after the reasoning."""
    final = final_text(answer)
    if final is None:
        return GoldenFound(GoldenAnswer.CUT_OFF, "The answer was cut off while the model still reasoned: nothing to judge.")
    searched = final.strip()[-_LONGEST:]
    said = f"The answer is {shown(searched, 80)}"
    wrong = next((word for word in question.reject if _holds(searched, word)), None)
    if wrong is None and any(_holds(searched, word) for word in question.accept):
        return GoldenFound(GoldenAnswer.RIGHT, f"{said}, which holds {' or '.join(question.accept)}.")
    held = f", which holds {wrong}" if wrong is not None else ""
    return GoldenFound(GoldenAnswer.MISSED, f"{said}{held}; expected {' or '.join(question.accept)}.")


def final_text(answer: ChatAnswer) -> str | None:
    """The text after the reasoning; None if the answer was cut off before it. A parser that put all text elsewhere is read all the same."""
    text = answer.text
    ends = list(_END_OF_REASONING.finditer(text))
    if ends:
        return text[ends[-1].end() :]
    cut_off = answer.finish_reason == CUT_OFF
    if cut_off and (answer.carried_by != "content" or _BEGIN_OF_REASONING.search(text)):
        return None
    return text


def _holds(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w.,]){re.escape(word)}(?![\w]|[.,]\d)", text, re.IGNORECASE) is not None
