"""A fixed text's scores against the shipped reference of a canary with routed experts."""

from __future__ import annotations

import pytest

from runners.coherence.passages import PassageJudge, Text
from runners.coherence.reference_file import read_reference
from runners.engines.base import PromptScores
from runners.model_references import SHIPPED

_PATH = "any / none / auto"
_KNOWN = read_reference(SHIPPED / "canary-moe.json").known_good()


def _judged(name: str, moved: dict[int, float]) -> list[str | None]:
    logprobs = [value if value is None else value - moved.get(at, 0.0) for at, value in enumerate(_KNOWN.passages[_PATH][name].logprobs)]
    scored = PromptScores(tuple(logprobs), tuple(None for _ in logprobs))
    judged = PassageJudge("run", _KNOWN, _PATH).judge(Text(name, _KNOWN.texts[name]), scored)
    return [score.verdict for score in judged.scores if score.metric.startswith("nll_drift")]


def test_a_token_that_rounding_gives_to_another_expert_is_no_fault() -> None:
    # SGLang 0.5.23, an earlier canary-moe, CPU: every answer right, one token of this text 3.628 nats off, its router's gap 0.005 logits
    on_edge = min(_KNOWN.passages[_PATH]["s25.0"].on_edge)
    assert _judged("s25.0", {on_edge: 3.628}) == ["ok", "ok"]


@pytest.mark.parametrize("name", sorted(_KNOWN.texts))
def test_most_tokens_of_each_text_are_compared_and_one_that_moves_is_seen(name: str) -> None:
    passage = _KNOWN.passages[_PATH][name]
    compared = [at for at in range(1, len(passage.logprobs)) if at not in passage.on_edge]
    assert len(compared) > len(passage.logprobs) / 2
    assert _judged(name, {}) == ["ok", "ok"]
    assert "drift" in _judged(name, {compared[0]: 5 * passage.floor_max + 1})
