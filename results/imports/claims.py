"""Numbers of other tools as claims: llama-benchy's and `vllm bench serve`'s JSON.

Trap: tg32 of one tool and decode_tok_s of another differ by 10 % on the same server, and a tool that was refused every request writes nulls
and exits 0. Rule: each number keeps its tool's own name and says how it was made; a file without one usable number is an error; a claim's
id is a digest of what it says, so that the same file is the same claims.

Formats: llama-benchy 0.4.0 (`--format json`), vLLM 0.27 to 0.32 (`vllm bench serve --save-result`).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from results.errors import FolderError
from results.kept_records import ClaimRecord
from results.redact import plain, redact

_MOST_BYTES = 200_000_000
_BENCHY_METRICS = {
    "pp_throughput": "pp_throughput_tok_s",
    "pp_req_throughput": "pp_req_throughput_tok_s",
    "tg_throughput": "tg_throughput_tok_s",
    "tg_req_throughput": "tg_req_throughput_tok_s",
    "peak_throughput": "peak_throughput_tok_s",
    "ttfr": "ttfr_ms",
    "est_ppt": "est_ppt_ms",
    "e2e_ttft": "e2e_ttft_ms",
}
_VLLM_METRICS = {
    "output_throughput": "output_throughput_tok_s",
    "total_token_throughput": "total_token_throughput_tok_s",
    "request_throughput": "request_throughput_per_s",
    **{f"{kind}_{name}_ms": f"{kind}_{name}_ms" for kind in ("mean", "median", "p99") for name in ("ttft", "tpot", "itl", "e2el")},
}


@dataclass(frozen=True)
class ClaimedCell:
    """What the person who imports says the numbers belong to; None: not said."""

    source: str
    engine: str | None = None
    engine_version: str | None = None
    recipe_name: str | None = None
    backend_name: str | None = None
    node: str | None = None


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _BenchyMetric(_Lenient):
    mean: float
    std: float | None = None
    values: list[float] = Field(default_factory=list)


class _BenchyRun(_Lenient):
    concurrency: int
    context_size: int
    prompt_size: int
    response_size: int
    is_context_prefill_phase: bool = False
    pp_throughput: _BenchyMetric | None = None
    pp_req_throughput: _BenchyMetric | None = None
    tg_throughput: _BenchyMetric | None = None
    tg_req_throughput: _BenchyMetric | None = None
    peak_throughput: _BenchyMetric | None = None
    ttfr: _BenchyMetric | None = None
    est_ppt: _BenchyMetric | None = None
    e2e_ttft: _BenchyMetric | None = None


class _BenchyReport(_Lenient):
    version: str | None = None
    timestamp: str | None = None
    model: str | None = None
    benchmarks: list[_BenchyRun]


class _VllmReport(_Lenient):
    model_config = ConfigDict(extra="allow")

    date: str | None = None
    model_id: str
    num_prompts: int
    completed: int
    duration: float
    max_concurrency: int | None = None
    request_rate: float | str | None = None


_ANY: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def claims_of(path: Path, cell: ClaimedCell) -> list[ClaimRecord]:
    """The claims in a file. Raises FolderError for a file that is neither tool's or holds no usable number."""
    data = _read(path)
    try:
        if "benchmarks" in data:
            claims = _of_benchy(_BenchyReport.model_validate(data), cell)
        elif "model_id" in data and "duration" in data:
            claims = _of_vllm(_VllmReport.model_validate(data), cell)
        else:
            raise FolderError("neither llama-benchy's nor vllm bench serve's JSON", where=str(path), todo=_KNOWN)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise FolderError(f"damaged: {first['msg']} at {where}", where=str(path), todo=_KNOWN) from error
    if not claims:
        raise FolderError(
            "holds no usable number: every request failed", where=str(path), todo="Run that benchmark again and read its errors."
        )
    return claims


_KNOWN = "Give the file of `llama-benchy --format json` or `vllm bench serve --save-result`."


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise FolderError(f"larger than {_MOST_BYTES:,} bytes", where=str(path))
        return _ANY.validate_json(path.read_bytes())
    except OSError as error:
        raise FolderError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        raise FolderError("is no JSON object", where=str(path), todo=_KNOWN) from error


def _of_benchy(report: _BenchyReport, cell: ClaimedCell) -> list[ClaimRecord]:
    claims: list[ClaimRecord] = []
    for run in report.benchmarks:
        phase = " context prefill phase," if run.is_context_prefill_phase else ""
        shape = f"pp{run.prompt_size} tg{run.response_size} at depth {run.context_size},{phase}"
        for name, metric in _BENCHY_METRICS.items():
            found: _BenchyMetric | None = getattr(run, name)
            if found is None or not math.isfinite(found.mean):
                continue
            spread = f", std {found.std:g}" if found.std is not None and math.isfinite(found.std) else ""
            note = f"{shape} mean of {len(found.values) or '?'}{spread}; the tool's own formula"
            tool = f"llama-benchy {report.version or ''}".strip()
            claims.append(_claim(cell, tool, metric, found.mean, report.model, run.concurrency, report.timestamp, note))
    return claims


def _of_vllm(report: _VllmReport, cell: ClaimedCell) -> list[ClaimRecord]:
    if report.completed <= 0:
        return []
    claims: list[ClaimRecord] = []
    note = f"{report.completed} of {report.num_prompts} requests, rate {report.request_rate}; the tool's own formula"
    for name, metric in _VLLM_METRICS.items():
        value = (report.model_extra or {}).get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            claims.append(
                _claim(cell, "vllm bench serve", metric, float(value), report.model_id, report.max_concurrency, report.date, note)
            )
    return claims


def _claim(
    cell: ClaimedCell, tool: str, metric: str, value: float, model: str | None, concurrency: int | None, at: str | None, note: str
) -> ClaimRecord:
    said = (cell, tool, metric, value, model, concurrency, at, note)
    return ClaimRecord(
        claim_id=hashlib.sha256(repr(said).encode("utf-8", "replace")).hexdigest()[:16],
        source=cell.source,
        tool=_text(tool) or tool,
        metric=metric,
        value=value,
        engine=cell.engine,
        engine_version=cell.engine_version,
        recipe_name=cell.recipe_name,
        model=_text(model),
        backend_name=cell.backend_name,
        node=cell.node,
        concurrency=concurrency,
        claimed_at=_text(at),
        note=_text(note),
    )


def _text(text: str | None) -> str | None:
    return None if text is None else plain(redact(text), 300)
