"""Runs inside Otava's own environment. One line of JSON in (a batch of series), one line out: +1, -1 or 0 for the last value of each."""

from __future__ import annotations

import json
import sys

from otava.analysis import compute_change_points


def told(values: list[float], max_pvalue: float, min_magnitude: float) -> int:
    points, _ = compute_change_points(list(values), max_pvalue=max_pvalue, min_magnitude=min_magnitude)
    for point in points:
        if point.index == len(values) - 1:
            return 1 if point.stats.mean_2 > point.stats.mean_1 else -1
    return 0


for line in sys.stdin:
    question = json.loads(line)
    answer = [told(values, question["max_pvalue"], question["min_magnitude"]) for values in question["series"]]
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
