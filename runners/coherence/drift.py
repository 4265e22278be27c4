"""How far the margins of right answers moved from those of a correct engine on the same numeric path.

Trap: text alone is a weak detector. A scale off by a factor of two in one layer, two experts swapped or a skipped layer left every golden
token in place in our fault tables, and moved the margins far beyond rounding. Rule: the gap between the best and the second-best token is
compared, token by token, with the reference of the path that was served; rms or maximum beyond that path's thresholds is a finding even if
every token is right.

A drift is `margin - reference`, in nats, of a token before the first divergence. rms = sqrt(mean of its square) over all tokens of all
answers; a few tokens have a wild rms of their own, so a single step is judged by its maximum alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from results.records import ScoreRecord
from runners.coherence.findings import Finding
from runners.coherence.judging import Judged
from runners.coherence.numeric_path import PathReference, path_name

DRIFT = "drift"
OK = "ok"


@dataclass(frozen=True)
class _Token:
    """Drift of one token, with where it stands."""

    drift: float
    step: str
    prompt: str
    position: int


@dataclass(frozen=True)
class PathDrift:
    """Drift against one candidate path; `first` is the first token beyond the maximum, in the order asked."""

    path: PathReference
    rms: float
    worst: _Token
    tokens: int
    first: _Token | None

    @property
    def excess(self) -> float:
        """How many times the thresholds are reached; above 1 it is a finding."""
        reference = self.path.reference
        return max(self.rms / reference.drift_rms_threshold, abs(self.worst.drift) / reference.drift_max_threshold)


@dataclass(frozen=True)
class DriftResult:
    """Scores to store, and the finding if the drift is too large for every candidate path."""

    scores: tuple[ScoreRecord, ...] = ()
    finding: Finding | None = None
    nearest: PathDrift | None = None


def judge_drift(run_id: str, step: str, judged: Sequence[Judged], paths: Sequence[PathReference]) -> DriftResult:
    """Compare the margins of all golden answers with each of `paths` and keep the nearest. No paths or margins: nothing is said."""
    drifts = [drift for path in paths if (drift := _against(judged, path)) is not None]
    if not drifts:
        return DriftResult()
    nearest = min(drifts, key=lambda drift: drift.excess)
    return DriftResult(tuple(_scores(run_id, step, nearest)), _finding(nearest) if nearest.excess > 1 else None, nearest)


def _against(judged: Sequence[Judged], path: PathReference) -> PathDrift | None:
    tokens = list(_tokens(judged, path))
    if not tokens:
        return None
    limit = path.reference.drift_max_threshold
    return PathDrift(
        path=path,
        rms=math.sqrt(math.fsum(token.drift**2 for token in tokens) / len(tokens)),
        worst=max(tokens, key=lambda token: abs(token.drift)),
        tokens=len(tokens),
        first=next((token for token in tokens if abs(token.drift) > limit), None),
    )


def _tokens(judged: Sequence[Judged], path: PathReference) -> Iterator[_Token]:
    for answer in judged:
        reference = path.reference.margins.get(answer.record.prompt_name)
        if reference is None or answer.record.expected_ids == ():
            continue
        for i, (margin, wanted) in enumerate(zip(answer.observed.before_divergence, reference, strict=False)):
            if margin is not None:
                yield _Token(margin - wanted, answer.record.step, answer.record.prompt_name, i)


def _scores(run_id: str, step: str, drift: PathDrift) -> Iterator[ScoreRecord]:
    reference, name = drift.path.reference, path_name(drift.path.path)
    place = f"{drift.worst.step}/{drift.worst.prompt}@{drift.worst.position}"
    for metric, subject, value, threshold in (
        ("margin_drift_rms", "all answers", drift.rms, reference.drift_rms_threshold),
        ("margin_drift_max", place, abs(drift.worst.drift), reference.drift_max_threshold),
    ):
        beyond = value > threshold
        yield ScoreRecord(
            run_id=run_id,
            step=step,
            metric=metric,
            subject=subject,
            value=value,
            threshold=threshold,
            reference=name,
            tokens=drift.tokens,
            verdict=DRIFT if beyond else OK,
            reason=f"{value:.3f} nats, {threshold:.3f} are tolerated (floor {reference.drift_rms_floor:.3f} rms). {reference.source}",
        )


def _finding(drift: PathDrift) -> Finding:
    reference, at = drift.path.reference, drift.first or drift.worst
    what = (
        f"the margins drifted by {drift.rms:.3f} nats rms and {abs(drift.worst.drift):.3f} at most over {drift.tokens} tokens; "
        f"{path_name(drift.path.path)} tolerates {reference.drift_rms_threshold:.3f} and {reference.drift_max_threshold:.3f}"
    )
    return Finding(step=at.step, subject=at.prompt, position=at.position, what=what)
