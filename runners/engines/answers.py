"""Read what a server answered, and say exactly where it was not what it should be.

Trap: a null, a NaN or a renamed field becomes 0, an empty text or a KeyError far away. Rule: every read names its path into the JSON, a
wrong shape is an `AnswerError`, and NaN, infinities, null and vLLM's -9999 in a log-probability are findings (M17), never numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from runners.engines.base import AnswerError, HttpRequest, PromptScores

LEAST_LOGPROB = -9998.0
"""vLLM writes -9999.0 for minus infinity, because JSON has none: no finite logits give so small a log-probability."""
MOST_ID = 1 << 31
"""No vocabulary has so many tokens."""
_MOST_LOGPROB = 1e9
"""Far above any log-probability, which is 0 at most."""
_MAX_METRICS_CHARS = 16_000_000
_LOGPROB_FIELDS = frozenset(
    {"logprobs", "return_tokens_as_token_ids", "top_logprobs", "return_logprob", "top_logprobs_num", "logprob_start_len", "n_probs"}
)


def at(data: Any, *path: str | int) -> Any:
    """The value at `path`; raises AnswerError naming the first step that is missing."""
    here = data
    for i, step in enumerate(path):
        found = step < len(here) if isinstance(step, int) and isinstance(here, list) else isinstance(here, Mapping) and step in here
        if not found:
            where = ".".join(map(str, path[:i])) or "the answer"
            raise AnswerError(f"{where} has no {step!r}: {_shown(here)}")
        here = here[step]
    return here


def token_ids_at(data: Any, *path: str | int) -> tuple[int, ...]:
    """A list of token ids at `path`."""
    ids = at(data, *path)
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < MOST_ID for i in ids):
        raise AnswerError(f"{'.'.join(map(str, path))} is no list of token ids: {_shown(ids)}")
    return tuple(ids)


def text_at(data: Any, *path: str | int) -> str:
    """A text at `path`; null is an AnswerError, never an empty text (M6)."""
    text = at(data, *path)
    if not isinstance(text, str):
        raise AnswerError(f"{'.'.join(map(str, path))} is no text: {_shown(text)}")
    return text


def is_nonfinite(logprob: Any) -> bool:
    """True for a log-probability that no finite logits can give."""
    if isinstance(logprob, bool) or not isinstance(logprob, (int, float)):
        return True
    return not LEAST_LOGPROB < logprob < _MOST_LOGPROB  # false for NaN too


def listed(value: Any) -> list[Any]:
    """`value` if it is a list; raises AnswerError otherwise."""
    if not isinstance(value, list):
        raise AnswerError(f"a list was expected: {_shown(value)}")
    return value


@dataclass(frozen=True)
class AnswerLogprobs:
    """Margins, best ids and the first position without finite log-probabilities, as in `GreedyAnswer`."""

    margins: tuple[float | None, ...]
    top1_ids: tuple[int | None, ...]
    nonfinite: int | None


def no_logprobs(ids: Sequence[int]) -> AnswerLogprobs:
    """What is known when the server gave no log-probabilities: nothing."""
    return AnswerLogprobs((None,) * len(ids), (None,) * len(ids), None)


def read_logprobs(ids: Sequence[int], chosen: Sequence[Any], best: Sequence[Sequence[tuple[int, Any]]]) -> AnswerLogprobs:
    """From one log-probability per token and its best (id, log-probability) pairs; raises AnswerError if they are not one per token."""
    if not len(ids) == len(chosen) == len(best):
        raise AnswerError(f"{len(ids)} tokens, but {len(chosen)} log-probabilities and {len(best)} lists of the best")
    read = [margin_of(token, pairs) for token, pairs in zip(ids, best, strict=True)]
    bad = [i for i, value in enumerate(chosen) if is_nonfinite(value) or any(is_nonfinite(v) for _, v in best[i])]
    return AnswerLogprobs(tuple(margin for margin, _ in read), tuple(top1 for _, top1 in read), bad[0] if bad else None)


def prompt_scores(tokens: int, scored: Sequence[tuple[Any, bool | None]]) -> PromptScores:
    """From one (log-probability, is most likely) pair per token, the first of which has none; raises AnswerError for another number."""
    if len(scored) != tokens:
        raise AnswerError(f"{tokens} tokens were to be scored, the answer has {len(scored)}")
    bad = [i for i, (value, _) in enumerate(scored) if i > 0 and is_nonfinite(value)]
    unknown = {0, *bad}
    return PromptScores(
        logprobs=tuple(None if i in unknown else float(value) for i, (value, _) in enumerate(scored)),
        top1=tuple(None if i in unknown else top1 for i, (_, top1) in enumerate(scored)),
        nonfinite=bad[0] if bad else None,
    )


def margin_of(chosen: int, best: Sequence[tuple[int, Any]]) -> tuple[float | None, int | None]:
    """Gap between the two best log-probabilities (nats, 0.0 for an exact tie), and the best id.

    Of two tied ids the one that was not chosen is named, so that a reader can see what the tie could have given instead. None and None if
    fewer than two finite values are there.
    """
    ranked = sorted(((value, -token) for token, value in best if not is_nonfinite(value)), reverse=True)
    if len(ranked) < 2:
        return None, None
    (first, first_id), (second, second_id) = ranked[:2]
    if first == second:
        return 0.0, -second_id if -first_id == chosen else -first_id
    return first - second, -first_id


def without_logprobs(request: HttpRequest) -> HttpRequest:
    """The same request without log-probabilities: a server whose logits are NaN may refuse to serialise them (vLLM answers HTTP 400)."""
    body = {key: value for key, value in (request.body or {}).items() if key not in _LOGPROB_FIELDS}
    return HttpRequest(request.path, body)


def counter_total(metrics_text: str, name: str) -> int | None:
    """Sum over all labels of the Prometheus counter `name` (with or without `_total`); None if the page has no such sample.

    Raises AnswerError for a page that is no Prometheus text.
    """
    samples = {name, f"{name}_total"}
    lines = [line for line in metrics_text[:_MAX_METRICS_CHARS].split("\n") if line.startswith(tuple(samples))]
    try:
        found = [
            sample.value
            for family in text_string_to_metric_families("\n".join(lines) + "\n")
            for sample in family.samples
            if sample.name in samples
        ]
    except (ValueError, IndexError, KeyError) as error:
        raise AnswerError(f"the metrics page has a {name} line that is no Prometheus sample: {error!r:.200}") from error
    total = sum(found)
    return int(total) if found and math.isfinite(total) else None


def _shown(value: Any) -> str:
    text = repr(value)
    return text[:120] + ("..." if len(text) > 120 else "")
