"""Does the engine repeat itself?

Trap: "temperature 0 is deterministic" is believed, and a flip is then taken for a regression; or flips are never counted, and a race in a
kernel passes as rounding. Rule: the same prompt is asked N times alone and N times in one batch; the share of answers that differ from the
most common one is stored. A flip of a real model is a fact, not a fault: only the known set decides that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from results.records import ScoreRecord
from runners.coherence.judging import Judged

REPEAT_ALONE, REPEAT_TOGETHER = "repeat_1", "repeat_8"
REPEATS = {REPEAT_ALONE: 4, REPEAT_TOGETHER: 8}
CONCURRENCY = {REPEAT_ALONE: 1, REPEAT_TOGETHER: 8}


def flip_rates(run_id: str, judged: Sequence[Judged]) -> list[ScoreRecord]:
    """One `flip_rate` per repeat step and prompt: 1 - count of the most common answer / answers."""
    groups: dict[tuple[str, str], list[tuple[object, ...]]] = {}
    for answer in judged:
        if answer.record.step in REPEATS:
            key = (answer.record.step, answer.record.prompt_name)
            groups.setdefault(key, []).append(answer.record.token_ids or (answer.record.text,))
    return [_score(run_id, step, prompt, answers) for (step, prompt), answers in groups.items()]


def _score(run_id: str, step: str, prompt: str, answers: Sequence[tuple[object, ...]]) -> ScoreRecord:
    counted = Counter(answers)
    common = counted.most_common(1)[0][1]
    rate = 1 - common / len(answers)
    reason = f"{len(counted)} different answers to {len(answers)} equal prompts, {CONCURRENCY[step]} at once; {common} are the same."
    return ScoreRecord(
        run_id, step, "flip_rate", prompt, rate, tokens=sum(map(len, answers)), verdict="stable" if rate == 0 else "flips", reason=reason
    )
