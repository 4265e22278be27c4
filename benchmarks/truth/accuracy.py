"""Compare what was said with what was sent, stream by stream. Pure.

A number is wrong if it is off by more than the tolerance; null is right only where the rate cannot be known from outside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from benchmarks.truth.ours import Said
from benchmarks.truth.scenarios import Scenario
from benchmarks.truth.schedule import SentStream, truth_of

DECODE_TOLERANCE = 0.005
TTFT_TOLERANCE_S = 0.002


@dataclass(frozen=True)
class Row:
    """One line of the accuracy table. Errors are of the worst stream; `decode_error` is a fraction, None where null was said of all."""

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
    server_lateness_s: float
    verdict: str


def compare(tool: str, scenario: Scenario, said: Iterable[Said], sent: Iterable[tuple[SentStream, int]]) -> Row:
    """The row of one scenario. Raises ValueError for a said stream that was never sent, which would be a fault of this benchmark."""
    truths = {stream.key: (truth_of(stream, prompt_tokens, burst=scenario.burst), stream) for stream, prompt_tokens in sent}
    said = tuple(said)
    strangers = [s.key for s in said if s.key not in truths]
    if strangers:
        raise ValueError(f"{scenario.name}: {len(strangers)} of {len(said)} streams were never sent")
    pairs = [(s, *truths[s.key]) for s in said]
    decode = [abs(s.decode_tok_s / t.decode_tok_s - 1) for s, t, _ in pairs if s.decode_tok_s is not None and t.decode_tok_s is not None]
    ttft = [abs(s.ttft_s - t.ttft_s) for s, t, _ in pairs if s.ttft_s is not None and t.ttft_s is not None]
    prefill = [
        abs(s.prefill_tok_s / t.prefill_tok_s - 1) for s, t, _ in pairs if s.prefill_tok_s is not None and t.prefill_tok_s is not None
    ]
    invented = any(s.decode_tok_s is not None and t.decode_tok_s is None for s, t, _ in pairs)
    nulls = [s for s, _, _ in pairs if s.decode_tok_s is None]
    decode_error, ttft_error = max(decode, default=None), max(ttft, default=None)
    return Row(
        tool=tool,
        scenario=scenario.name,
        trap=scenario.trap,
        streams=len(pairs),
        decode_true_tok_s=median([t.decode_tok_s for _, t, _ in pairs if t.decode_tok_s is not None] or [0.0]) or None,
        decode_said_tok_s=median(values) if (values := [s.decode_tok_s for s, _, _ in pairs if s.decode_tok_s is not None]) else None,
        decode_error=decode_error,
        ttft_error_s=ttft_error,
        prefill_error=max(prefill, default=None),
        nulls=len(nulls),
        null_reason=nulls[0].reason if nulls else None,
        server_lateness_s=max((stream.lateness_s for _, _, stream in pairs), default=0.0),
        verdict="wrong" if invented else verdict_of(scenario, decode_error, ttft_error, nulls=len(nulls), of=len(pairs)),
    )


def verdict_of(scenario: Scenario, decode_error: float | None, ttft_error_s: float | None, *, nulls: int, of: int) -> str:
    """`right`, `wrong` (a number beyond the tolerance), `missing` (null where the rate could be known) or `nothing` (no stream at all)."""
    if of == 0:
        return "nothing"
    if decode_error is not None and decode_error > DECODE_TOLERANCE:
        return "wrong"
    if ttft_error_s is not None and ttft_error_s > TTFT_TOLERANCE_S:
        return "wrong"
    missing = (scenario.decode_known and nulls > 0) or (scenario.ttft_known and ttft_error_s is None)
    return "missing" if missing else "right"
