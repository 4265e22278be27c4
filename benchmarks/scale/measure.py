"""Seconds of every question, of `compare`, and of storing boots, on a store that is large already."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.scale.ingest import IngestSpeed, batch_speed, commit_seconds, rebuild_speed
from benchmarks.scale.questions import all_questions
from results.compare import Question, compare
from results.store import Store

QUESTION_LIMIT_S = 0.3
COMPARE_LIMIT_S = 1.0
REPEATS = 5
_CELLS = 192
"""Cells of one node and engine that new boots are spread over."""


@dataclass(frozen=True)
class Timing:
    """Median seconds of REPEATS warm answers, opening and closing the database included, and how many rows came.

    `cpu_s` is the processor time of all threads: on a machine with nothing else to do, `seconds` is no more than that.
    """

    name: str
    seconds: float
    cpu_s: float
    rows: int
    limit_s: float

    @property
    def holds(self) -> bool:
        return self.seconds <= self.limit_s


@dataclass(frozen=True)
class IngestResult:
    """Whole cells at once (a rebuild), few boots in many cells (a night), and the commit of a single boot.

    Boots have 63 samples (what the smoke suite leaves) or 20 (the ratio of the goal).
    """

    rebuild_63: IngestSpeed
    rebuild_20: IngestSpeed
    night_63: IngestSpeed
    night_20: IngestSpeed
    commit_s: float


def time_questions(store: Store, say: Callable[[str], None]) -> list[Timing]:
    """Every question of pages and commands."""
    timings: list[Timing] = []
    for name, question in all_questions(store):
        timings.append(_timed(name, lambda question=question: len(question.frame(store)), QUESTION_LIMIT_S))  # type: ignore[misc]
        say(f"{name}: {timings[-1].seconds * 1000:.0f} ms")
    return timings


def time_compare(store: Store, say: Callable[[str], None]) -> list[Timing]:
    """The newest two releases (stored verdicts), and two that are not neighbours (judged now): all cells, and those of one model."""
    rows = store.query("SELECT engine, release FROM releases WHERE position IS NOT NULL ORDER BY engine DESC, position DESC LIMIT 4")
    engine, new, old, older = rows[0]["engine"], rows[0]["release"], rows[1]["release"], rows[3]["release"]
    recipe = store.query("SELECT min(recipe_name) AS name FROM histories")[0]["name"]
    node = store.query("SELECT min(node_id) AS name FROM histories")[0]["name"]
    questions = {
        "compare neighbours": Question(engine, old, new),
        "compare neighbours, one model": Question(engine, old, new, recipe=recipe),
        "compare far apart, one model on one node": Question(engine, older, new, recipe=recipe, node=node),
        "compare far apart, one node": Question(engine, older, new, node=node),
        "compare far apart": Question(engine, older, new),
    }
    timings: list[Timing] = []
    for name, question in questions.items():
        timings.append(_timed(name, lambda question=question: len(compare(store, question)), COMPARE_LIMIT_S))  # type: ignore[misc]
        say(f"{name}: {timings[-1].seconds * 1000:.0f} ms")
    return timings


def time_ingest(store: Store, boots: int) -> IngestResult:
    """Store `boots` boots of a new release into what is there, and about four times as many into an empty store."""
    batch_speed(store, 50, 20, cells=_CELLS, first=0)  # imports and pages in
    cells = max(1, boots // 80)
    with TemporaryDirectory(prefix="sparkproof-rebuild-") as folder:
        whole = {samples: rebuild_speed(Store(Path(folder) / str(samples)), cells, samples) for samples in (63, 20)}
    return IngestResult(
        rebuild_63=whole[63],
        rebuild_20=whole[20],
        night_63=batch_speed(store, boots, 63, cells=_CELLS, first=1_000_000),
        night_20=batch_speed(store, boots, 20, cells=_CELLS, first=1_100_000),
        commit_s=median(commit_seconds(store, 11, 63, cells=_CELLS, first=2_000_000)),
    )


def _timed(name: str, answer: Callable[[], int], limit_s: float) -> Timing:
    rows = answer()
    seconds: list[tuple[float, float]] = []
    for _ in range(REPEATS):
        started, busy = time.perf_counter(), time.process_time()
        answer()
        seconds.append((time.perf_counter() - started, time.process_time() - busy))
    wall, cpu = (median(column) for column in zip(*seconds, strict=True))
    return Timing(name, wall, cpu, rows, limit_s)
