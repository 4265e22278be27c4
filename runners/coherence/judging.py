"""From an answer to the record that says what it was.

Trap: a structural judge alone calls a right answer ("echo" ten times) broken, and a golden comparison alone calls `!!!!` merely wrong.
Rule: numbers that are no numbers come first, then an exact match is right whatever it looks like, and only what differs is judged by
structure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from results.records import CoherenceRecord
from runners.coherence.asking import Asked, ChatAnswer
from runners.coherence.golden import GoldenKind, MarginStatistics, judge_golden
from runners.coherence.structural import judge_ids, judge_text
from runners.coherence.verdict import StructuralKind, StructuralVerdict
from suites.canaries.zoo import GoldenPrompt

RIGHT = frozenset({GoldenKind.MATCH.value, GoldenKind.TIE.value, StructuralKind.PASS.value})
"""Verdicts of an answer that speaks for the engine."""
_MOST_TEXT = 20_000


@dataclass(frozen=True)
class Observed:
    """What a comparison needs and a record does not hold: the tokens (ids, or the texts of a chat answer's tokens) and the gap between the
    two best log-probabilities at each, nats. `divergence`: index of the first token that is not the golden one."""

    tokens: tuple[int | str, ...] = ()
    margins: tuple[float | None, ...] = ()
    divergence: int | None = None

    @property
    def before_divergence(self) -> tuple[float | None, ...]:
        """Margins of the tokens that are right."""
        return self.margins[: self.divergence]


@dataclass(frozen=True)
class Judged:
    """A record, and the numbers behind it that are not part of the record (only the least margin is kept)."""

    record: CoherenceRecord
    margins: MarginStatistics = field(default_factory=MarginStatistics)
    observed: Observed = field(default_factory=Observed)

    @property
    def right(self) -> bool:
        return self.record.verdict in RIGHT

    @property
    def broken(self) -> bool:
        """Structurally broken, or computed from numbers that are no numbers."""
        return not self.right and self.record.verdict != GoldenKind.WRONG.value


@dataclass(frozen=True)
class Judge:
    """Makes the records of one boot."""

    run_id: str
    eos_id: int | None = None

    def golden(self, step: str, prompt: GoldenPrompt, asked: Asked) -> Judged:
        """An answer from ids against the golden ids."""
        assert self.eos_id is not None, "only a canary has golden ids"
        answer = asked.answer
        verdict = judge_golden(answer, prompt.answer_ids, self.eos_id)
        broken = _broken(asked)
        if verdict.kind is GoldenKind.MATCH and (broken is None or broken.kind is not StructuralKind.NONFINITE):
            broken = None
        record = CoherenceRecord(
            run_id=self.run_id,
            step=step,
            prompt_name=prompt.name,
            judge=_judge_name(broken, "golden"),
            verdict=broken.kind.value if broken else verdict.kind.value,
            reason=broken.reason if broken else verdict.reason,
            text=answer.text[:_MOST_TEXT],
            token_ids=answer.token_ids,
            expected_ids=prompt.answer_ids,
            first_divergence=verdict.first_divergence,
            min_margin=verdict.margins.least,
            min_margin_position=verdict.margins.least_position,
            finish_reason=answer.finish_reason,
            carried_by="output_ids",
        )
        return Judged(record, verdict.margins, Observed(answer.token_ids, answer.margins, verdict.first_divergence))

    def golden_text(self, step: str, prompt: GoldenPrompt, answer: ChatAnswer) -> Judged:
        """A chat answer against the golden text."""
        same = answer.text == prompt.answer_text and answer.nonfinite is None
        broken = None if same else _chat_broken(answer)
        if broken is not None:
            verdict, reason = broken.kind.value, broken.reason
        elif same:
            verdict, reason = GoldenKind.MATCH.value, f"The text in {answer.carried_by!r} is the golden one."
        else:
            verdict, reason = GoldenKind.WRONG.value, f"The text in {answer.carried_by!r} is not the golden one."
        return self._chat_record(step, prompt.name, answer, judge=_judge_name(broken, "golden"), verdict=verdict, reason=reason)

    def structure(self, step: str, name: str, asked: Asked) -> Judged:
        """An answer from ids, judged alone."""
        answer = asked.answer
        verdict = _broken(asked) or StructuralVerdict(StructuralKind.PASS, "No flood, loop or salad found.")
        measured = [(margin, i) for i, margin in enumerate(answer.margins) if margin is not None]
        least, position = min(measured, default=(None, None))
        record = CoherenceRecord(
            run_id=self.run_id,
            step=step,
            prompt_name=name,
            judge=_judge_name(verdict, "structural"),
            verdict=verdict.kind.value,
            reason=verdict.reason,
            text=answer.text[:_MOST_TEXT],
            token_ids=answer.token_ids,
            min_margin=least,
            min_margin_position=position,
            finish_reason=answer.finish_reason,
            carried_by="output_ids",
        )
        return Judged(record, MarginStatistics(least, position), Observed(answer.token_ids, answer.margins))

    def chat_structure(self, step: str, name: str, answer: ChatAnswer) -> Judged:
        """A chat answer, judged alone."""
        broken = _chat_broken(answer)
        if broken is not None:
            judge = _judge_name(broken, "structural")
            return self._chat_record(step, name, answer, judge=judge, verdict=broken.kind.value, reason=broken.reason)
        reason = f"No flood, loop or salad found in {answer.carried_by!r}."
        return self._chat_record(step, name, answer, judge="structural", verdict=StructuralKind.PASS.value, reason=reason)

    def _chat_record(self, step: str, name: str, answer: ChatAnswer, *, judge: str, verdict: str, reason: str) -> Judged:
        record = CoherenceRecord(
            run_id=self.run_id,
            step=step,
            prompt_name=name,
            judge=judge,
            verdict=verdict,
            reason=reason,
            text=answer.text[:_MOST_TEXT],
            finish_reason=answer.finish_reason,
            carried_by=answer.carried_by,
        )
        return Judged(record, MarginStatistics(), Observed(answer.tokens, answer.margins))


def _broken(asked: Asked) -> StructuralVerdict | None:
    """Why the answer is broken without looking at any reference; None if it is not."""
    if asked.nonfinite is not None:
        return _nonfinite(asked.nonfinite, asked.refusal)
    answer = asked.answer
    for verdict in (
        judge_text(answer.text, finish_reason=answer.finish_reason),
        judge_ids(answer.token_ids, finish_reason=answer.finish_reason),
    ):
        if verdict.broken:
            return verdict
    return None


def _nonfinite(token: int, refusal: str | None) -> StructuralVerdict:
    said = f" The server refused to write them: {refusal}" if refusal else ""
    reason = f"The log-probabilities of token {token} are no finite numbers.{said}"
    return StructuralVerdict(StructuralKind.NONFINITE, reason, token, {"token": token})


def _chat_broken(answer: ChatAnswer) -> StructuralVerdict | None:
    if answer.nonfinite is not None:
        return _nonfinite(answer.nonfinite, answer.refusal)
    if answer.carried_by is None:
        reason = "content, reasoning and reasoning_content are all null or empty: the answer reaches no client."
        return StructuralVerdict(StructuralKind.EMPTY, reason, 0, {"chars": 0})
    verdict = judge_text(answer.text, finish_reason=answer.finish_reason)
    return verdict if verdict.broken else None


def _judge_name(broken: StructuralVerdict | None, otherwise: str) -> str:
    if broken is None:
        return otherwise
    return "logprobs" if broken.kind is StructuralKind.NONFINITE else "structural"
