"""The benchmark of the structural judge: its made answers are sound and different, and a broken one stops it."""

from __future__ import annotations

import random

import pytest

from benchmarks.judge.__main__ import _code, _prose, _timed
from runners.coherence.structural import judge_text


@pytest.mark.parametrize("make", [_prose, _code])
def test_made_answers_pass_and_differ(make: object) -> None:
    assert callable(make)
    texts = [make(random.Random(seed), 300) for seed in range(20)]
    assert len(set(texts)) == 20
    assert all(len(text) >= 300 and not judge_text(text).broken for text in texts)


def test_a_broken_answer_makes_the_time_void() -> None:
    with pytest.raises(RuntimeError, match="called broken"):
        _timed(["A sound answer.", "!" * 200], 1)


def test_size_and_rate_belong_together() -> None:
    row = _timed([_prose(random.Random(1), 300)] * 3, 2)
    assert row["mb_s"] == pytest.approx(row["bytes"] / 1e6 / row["best_s"])
    assert row["times_goal"] == pytest.approx(row["mb_s"] / 5.0)
