"""Compare what was said with what was sent. Pure.

A number is wrong if it is off by more than the tolerance and the server's own doubt together; null is right only where the rate cannot be
known from outside. Sparkproof's numbers are compared stream by stream. A peer's cannot be tied to streams: its sorted values are compared
with the sorted true ones, which is the smallest worst error that any assignment allows; a median alone is compared with the median.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.truth.scenarios import Scenario
from benchmarks.truth.schedule import SentStream, Truth, truth_of

DECODE_TOLERANCE = 0.005
TTFT_TOLERANCE_S = 0.002
PREFILL_TOLERANCE = 0.05
"""Prefill is prompt tokens over TTFT: 2 ms of most scenarios' 0.1 s, and as much again."""


@dataclass(frozen=True)
class Said:
    """What Sparkproof said of one stream; `key` ties it to the sent one. `reason` says why a number is None."""

    key: str
    ttft_s: float | None
    decode_tok_s: float | None
    prefill_tok_s: float | None
    reason: str | None
    lag_s: float | None = None
    itl_p50_s: float | None = None


@dataclass(frozen=True)
class PeerSaid:
    """What a peer said of the `requests` it measured: a value per request, or one median; empty where it gives none.

    `failed`: its own count of failed requests; `trouble`: why there is nothing at all; `lag_share`: see `cost.Cost`.
    """

    requests: int
    decode_tok_s: tuple[float, ...] = ()
    ttft_s: tuple[float, ...] = ()
    prefill_tok_s: tuple[float, ...] = ()
    failed: int = 0
    trouble: str | None = None
    lag_share: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of the accuracy table. Errors are of the worst stream, as fractions or seconds; None where nothing was said or is known.

    `doubt_s`: the most that the server does not know of a TTFT; `lateness_s`: the worst delay of a chunk against the plan.
    """

    tool: str
    scenario: str
    trap: str
    streams: int
    decode_true_tok_s: float | None
    decode_said_tok_s: float | None
    decode_error: float | None
    ttft_error_s: float | None
    prefill_error: float | None
    nulls: int
    null_reason: str | None
    doubt_s: float
    lateness_s: float
    verdict: str


@dataclass
class _Errors:
    """Errors of one number over the streams, and whether one is beyond tolerance and doubt."""

    tolerance: float
    errors: list[float] = field(default_factory=list)
    beyond: bool = False

    def add(self, error: float, doubt: float) -> None:
        self.errors.append(error)
        self.beyond = self.beyond or error > self.tolerance + doubt

    @property
    def worst(self) -> float | None:
        return max(self.errors, default=None)


def compare(tool: str, scenario: Scenario, said: Iterable[Said], sent: Iterable[tuple[SentStream, int]]) -> Row:
    """The row of Sparkproof. Raises ValueError for a said stream that was never sent, which would be a fault of this benchmark."""
    truths = {stream.key: (truth_of(stream, prompt_tokens, burst=scenario.burst), stream) for stream, prompt_tokens in sent}
    said = tuple(said)
    strangers = [s.key for s in said if s.key not in truths]
    if strangers:
        raise ValueError(f"{scenario.name}: {len(strangers)} of {len(said)} streams were never sent")
    decode, ttft, prefill = _Errors(DECODE_TOLERANCE), _Errors(TTFT_TOLERANCE_S), _Errors(PREFILL_TOLERANCE)
    for one in said:
        truth = truths[one.key][0]
        if one.decode_tok_s is not None and truth.decode_tok_s is not None:
            decode.add(abs(one.decode_tok_s / truth.decode_tok_s - 1), truth.decode_doubt)
        if one.ttft_s is not None and truth.ttft_s is not None:
            ttft.add(abs(one.ttft_s - truth.ttft_s), truth.ttft_doubt_s)
        if one.prefill_tok_s is not None and truth.prefill_tok_s is not None:
            prefill.add(abs(one.prefill_tok_s / truth.prefill_tok_s - 1), 0.0)
    invented = any(s.decode_tok_s is not None and truths[s.key][0].decode_tok_s is None for s in said)
    nulls = [s for s in said if s.decode_tok_s is None]
    return _row(
        tool,
        scenario,
        [truths[s.key] for s in said],
        [s.decode_tok_s for s in said if s.decode_tok_s is not None],
        (decode, ttft, prefill),
        nulls=len(nulls),
        null_reason=nulls[0].reason if nulls else None,
        invented=invented,
    )


def compare_peer(tool: str, scenario: Scenario, said: PeerSaid, sent: Sequence[tuple[SentStream, int]]) -> Row:
    """The row of a peer. Its measured requests are the last ones sent: every tool warms up before it measures."""
    last = sent[-said.requests :] if said.requests else []
    truths = [(truth_of(stream, prompt_tokens, burst=scenario.burst), stream) for stream, prompt_tokens in last]
    decode, ttft, prefill = _Errors(DECODE_TOLERANCE), _Errors(TTFT_TOLERANCE_S), _Errors(PREFILL_TOLERANCE)
    _pair(decode, said.decode_tok_s, [t.decode_tok_s for t, _ in truths], max((t.decode_doubt for t, _ in truths), default=0), _relative)
    _pair(ttft, said.ttft_s, [t.ttft_s for t, _ in truths], max((t.ttft_doubt_s for t, _ in truths), default=0), _absolute)
    _pair(prefill, said.prefill_tok_s, [t.prefill_tok_s for t, _ in truths], 0.0, _relative)
    invented = bool(said.decode_tok_s) and bool(truths) and all(t.decode_tok_s is None for t, _ in truths)
    nulls = 0 if said.decode_tok_s else said.requests
    reason = said.trouble or (f"{said.failed} of {said.requests} requests failed" if said.failed else "no decode rate" if nulls else None)
    return _row(tool, scenario, truths, said.decode_tok_s, (decode, ttft, prefill), nulls=nulls, null_reason=reason, invented=invented)


def _pair(into: _Errors, said: Sequence[float], true: Sequence[float | None], doubt: float, error: Callable[[float, float], float]) -> None:
    known = sorted(value for value in true if value is not None)
    if not said or not known:
        return
    pairs = zip(sorted(said), known, strict=True) if len(said) == len(known) else [(median(said), median(known))]
    for value, truth in pairs:
        into.add(error(value, truth), doubt)


def _relative(said: float, true: float) -> float:
    return abs(said / true - 1)


def _absolute(said: float, true: float) -> float:
    return abs(said - true)


def _row(
    tool: str,
    scenario: Scenario,
    truths: Sequence[tuple[Truth, SentStream]],
    said: Sequence[float],
    errors: tuple[_Errors, _Errors, _Errors],
    *,
    nulls: int,
    null_reason: str | None,
    invented: bool,
) -> Row:
    decode, ttft, prefill = errors
    true = [truth.decode_tok_s for truth, _ in truths if truth.decode_tok_s is not None]
    wrong = invented or any(number.beyond for number in errors)
    return Row(
        tool=tool,
        scenario=scenario.name,
        trap=scenario.trap,
        streams=len(truths),
        decode_true_tok_s=median(true) if true else None,
        decode_said_tok_s=median(said) if said else None,
        decode_error=decode.worst,
        ttft_error_s=ttft.worst,
        prefill_error=prefill.worst,
        nulls=nulls,
        null_reason=null_reason,
        doubt_s=max((truth.ttft_doubt_s for truth, _ in truths), default=0.0),
        lateness_s=max((stream.lateness_s for _, stream in truths), default=0.0),
        verdict=verdict_of(scenario, wrong=wrong, nulls=nulls, ttft_said=ttft.worst is not None, streams=len(truths)),
    )


def verdict_of(scenario: Scenario, *, wrong: bool, nulls: int, ttft_said: bool, streams: int) -> str:
    """`right`, `wrong` (a number beyond the tolerance, or one where there is none), `missing` (null where it could be known), `nothing`."""
    if streams == 0:
        return "nothing"
    if wrong:
        return "wrong"
    return "missing" if (scenario.decode_known and nulls > 0) or (scenario.ttft_known and not ttft_said) else "right"
