"""Is a real model's answer one that a trusted engine gave, or one that rounding can explain?

Trap: greedy text is bistable: where two tokens are nearly as likely, one rounding decides, and from there on everything differs (M18). A
judge that wants one exact text calls sound engines wrong; one that forgives every difference sees nothing. Rule: an answer is compared with
the set of known ones, and a difference is forgiven only where it begins at a token that was a near tie.

At the first token that differs, the trusted engine preferred its token by `m_known` nats and this engine its own by `m_own`. Both saw the
same text up to there, so between the two engines the gap of these two tokens moved by `m_known + m_own` at least. Rounding moves it by
tenths of a nat; `TOLERANCE_NATS` and less is a near tie, more is wrong. Where no margin is known, nothing is concluded from one answer.

Without a reference the known set of a prompt is its first answer in the same boot: an engine that answers the same prompt otherwise in a
batch, after other prompts or in a stream, by more than a near tie, contradicts itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate

from results.records import CoherenceRecord
from runners.coherence.findings import Finding
from runners.coherence.golden import GoldenKind
from runners.coherence.judging import Judged, Observed
from runners.coherence.units import shown

TOLERANCE_NATS = 1.0
"""Near tie: see the module text and docs/gate.md."""
_MOST_OUTSIDE = 0.5
"""Share of the prompts that may be outside the known set without margins that would explain it."""


@dataclass(frozen=True)
class KnownAnswer:
    """An answer of a trusted engine. `tokens` are ids (raw prompts) or texts (chat), with one margin each; empty if it gave none."""

    text: str
    tokens: tuple[int | str, ...] = ()
    margins: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class KnownPassage:
    """Log-probabilities of a fixed text's tokens (nats, None for the first); `floor_*`: how far honest other computations differ over the
    tokens that are not `on_edge`, where a rounding decides which expert a token gets and its score jumps by nats."""

    logprobs: tuple[float | None, ...]
    floor_rms: float
    floor_max: float
    on_edge: frozenset[int] = frozenset()


@dataclass(frozen=True)
class KnownGood:
    """What trusted boots of one model gave: answers by prompt, token ids of the fixed texts by name, and their scores by numeric path
    (`runners.coherence.numeric_path.path_name`) and name."""

    answers: Mapping[str, tuple[KnownAnswer, ...]] = field(default_factory=dict)
    texts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    passages: Mapping[str, Mapping[str, KnownPassage]] = field(default_factory=dict)
    source: str = ""


class Membership(StrEnum):
    """How an answer stands to the known ones."""

    KNOWN = "known"
    NEAR_TIE = "near_tie"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Comparison:
    """`position`: the first token that differs from the nearest known answer; `shift`: by how much their gap moved at least, nats."""

    membership: Membership
    reason: str
    position: int | None = None
    shift: float | None = None


def compare(text: str, observed: Observed, known: Sequence[KnownAnswer]) -> Comparison:
    """Compare an answer with the nearest of the known ones (at least one)."""
    if any(_same(text, observed, answer) for answer in known):
        return Comparison(Membership.KNOWN, f"One of {len(known)} known good answers.")
    position, shift, nearest = max((_difference(text, observed, answer) for answer in known), key=lambda d: (d[0] or 0, -(d[1] or 0.0)))
    where = "Differs" if position is None else f"Differs from token {position} on"
    if shift is None:
        reason = f"{where} from {len(known)} known answers; without log-probabilities nothing says whether rounding explains it."
        return Comparison(Membership.UNKNOWN, reason, position)
    told = f"{where} from the nearest of {len(known)} known answers ({shown(nearest.text)}): the two tokens' gap moved by {shift:.2f} nats"
    if shift <= TOLERANCE_NATS:
        return Comparison(Membership.NEAR_TIE, f"{told} at least, which is a near tie: either is right.", position, shift)
    return Comparison(Membership.OTHER, f"{told} at least; rounding moves it by {TOLERANCE_NATS:.1f} at most.", position, shift)


def _same(text: str, observed: Observed, known: KnownAnswer) -> bool:
    if _comparable(observed.tokens, known.tokens):
        return observed.tokens == known.tokens
    return text == known.text


def _comparable(tokens: Sequence[int | str], other: Sequence[int | str]) -> bool:
    return bool(tokens) and bool(other) and type(tokens[0]) is type(other[0])


def _difference(text: str, observed: Observed, known: KnownAnswer) -> tuple[int | None, float | None, KnownAnswer]:
    """(first token that differs, least shift there, the known answer)."""
    if _comparable(observed.tokens, known.tokens):
        position: int | None = _first_difference(observed.tokens, known.tokens)
        margins = [_at(observed.margins, position), _at(known.margins, position)]
    else:
        char = _first_difference(text, known.text)
        position = _token_of(char, known.tokens, known.text)
        margins = [_at(known.margins, position)]
    seen = [margin for margin in margins if margin is not None]
    return position, sum(seen) if seen else None, known


def _first_difference(one: Sequence[int | str], other: Sequence[int | str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _token_of(char: int, tokens: Sequence[int | str], text: str) -> int | None:
    """Index of the token that holds character `char`; None unless the tokens' texts begin with the text (a stop token may follow it)."""
    texts = [token for token in tokens if isinstance(token, str)]
    if len(texts) != len(tokens) or not "".join(texts).startswith(text):
        return None
    return next((i for i, end in enumerate(accumulate(map(len, texts))) if end > char), None)


