"""From collected answers to the table: what each judge of the gate says of each case, and at which token it would first have known.

A case is judged by the very gate that judges a boot; per judge it is then asked whether that judge alone would have been enough.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gate.cases import MAX_MODEL_LEN, Case
from benchmarks.gate.collect import answers_file
from results.records import CoherenceRecord, ScoreRecord
from runners.coherence.drift import DRIFT
from runners.coherence.gate import GateFailure, GateResult, GateTarget
from runners.coherence.judging import RIGHT
from runners.coherence.known_good import KnownGood
from runners.coherence.numeric_path import candidate_paths, path_name, references_of
from runners.engines.base import HttpRequest
from runners.engines.vllm import VllmAdapter
from runners.model_references import known_good_for
from runners.models import materialise
from runners.sweep.jobs import Playback, judge_answers
from runners.sweep.session import recipe_of
from suites.canaries import zoo

JUDGES = ("nonfinite", "structure", "tokens", "bos_prompts", "chat", "margin_drift", "passages")
"""Groups of judges, from the crudest on. `tokens` are golden ids of ordinary prompts, `bos_prompts` those of prompts that begin wrongly."""
NOT_LOADED = "not loaded"
"""Outcome of a case that the engine refused to load: neither caught nor missed, because the gate never saw it."""


@dataclass(frozen=True)
class Pass:
    """One pass of one case. `caught` is what the gate says; `by` maps each judge that saw something to its first token (None: no token)."""

    case: Case
    number: int
    outcome: str
    reason: str
    by: dict[str, int | None]
    wrong: int
    judged: int
    drift_rms: float | None
    drift_rms_tolerated: float | None
    drift_max: float | None
    drift_max_tolerated: float | None
    nll_mean: float | None
    first_wrong: str | None
    texts: dict[str, str]

    @property
    def caught(self) -> bool:
        """Whether the gate would have ended the boot."""
        return self.outcome not in ("pass", NOT_LOADED)


def passes_of(case: Case, folder: Path) -> Iterator[Pass]:
    """Every pass of a case that was collected; none if it was not."""
    path = answers_file(folder, case)
    if not path.exists():
        return
    with gzip.open(path, "rt") as lines:
        events = [json.loads(line) for line in lines]
    failed = next((e for e in events if e["event"] == "failed"), None)
    if failed is not None:
        yield _not_loaded(case, failed["error"])
        return
    requests = _requests(folder, case)
    for number in sorted({e["wave"] for e in events if e["event"] == "answer"}):
        answers = [
            (requests[number][e["request"]], e["status"], e["answer"]) for e in events if e["event"] == "answer" and e["wave"] == number
        ]
        yield _judged(case, number, answers)


def _requests(folder: Path, case: Case) -> list[list[HttpRequest]]:
    waves = json.loads((folder / "asked" / f"{case.name}.json").read_text())
    return [[HttpRequest(r["path"], r["body"]) for r in wave] for wave in waves]


@lru_cache(maxsize=32)
def _known_good_of(canary: str, weight_format: str) -> KnownGood | None:
    """What ships with Sparkproof for the sound checkpoint: a fault has no reference of its own."""
    with TemporaryDirectory() as scratch:
        recipe = recipe_of(canary, weight_format)
        return known_good_for(recipe, materialise(recipe, Path(scratch), lambda line: None), Path(scratch))


def _known_good(case: Case) -> KnownGood | None:
    return _known_good_of(case.canary, case.weight_format)


def _target(case: Case) -> GateTarget:
    kernels = {"kv_cache_dtype": "auto", "linear": "torch"}
    paths = candidate_paths(case.weight_format, kernels)
    return GateTarget(
        run_id=case.name,
        base_url="",
        model="canary",
        canary=zoo.load(case.canary),
        paths=references_of(case.canary, paths),
        path=path_name(paths[0]) if len(paths) == 1 else None,
        known_good=_known_good(case),
        context=MAX_MODEL_LEN,
    )


def _judged(case: Case, number: int, answers: list[tuple[HttpRequest, int, Any]]) -> Pass:
    result = judge_answers(_target(case), VllmAdapter(), Playback(answers, why_it_ends="not collected", distinct=True))
    if isinstance(result, GateFailure):
        return Pass(case, number, "no answer", result.reason, {}, 0, 0, None, None, None, None, None, None, {})
    return _pass_of(case, number, result)


def _pass_of(case: Case, number: int, result: GateResult) -> Pass:
    wrong = [r for r in result.records if r.verdict not in RIGHT]
    rms, most = _score(result.scores, "margin_drift_rms"), _score(result.scores, "margin_drift_max")
    values = [s.value for s in result.scores if s.metric == "nll_mean" and s.value is not None]
    return Pass(
        case=case,
        number=number,
        outcome=str(result.outcome) if result.outcome is not None else "pass",
        reason=result.reason,
        by=_by(wrong, result.scores),
        wrong=len(wrong),
        judged=len(result.records),
        drift_rms=rms.value if rms else None,
        drift_rms_tolerated=rms.threshold if rms else None,
        drift_max=most.value if most else None,
        drift_max_tolerated=most.threshold if most else None,
        nll_mean=sum(values) / len(values) if values else None,
        first_wrong=f"{wrong[0].step}/{wrong[0].prompt_name}@{wrong[0].first_divergence}" if wrong else None,
        texts={r.prompt_name: r.text for r in reversed(result.records) if r.carried_by == "output_ids"},
    )


def _score(scores: tuple[ScoreRecord, ...], metric: str) -> ScoreRecord | None:
    return next((s for s in scores if s.metric == metric), None)


def _by(wrong: list[CoherenceRecord], scores: tuple[ScoreRecord, ...]) -> dict[str, int | None]:
    groups: dict[str, list[int | None]] = {}
    for record in wrong:
        groups.setdefault(_group(record), []).append(record.first_divergence)
    for score in scores:
        if score.verdict in (DRIFT, "nonfinite"):
            group = "margin_drift" if score.metric.startswith("margin") else "passages"
            groups.setdefault("nonfinite" if score.verdict == "nonfinite" else group, []).append(None)
    return {name: min((p for p in places if p is not None), default=None) for name, places in groups.items()}


def _group(record: CoherenceRecord) -> str:
    if record.judge == "logprobs":
        return "nonfinite"
    if record.judge == "structural":
        return "structure"
    if record.carried_by != "output_ids":
        return "chat"
    return "bos_prompts" if record.prompt_name.startswith(("nobos", "twobos")) else "tokens"


def _not_loaded(case: Case, error: str) -> Pass:
    return Pass(case, 0, NOT_LOADED, error[:300], {}, 0, 0, None, None, None, None, None, None, {})
