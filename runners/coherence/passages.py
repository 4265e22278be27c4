"""Score fixed texts and compare every token's log-probability with a reference.

Trap: an engine that computes everything a little wrong still writes the most likely token, and greedy text shows nothing until it branches.
Rule: teacher-forced log-probabilities of a given text cannot branch (M18): their mean and their drift, token by token, are numbers; NaN is
a finding (M17); a text that the server refuses to score is recorded with its words, never a crash.

`nll_mean` = - mean of the log-probabilities, nats per token (the first token has none). Drift is `logprob - reference`; `nll_drift_rms` is
the root of its mean square, `nll_drift_max` its largest size, both over the tokens whose expert no rounding can change (`on_edge`).
`top1_agreement` is the share of the text's tokens that the model finds the most likely one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from results.records import ScoreRecord
from runners.coherence.asking import ask_score, is_not_serialisable
from runners.coherence.drift import DRIFT, OK
from runners.coherence.findings import Finding
from runners.coherence.known_good import KnownGood, KnownPassage
from runners.coherence.transport import NoAnswer, Refused, Send
from runners.engines.base import AnswerError, EngineAdapter, PromptScores

STEP = "passages"
RMS_FACTOR, MAX_FACTOR = 3.0, 4.0
"""How many times its reference's floor a drift may be."""


@dataclass(frozen=True)
class Text:
    """A fixed text as token ids."""

    name: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class PassagesDone:
    """Scores to store, findings in the order found, and the raw values for a reference."""

    scores: tuple[ScoreRecord, ...] = ()
    findings: tuple[Finding, ...] = ()
    raw: tuple[tuple[Text, PromptScores], ...] = ()
    silence: NoAnswer | None = None


@dataclass(frozen=True)
class PassageJudge:
    """Judges the passages of one boot. `path`: the numeric path served, None if not known; scores of another one are not compared."""

    run_id: str
    known: KnownGood | None = None
    path: str | None = None

    async def ask(self, send: Send, adapter: EngineAdapter, model: str, texts: Sequence[Text]) -> PassagesDone:
        """Score all texts, one after the other."""
        scores: list[ScoreRecord] = []
        findings: list[Finding] = []
        raw: list[tuple[Text, PromptScores]] = []
        for text in texts:
            try:
                scored = await ask_score(send, adapter, model, text.token_ids)
            except NoAnswer as error:
                return PassagesDone(tuple(scores), tuple(findings), tuple(raw), error)
            except (Refused, AnswerError) as error:
                scores.append(self._unscored(text, str(error)))
                if is_not_serialisable(str(error)):
                    findings.append(_nonfinite(text, None, str(error)))
                continue
            if scored is None:
                scores.append(self._unscored(text, "this engine scores no given text"))
                continue
            raw.append((text, scored))
            judged = self.judge(text, scored)
            scores += judged.scores
            findings += judged.findings
        return PassagesDone(tuple(scores), tuple(findings), tuple(raw))

    def judge(self, text: Text, scored: PromptScores) -> PassagesDone:
        """Scores and findings of one text."""
        if scored.nonfinite is not None:
            finding = _nonfinite(text, scored.nonfinite, None)
            return PassagesDone((self._score(text, "nll_mean", None, reason=finding.what, verdict="nonfinite"),), (finding,))
        values = [value for value in scored.logprobs if value is not None]
        flags = [top1 for top1 in scored.top1 if top1 is not None]
        scores = [
            self._score(text, "nll_mean", -math.fsum(values) / len(values) if values else None),
            self._score(text, "top1_agreement", sum(flags) / len(flags) if flags else None),
        ]
        known = self._reference(text)
        if isinstance(known, KnownPassage):
            drifts, findings = self._drifts(text, scored, known)
            return PassagesDone((*scores, *drifts), findings)
        if known is not None:
            scores[0] = self._score(text, "nll_mean", scores[0].value, reason=known)
        return PassagesDone(tuple(scores))

    def _reference(self, text: Text) -> KnownPassage | str | None:
        """The reference of a text on the path served, why there is none, or None if there is no reference at all."""
        if self.known is None or text.name not in self.known.texts:
            return None
        if self.known.texts[text.name] != text.token_ids:
            return "not compared: the reference was tokenised otherwise"
        if self.path is None or self.path not in self.known.passages:
            paths = ", ".join(self.known.passages) or "no path"
            return f"not compared: the reference has scores of {paths}, this is {self.path or 'an unknown path'}"
        return self.known.passages[self.path].get(text.name) or "not compared: the reference has no score of this text on this path"

    def _drifts(self, text: Text, scored: PromptScores, known: KnownPassage) -> tuple[list[ScoreRecord], tuple[Finding, ...]]:
        pairs = zip(scored.logprobs, known.logprobs, strict=True)
        moved = [
            (abs(value - wanted), at)
            for at, (value, wanted) in enumerate(pairs)
            if value is not None and wanted is not None and at not in known.on_edge
        ]
        if not moved:
            return [], ()
        rms = math.sqrt(math.fsum(d * d for d, _ in moved) / len(moved))
        worst, at = max(moved)
        limits = (RMS_FACTOR * known.floor_rms, MAX_FACTOR * known.floor_max)
        scores = [
            self._compared(text, "nll_drift_rms", rms, limits[0], len(moved)),
            self._compared(text, "nll_drift_max", worst, limits[1], len(moved)),
        ]
        if rms <= limits[0] and worst <= limits[1]:
            return scores, ()
        what = (
            f"the log-probabilities of a fixed text drifted by {rms:.3f} nats rms and {worst:.3f} at most over {len(moved)} tokens; "
            f"{limits[0]:.3f} and {limits[1]:.3f} are tolerated"
        )
        return scores, (Finding(STEP, text.name, what, at),)

    def _compared(self, text: Text, metric: str, value: float, limit: float, tokens: int) -> ScoreRecord:
        reason = f"{value:.3f} nats per token, {limit:.3f} are tolerated."
        verdict = DRIFT if value > limit else OK
        return ScoreRecord(self.run_id, STEP, metric, text.name, value, limit, self.path, tokens, verdict, reason)

    def _score(self, text: Text, metric: str, value: float | None, *, reason: str | None = None, verdict: str | None = None) -> ScoreRecord:
        return ScoreRecord(self.run_id, STEP, metric, text.name, value, tokens=len(text.token_ids), verdict=verdict, reason=reason)

    def _unscored(self, text: Text, why: str) -> ScoreRecord:
        return self._score(text, "nll_mean", None, reason=f"not scored: {why}", verdict="not_scored")


def _nonfinite(text: Text, position: int | None, refusal: str | None) -> Finding:
    said = f": {refusal}" if refusal else ""
    return Finding(STEP, text.name, f"the log-probabilities of a fixed text are no finite numbers{said}", position, broken=True)
