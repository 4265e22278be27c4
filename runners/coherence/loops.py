"""Find exact repetition in text or in token ids, in linear time.

Trap: a backtracking pattern such as `(.+?)\\1{7,}` takes minutes on a long answer, and one that only looks at fixed periods misses a loop
whose unit is a whole paragraph. Rule: the tail is read with the prefix function (Knuth, Morris, Pratt: the smallest period of a prefix of
length m is m minus its longest border), the middle with evenly spaced probes; both costs are bounded, whatever the text is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Symbols = npt.NDArray[np.int64] | npt.NDArray[np.uint32]

TAIL_SYMBOLS = 8192
"""How much of the end is searched for a period; a run found there is then followed to its true beginning."""
_PROBES = 64
_OCCURRENCES = 256
_PROBE_KEY = 8
_TAIL_KEY = 4
_INNER_KEY = 16
_INNER_PROBES = 5
_PROBE_REACH = 2048
_CANDIDATES = 6


@dataclass(frozen=True)
class Run:
    """Symbols `start` .. `start + length` repeat with the smallest period `period`."""

    start: int
    length: int
    period: int

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def repeats(self) -> float:
        return self.length / self.period


def symbols_of(text: str) -> npt.NDArray[np.uint32]:
    """Code points of `text`; lone surrogates are kept as they are."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def tail_runs(symbols: Symbols, min_repeats: float = 3.0) -> list[Run]:
    """Runs that reach the end of `symbols`, one per period, each as long as it goes, longest first."""
    tail = symbols[-TAIL_SYMBOLS:][::-1].tolist()
    runs = []
    for period, length in _periods_of_prefixes(tail).items():
        if length / period < min_repeats:
            continue
        if length == len(tail) < len(symbols):
            length = _followed_back(symbols, period)  # noqa: PLW2901 - the run goes on before the tail that was searched
        runs.append(Run(len(symbols) - length, length, period))
    return sorted(runs, key=lambda r: (-r.length, r.period))


def may_repeat_at_end(text: str) -> bool:
    """Whether `text` can end with three repeats of anything. A fast way out for most texts, which never errs towards False.

    One character counts from five repeats on (three for the replacement character): fewer are never broken. Three repeats of a longer
    period show their last four characters again one period earlier.
    """
    tail = text[-TAIL_SYMBOLS:]
    last = tail[-1:]
    if len(tail) - len(tail.rstrip(last)) >= (3 if last == "\N{REPLACEMENT CHARACTER}" else 5):
        return True
    key = tail[-_TAIL_KEY:]
    at = len(tail) - len(key)
    for _ in range(_OCCURRENCES):
        at = tail.rfind(key, 0, at + len(key) - 1)
        if at < 0:
            return False
        period = len(tail) - len(key) - at
        if tail[-2 * period :] == tail[-3 * period : -period]:
            return True
    return True


def _periods_of_prefixes(sequence: Sequence[int]) -> dict[int, int]:
    """Smallest period -> longest prefix that has it (prefix function over `sequence`)."""
    border = [0] * len(sequence)
    longest: dict[int, int] = {1: 1} if sequence else {}
    k = 0
    for i in range(1, len(sequence)):
        symbol = sequence[i]
        while k and symbol != sequence[k]:
            k = border[k - 1]
        if symbol == sequence[k]:
            k += 1
        border[i] = k
        longest[i + 1 - k] = i + 1
    return longest


def _followed_back(symbols: Symbols, period: int) -> int:
    """Length of the run of `period` that ends at the end."""
    breaks = np.flatnonzero(symbols[:-period] != symbols[period:])
    return len(symbols) if not len(breaks) else len(symbols) - int(breaks[-1]) - 1


def may_hold_inner_run(text: str) -> bool:
    """Whether a run of three repeats can cover 200 characters and two fifths of `text`. A fast way out, which never errs towards False.

    Such a run is so long that, but for its last period, it holds one of five evenly spaced probes, and shows that again one period on.
    """
    step = max(len(text) // _INNER_PROBES, 1)
    return any(
        text.find(text[i : i + _INNER_KEY], i + 1, i + _INNER_KEY + _PROBE_REACH) > 0 for i in range(0, len(text) - _INNER_KEY, step)
    )


def inner_runs(symbols: Symbols, min_repeats: float = 3.0) -> list[Run]:
    """The longest run of each likely period anywhere, longest first. A run covering a tenth of the text is met by several probes."""
    runs = []
    for period in _likely_periods(symbols):
        run = _longest_run(symbols, period)
        if run.repeats >= min_repeats:
            runs.append(run)
    return sorted(runs, key=lambda r: (-r.length, r.period))


def _likely_periods(symbols: Symbols) -> list[int]:
    raw = symbols.tobytes()
    width = symbols.itemsize
    step = max(len(symbols) // _PROBES, 8)
    seen: Counter[int] = Counter()
    for i in range(0, len(symbols) - _PROBE_KEY, step):
        key = raw[i * width : (i + _PROBE_KEY) * width]
        at = raw.find(key, (i + 1) * width, (i + _PROBE_KEY + _PROBE_REACH) * width)
        if at > 0 and at % width == 0:
            seen[at // width - i] += 1
    return [period for period, count in seen.most_common(_CANDIDATES) if count > 1]


def _longest_run(symbols: Symbols, period: int) -> Run:
    breaks = np.flatnonzero(symbols[:-period] != symbols[period:])
    edges = np.concatenate(([-1], breaks, [len(symbols) - period]))
    gaps = np.diff(edges)
    widest = int(np.argmax(gaps))
    return Run(int(edges[widest]) + 1, int(gaps[widest]) - 1 + period, period)
