"""Builders of boots for the verdict tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count

from results.verdict.facts import BootFact, CellHistory, NodeState, SeriesKey
from results.vocabulary import Outcome

SERIES = SeriesKey("vllm", "qwen3-8b-nvfp4", "marlin", "spark-a")
DECODE = "chat/decode_tok_s"
TTFT = "chat/ttft_s"
STATE = NodeState("580.95", "6.14.0", "1.2.3", 2400, 1, "abc123", "p1")
_START = datetime(2026, 11, 1, tzinfo=UTC)


class Node:
    """Makes boots one after the other, ten minutes each, in sessions that the test names."""

    def __init__(self) -> None:
        self._number = count()

    def boot(
        self,
        release: str,
        outcome: Outcome = Outcome.PASS,
        *,
        session: str = "s",
        state: NodeState = STATE,
        flags: Sequence[str] = (),
        **metrics: float,
    ) -> BootFact:
        number = next(self._number)
        start = _START + timedelta(minutes=10 * number)
        return BootFact(
            run_id=f"run-{number:04d}",
            release=release,
            outcome=outcome,
            node_id=SERIES.node_id,
            session_id=session,
            started_at=start.isoformat(),
            finished_at=(start + timedelta(minutes=9)).isoformat(),
            metrics={f"chat/{name}": value for name, value in metrics.items()},
            node_state=state,
            flags=frozenset(flags),
        )

    def speeds(self, release: str, values: Sequence[float], *, session: str, state: NodeState = STATE) -> list[BootFact]:
        return [self.boot(release, session=session, state=state, decode_tok_s=value) for value in values]

    def in_turns(
        self, old: str, new: str, speeds: Sequence[tuple[float, float]], *, session: str, state: NodeState = STATE
    ) -> list[BootFact]:
        """An interleaved re-run: old, new, old, new, ..."""
        return [
            self.boot(release, session=session, state=state, decode_tok_s=value)
            for pair in speeds
            for release, value in zip((old, new), pair, strict=True)
        ]


def scatter(level: float, boots: int, seed: int, spread: float = 0.004) -> list[float]:
    """Speeds around `level` with this relative standard deviation."""
    chance = random.Random(seed)
    return [level * (1 + chance.gauss(0, spread)) for _ in range(boots)]


def pairs(old: float, new: float, boots: int, seed: int) -> list[tuple[float, float]]:
    return list(zip(scatter(old, boots, seed), scatter(new, boots, seed + 1), strict=True))


def history(*boots: Sequence[BootFact], known: Sequence[str] = ()) -> CellHistory:
    return CellHistory(SERIES, [boot for part in boots for boot in part], known)
