"""Every formula that turns a recorded token stream into a rate. Pure: no I/O, no clock; no other module divides tokens by seconds.

Trap: most published decode rates count stream chunks as tokens, or divide by a window that starts at a role chunk, ends at `[DONE]`, or is
a single burst. Rule: a token is a token because the server's usage says so (M1), a window starts and ends at chunks that bear tokens
(M2-M4), and whatever cannot be known is None with a reason, never a number.

Words used in every formula
---------------------------
mark
    All chunks that arrived at one instant, taken together. A finish chunk without text is no mark (M4), nor is an event without choices.
token-bearing mark
    A mark with non-empty text, or one at which the server's running count `usage.completion_tokens` rose (an invisible token, such as
    half of a UTF-8 character, has no text but is a token).
F, L
    F is the first token-bearing mark. L is the last mark at which the running count rose.
n(X), t(X)
    Running count at mark X and arrival time of mark X, seconds on one monotonic clock.
wall
    `t_end - t_sent`: the whole request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from runners.stream_trace import TEXT_FIELDS, Chunk, Mark, StreamTrace

MIN_WINDOW_SHARE = 0.05
MIN_TOKEN_CHUNKS = 8
HELD_BACK_SHARE = 0.25
SHORTEST_PREFILL_S = 0.01
CACHED_TOKENS_ALLOWANCE = 2
MAX_LAG_SHARE = 0.01
SETTLED_WITHIN = 0.05
COUNTS_WITHIN = 0.02

CLIENT_LAG = "client_lag"
CLIENT_LAG_UNMEASURED = "client_lag_unmeasured"
CACHE_UNREPORTED = "cached_tokens_unreported"
NO_DONE = "no_done_marker"
PROMPT_TOKENS_DIFFER = "prompt_tokens_differ"
TOKENS_AFTER_WINDOW = "tokens_after_window"
ONE_BURST = "one_burst"


@dataclass(frozen=True)
class StreamRates:
    """Rates of one stream. An invalid stream (`valid` False) has no rates at all; a rate that is None has its reason in `null_reason`."""

    valid: bool
    invalid_reason: str | None = None
    null_reason: str | None = None
    ttft_s: float | None = None
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    itl_p50_s: float | None = None
    itl_p90_s: float | None = None
    itl_p99_s: float | None = None
    e2e_s: float | None = None
    e2e_tok_s: float | None = None
    carried_by: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Window:
    """F to L. `steps` are (t, new tokens) of every mark after F at which the count rose; `bearing` counts token-bearing marks F..L."""

    t_first: float
    t_last: float
    first_tokens: int
    steps: tuple[tuple[float, int], ...]
    bearing: int
    every_mark_counted: bool

    @property
    def tokens(self) -> int:
        return sum(k for _, k in self.steps)

    @property
    def seconds(self) -> float:
        return self.t_last - self.t_first


def rates_of(trace: StreamTrace) -> StreamRates:
    """All rates of one stream, each by the function below that states its formula; validity first (M6, M12, M14)."""
    carried = carried_by(trace.chunks)
    invalid = invalid_reason(trace)
    if invalid is not None:
        return StreamRates(valid=False, invalid_reason=invalid, carried_by=carried, flags=_flags(trace, None))
    ttft, no_ttft = ttft_s(trace)
    prefill, no_prefill = prefill_tok_s(trace)
    decode, no_decode = decode_tok_s(trace)
    itl, no_itl = inter_token_latencies(trace)
    p50, p90, p99 = (weighted_percentile(itl, p) for p in (50, 90, 99)) if itl else (None, None, None)
    wall = trace.t_end - trace.t_sent
    return StreamRates(
        valid=True,
        null_reason=_joined({"ttft_s": no_ttft, "prefill_tok_s": no_prefill, "decode_tok_s": no_decode, "itl_s": no_itl}),
        ttft_s=ttft,
        decode_tok_s=decode,
        prefill_tok_s=prefill,
        itl_p50_s=p50,
        itl_p90_s=p90,
        itl_p99_s=p99,
        e2e_s=wall,
        e2e_tok_s=trace.completion_tokens / wall if trace.completion_tokens and wall > 0 else None,
        carried_by=carried,
        flags=_flags(trace, p50),
    )


def invalid_reason(trace: StreamTrace) -> str | None:
    """Why the whole stream may not be used, as `name: detail`; None if it may.

    A failure of any kind, an `error` event included (M14); no usage at all (M1); a running count that falls, or a final count below it;
    text that was null throughout (M6); completion tokens other than asked (M12).
    """
    if trace.failure is not None:
        return f"{trace.failure.kind}: {trace.failure.detail}"
    if trace.completion_tokens is None:
        return "usage_missing: the server never said how many tokens it generated"
    counts = [c.tokens for c in trace.chunks if c.tokens is not None]
    if any(later < earlier for earlier, later in pairwise([*counts, trace.completion_tokens])):
        return "usage_inconsistent: the server's count of generated tokens went down"
    if not any(c.has_text for c in trace.chunks) and any(c.null_text for c in trace.chunks):
        return f"null_text: {trace.completion_tokens} tokens, but every text field is null"
    if trace.completion_tokens != trace.asked_tokens:
        return f"token_count: asked for {trace.asked_tokens} completion tokens, got {trace.completion_tokens}"
    return None


def ttft_s(trace: StreamTrace) -> tuple[float | None, str | None]:
    """Time to first token: `t(first chunk with non-empty text) - t_sent`, and the reason if it is None (M3, M5, M9).

    A role chunk, an HTTP header or an empty string never ends it. `t_sent` is taken when the
    connection stands and the request is about to be written: connecting does not count, a queue in the server does.
    None for a warm prefix cache: `cached_tokens > CACHED_TOKENS_ALLOWANCE`. The allowance of 2 is the BOS token, which every prompt shares,
    plus one chance match of the first nonce id (a cache with pages of one token reports both); a third equal id is no accident.
    """
    if trace.cached_tokens is not None and trace.cached_tokens > CACHED_TOKENS_ALLOWANCE:
        return None, f"warm_prefix_cache: {trace.cached_tokens} prompt tokens came from the cache"
    first = next((c for c in trace.chunks if c.has_text), None)
    if first is None:
        return None, "empty_text: no chunk had visible text"
    return first.t - trace.t_sent, None


def prefill_tok_s(trace: StreamTrace) -> tuple[float | None, str | None]:
    """`prompt_tokens / ttft_s`: prompt tokens per second until the first text, one decode step included.

    None where TTFT is None, or where TTFT contains more than the first token: an invisible token came before, the stream is one burst (M7),
    or more than `HELD_BACK_SHARE` of all tokens had arrived when 5 % of the decode window was over. None also below `SHORTEST_PREFILL_S`:
    with a first text after 5 ms the 0.2 to 0.4 ms of HTTP and of this client make the rate 4 to 9 % too low (`benchmarks/truth`).
    """
    ttft, reason = ttft_s(trace)
    if ttft is None:
        return None, reason
    if trace.prompt_tokens is None:
        return None, "usage_missing: prompt tokens not reported"
    if ttft < SHORTEST_PREFILL_S:
        return None, f"too_short: the first text came after {max(ttft, 0) * 1000:.1f} ms, too soon to tell prefill from HTTP"
    reason = _one_burst(trace.bearing, trace) or _text_after_other_tokens(trace.marks)
    window = _window(trace)
    if reason is None and isinstance(window, _Window):
        early = window.first_tokens + _tokens_at_start(window)
        if early > HELD_BACK_SHARE * (window.first_tokens + window.tokens):
            reason = f"held_back: the first text came together with {early} tokens"
    return (None, reason) if reason else (trace.prompt_tokens / ttft, None)


def decode_tok_s(trace: StreamTrace) -> tuple[float | None, str | None]:
    """`(n(L) - n(F)) / (t(L) - t(F))` tokens per second (M1, M2, M4), and the reason if it is None.

    The tokens of the first chunk are not in the numerator because their time is not in the denominator: with k tokens in the first of n,
    `(n - 1) / window` reads `(n - 1) / (n - k)` too fast (ai-dynamo/aiperf PR 1279). None unless both ends carry the server's count, and
    None (M7) if the window is under 5 % of wall or has under 8 token-bearing marks, or if more than a quarter of its tokens arrive
    in its first 5 %: those were generated before the window began and held back.
    """
    window = _usable_window(trace)
    return (None, window) if isinstance(window, str) else (window.tokens / window.seconds, None)


def inter_token_latencies(trace: StreamTrace) -> tuple[tuple[tuple[float, int], ...], str | None]:
    """Inter-token latencies as (seconds, weight): a mark with k new tokens, dt after the mark before, is k latencies of `dt / k` (M2).

    Unknown (empty, with a reason) where the decode rate is, or where some mark between F and L had text but no count.
    """
    window = _usable_window(trace)
    if isinstance(window, str):
        return (), window
    if not window.every_mark_counted:
        return (), "running_usage_incomplete: not every chunk carried the server's count"
    starts = [window.t_first, *(t for t, _ in window.steps[:-1])]
    return tuple(((t - start) / k, k) for start, (t, k) in zip(starts, window.steps, strict=True)), None


def aggregate_tok_s(traces: Sequence[StreamTrace]) -> tuple[float | None, str | None]:
    """`sum over streams of (n(L) - n(F)) / (max t(L) - min t(F))`: a batch's tokens per second, and the reason if it is None.

    The window runs from the first token of the first stream to the last token of the last one. The tokens of every stream's first chunk
    are left out: the first stream's lie before the window, and part of any other's may. So it never exceeds the sum of the streams'
    decode rates, and equals `decode_tok_s` for one stream. None if one stream is invalid or has no decode rate.
    """
    windows: list[_Window] = []
    for number, trace in enumerate(traces):
        reason = invalid_reason(trace)
        window = reason if reason is not None else _usable_window(trace)
        if isinstance(window, str):
            return None, f"stream {number}: {window}"
        windows.append(window)
    if not windows:
        return None, "no streams"
    seconds = max(w.t_last for w in windows) - min(w.t_first for w in windows)
    return sum(w.tokens for w in windows) / seconds, None


def settled(previous_tok_s: float | None, latest_tok_s: float | None) -> bool:
    """Whether two consecutive warm-up rates agree: `|a - b| <= 5 % of the larger` (M10). An unknown rate agrees with nothing."""
    if previous_tok_s is None or latest_tok_s is None:
        return False
    return abs(previous_tok_s - latest_tok_s) <= SETTLED_WITHIN * max(previous_tok_s, latest_tok_s)


def counts_agree(client_tokens: int | None, engine_tokens: int | None) -> bool | None:
    """Whether our token count and the engine's counter differ by at most 2 % of the engine's; None if either is unknown."""
    if client_tokens is None or engine_tokens is None:
        return None
    return abs(client_tokens - engine_tokens) <= COUNTS_WITHIN * engine_tokens


def weighted_percentile(weighted: Iterable[tuple[float, int]], percent: float) -> float | None:
    """Nearest-rank percentile of (value, weight): the smallest value that at least `percent` % of the weight does not exceed.

    Always a value that occurred; None for no values.
    """
    ordered = sorted(weighted)
    total = sum(weight for _, weight in ordered)
    reached = 0
    for value, weight in ordered:
        reached += weight
        if reached * 100 >= percent * total:
            return value
    return None


def carried_by(chunks: Iterable[Chunk]) -> str | None:
    """Fields that carried text, in the order of `TEXT_FIELDS` joined by "+" (M5); None if none did."""
    seen = {name for chunk in chunks for name, length in chunk.text_len.items() if length > 0}
    return "+".join(name for name in TEXT_FIELDS if name in seen) or None


def _window(trace: StreamTrace) -> _Window | str:
    """Kept with the trace, as a cached property would be: five numbers start from it."""
    kept = vars(trace)
    if _KEPT not in kept:
        kept[_KEPT] = _find_window(trace)
    found: _Window | str = kept[_KEPT]
    return found


_KEPT = "_window"


def _find_window(trace: StreamTrace) -> _Window | str:
    bearing = trace.bearing
    if not bearing:
        return "empty_text: no chunk bore a token"
    first = bearing[0]
    if not first.tokens:
        return "first_chunk_uncounted: the server did not say how many tokens its first chunk held"
    steps: list[tuple[float, int]] = []
    high, last = first.tokens, 0
    for index, mark in enumerate(bearing[1:], start=1):
        if mark.tokens is not None and mark.tokens > high:
            steps.append((mark.t, mark.tokens - high))
            high, last = mark.tokens, index
    if not steps:
        return f"{ONE_BURST}: no token was counted after the first chunk"
    inside = bearing[: last + 1]
    return _Window(first.t, steps[-1][0], first.tokens, tuple(steps), len(inside), all(m.tokens is not None for m in inside))


def _usable_window(trace: StreamTrace) -> _Window | str:
    window = _window(trace)
    if isinstance(window, str):
        return window
    bearing = [m for m in trace.bearing if m.t <= window.t_last]
    reason = _one_burst(bearing, trace)
    if reason is None and _tokens_at_start(window) > HELD_BACK_SHARE * window.tokens:
        reason = f"held_back: {_tokens_at_start(window)} of {window.tokens} tokens arrived in the first 5 % of the window"
    return reason or window


def _one_burst(bearing: Sequence[Mark], trace: StreamTrace) -> str | None:
    """M7."""
    if len(bearing) < MIN_TOKEN_CHUNKS:
        return f"{ONE_BURST}: {len(bearing)} token-bearing chunks, {MIN_TOKEN_CHUNKS} needed"
    seconds, wall = bearing[-1].t - bearing[0].t, trace.t_end - trace.t_sent
    if seconds <= 0 or seconds < MIN_WINDOW_SHARE * wall:
        return f"{ONE_BURST}: tokens arrived within {seconds:.6f} s of a request of {wall:.6f} s, under 5 %"
    return None


def _tokens_at_start(window: _Window) -> int:
    """Tokens after F that arrived within the first 5 % of the window."""
    until = window.t_first + MIN_WINDOW_SHARE * window.seconds
    return sum(k for t, k in window.steps if t <= until)


def _text_after_other_tokens(marks: Iterable[Mark]) -> str | None:
    """Why the first text is not the first token: an earlier, textless mark had counted fewer tokens than the first text did."""
    before = 0
    for mark in marks:
        if mark.has_text:
            if 0 < before < (mark.tokens or 0):
                return f"first_token_invisible: {before} tokens without text came before the first text"
            return None
        before = max(before, mark.tokens or 0)
    return None


def _flags(trace: StreamTrace, itl_p50_s: float | None) -> tuple[str, ...]:
    flags = []
    if trace.client_lag_s is None:
        flags.append(CLIENT_LAG_UNMEASURED)
    elif itl_p50_s is not None and trace.client_lag_s > MAX_LAG_SHARE * itl_p50_s:
        flags.append(CLIENT_LAG)
    if trace.cached_tokens is None:
        flags.append(CACHE_UNREPORTED)
    if not trace.done:
        flags.append(NO_DONE)
    if None not in (trace.prompt_tokens, trace.asked_prompt_tokens) and trace.prompt_tokens != trace.asked_prompt_tokens:
        flags.append(PROMPT_TOKENS_DIFFER)
    window = _window(trace)
    if isinstance(window, _Window) and (trace.completion_tokens or 0) > window.first_tokens + window.tokens:
        flags.append(TOKENS_AFTER_WINDOW)
    return tuple(flags)


def _joined(reasons: Mapping[str, str | None]) -> str | None:
    """`a, b: reason; c: reason`: names that share a reason are said together."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        if reason is not None:
            names.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(group)}: {reason}" for reason, group in names.items()) or None
