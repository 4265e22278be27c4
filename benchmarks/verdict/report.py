"""The result as JSON and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.verdict.methods import OURS
from benchmarks.verdict.tally import Count

GOAL = "0 confirmed false alarms; at least 90 % of 5 % shifts with 5 boots; no peer with fewer false alarms or more of the 5 % shifts"


def as_json(count: Count) -> dict[str, Any]:
    interval = count.interval_percent
    return {
        "data": count.data,
        "method": count.method,
        "boots": count.boots,
        "shift_percent": round(100 * count.shift, 6),
        "told": count.told,
        "told_wrong_way": count.wrong_way,
        "of": count.days,
        "percent": None if count.percent is None else round(count.percent, 3),
        "percent_95": None if interval is None else [round(end, 3) for end in interval],
    }


def false_alarms(counts: Sequence[Count]) -> list[dict[str, Any]]:
    """Every series and night on which our rule told a change that did not happen."""
    return [
        {"data": count.data, "boots": count.boots, "series": series, "night": night}
        for count in counts
        if count.method == OURS and count.shift == 0
        for series, night in count.told_on
    ]


def goal_reached(counts: Sequence[Count]) -> dict[str, Any]:
    """The three parts of the goal on the counts of one set of data, each with the numbers it was judged by."""
    alarms = {count.boots: count.told for count in counts if count.method == OURS and count.shift == 0}
    found = {count.boots: count.percent for count in counts if count.method == OURS and count.shift == 0.05}
    better = {
        f"{count.method} ({count.boots} boots)": {"false_alarms": count.told, "found_5_percent": _found(counts, count)}
        for count in counts
        if count.shift == 0 and not count.method.startswith((OURS, "screen")) and _beats_us(counts, count)
    }
    return {
        "goal": GOAL,
        "false_alarms_by_boots": alarms,
        "found_5_percent_by_boots": found,
        "no_false_alarm": not any(alarms.values()) if alarms else None,
        "found_at_least_90_percent_with_5_boots": None if found.get(5) is None else bool((found[5] or 0) >= 90),
        "peers_better_on_either": better,
    }


def _found(counts: Sequence[Count], like: Count) -> float | None:
    return next((count.percent for count in counts if (count.method, count.boots, count.shift) == (like.method, like.boots, 0.05)), None)


def _beats_us(counts: Sequence[Count], peer: Count) -> bool:
    us = next(count for count in counts if (count.method, count.boots, count.shift) == (OURS, peer.boots, 0.0))
    peer_found, our_found = _found(counts, peer), _found(counts, us)
    return peer.told < us.told or (peer_found is not None and our_found is not None and peer_found > our_found)


def table(counts: Sequence[Count], boots: int, title: str) -> Table:
    """Methods down, shifts across, in percent; the first column of numbers is false alarms with their count."""
    shifts = sorted({count.shift for count in counts})
    shown = Table(title=f"{title}, {boots} boots a side + {boots} in the re-run")
    shown.add_column("method")
    for shift in shifts:
        shown.add_column(f"{shift:.0%} found" if shift else "false alarms", justify="right")
    for method in dict.fromkeys(count.method for count in counts):
        cells = []
        for shift in shifts:
            own = [count for count in counts if (count.method, count.boots, count.shift) == (method, boots, shift)]
            cells.append(_cell(own))
        shown.add_row(method, *cells, style="bold" if method == OURS else None)
    return shown


def _cell(counts: Sequence[Count]) -> str:
    """Sum over `counts`: `2 of 808 (0.25 %)` without, `93.9 %` with a planted shift."""
    told, days = sum(count.told for count in counts), sum(count.days for count in counts)
    if not days:
        return "-"
    percent = 100 * told / days
    return f"{percent:.1f} %" if counts[0].shift else f"{told} of {days} ({percent:.2f} %)"