def _at(margins: Sequence[float | None], position: int | None) -> float | None:
    return margins[position] if position is not None and position < len(margins) else None


def against_known(judged: Sequence[Judged], reference: KnownGood | None) -> tuple[list[Judged], Finding | None]:
    """`judged` with the verdict of the known set where structure found nothing, and the finding if too many are outside it unexplained."""
    answers = reference.answers if reference is not None else {}
    own: dict[str, list[KnownAnswer]] = {}
    result: list[Judged] = []
    outside: dict[str, Judged] = {}
    for answer in judged:
        name = answer.record.prompt_name
        if not answer.right:
            result.append(answer)
            continue
        known = answers.get(name) or own.get(name)
        if not known:
            own[name] = [KnownAnswer(answer.record.text, answer.observed.tokens, answer.observed.margins)]
            result.append(answer)
            continue
        found = compare(answer.record.text, answer.observed, known)
        if found.membership in (Membership.NEAR_TIE, Membership.UNKNOWN) and name in own:
            own[name].append(KnownAnswer(answer.record.text, answer.observed.tokens, answer.observed.margins))
        if found.membership is Membership.UNKNOWN and name in answers:
            outside.setdefault(name, answer)
        result.append(replace(answer, record=_relabelled(answer.record, found, "known_good" if name in answers else "self_consistency")))
    return result, _too_many_outside(outside, {answer.record.prompt_name for answer in judged} & set(answers))


_VERDICTS = {Membership.KNOWN: GoldenKind.MATCH, Membership.NEAR_TIE: GoldenKind.TIE, Membership.OTHER: GoldenKind.WRONG}


def _relabelled(record: CoherenceRecord, found: Comparison, judge: str) -> CoherenceRecord:
    if found.membership is Membership.UNKNOWN:
        return replace(record, reason=found.reason, first_divergence=found.position)
    return replace(record, judge=judge, verdict=_VERDICTS[found.membership].value, reason=found.reason, first_divergence=found.position)


def _too_many_outside(outside: Mapping[str, Judged], asked: set[str]) -> Finding | None:
    if not asked or len(outside) <= _MOST_OUTSIDE * len(asked):
        return None
    name, first = next(iter(outside.items()))
    what = (
        f"{len(outside)} of {len(asked)} prompts are answered outside the known good set, and no log-probabilities explain it by rounding"
    )
    return Finding(first.record.step, name, what)
