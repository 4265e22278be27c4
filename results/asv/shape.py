"""Boots as asv result files.

Traps: with versions as a parameter instead of commits `regressions.json` is empty by construction; a result whose benchmark version differs
is dropped silently; a driver update becomes the regression of a release. Rules: one commit per release, one file per release and series;
benchmark versions are pinned; a series is backend, model, node *and node state*, protocol and recipe revision.

asv 0.6.6: a value is a number, null means failed, NaN not available. `stats_ci_99_*` are left out: weights made of the scatter within a
boot lost a clear step of 7 %. Everything here is pure.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from packaging.version import Version

from results.verdict.outcomes import state_of
from results.verdict.words import CellState
from results.vocabulary import Outcome

TIME_PER_TOKEN, INCOHERENT, FAILED = "track_time_per_token", "track_incoherent", "track_failed"
LAUNCH_TIME = "track_launch_bound_time_per_token"
_BENCHMARK_VERSION = "1"
_RESULTS_VERSION, _BENCHMARKS_VERSION, _MACHINE_VERSION, _CONFIG_VERSION = 2, 2, 1, 1
_TIMES = (TIME_PER_TOKEN, LAUNCH_TIME)
_GATE = frozenset({Outcome.INCOHERENT, Outcome.WRONG})
_BROKEN = frozenset({Outcome.CRASH, Outcome.HANG, Outcome.OOM, Outcome.FALLBACK})
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_IN_REFS = re.compile(r"[^a-z0-9-]+")
_LONGEST_FACET = 80


@dataclass(frozen=True)
class Release:
    """One commit: `date` is the publication date, or where that is not known the first boot's; dates rise with the versions."""

    engine: str
    version: str
    date: datetime
    published: bool

    @property
    def tag(self) -> str:
        """`vllm-0.32.0`."""
        return f"{self.engine}-{self.version}"


@dataclass(frozen=True)
class Series:
    """What one line of a chart is drawn over: all of it equal, only the release differs."""

    engine: str
    machine: str
    model: str
    backend: str
    distribution: str
    node_state: str
    protocol: str

    @property
    def environment(self) -> str:
        """Name of the series in file names: readable, with a digest because names from outside may collide when cleaned."""
        digest = hashlib.sha256(json.dumps(vars(self), sort_keys=True).encode()).hexdigest()[:8]
        return f"{_NOT_IN_NAMES.sub('-', f'{self.model}-{self.backend}')[:80]}-{digest}"

    def params(self) -> dict[str, str]:
        """Facets of the page. The engine is the branch."""
        names = ("machine", "model", "backend", "distribution", "node_state", "protocol")
        return {name: str(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class ReleaseResult:
    """One release of one series: what goes into one result file."""

    series: Series
    release: str
    seconds_per_token: Mapping[str, float | None]
    """By workload; None: the cell fails on this release. Missing: not measured."""
    launch_bound: bool
    """A canary's: launch overhead, a benchmark of its own that never counts as a regression."""
    incoherent: int | None
    failed: int | None
    """1, 0, or None where nothing was found out (unsupported)."""
    started_at: datetime


@dataclass(frozen=True)
class AsvHistory:
    """Everything to export: releases oldest first within each engine, and their results."""

    releases: tuple[Release, ...]
    results: tuple[ReleaseResult, ...]
    machines: Mapping[str, Mapping[str, Any]]
    workloads: tuple[str, ...]

    @property
    def engines(self) -> tuple[str, ...]:
        """Branches."""
        return tuple(sorted({release.engine for release in self.releases}))


def history_of(
    boots: Sequence[Mapping[str, Any]],
    medians: Sequence[Mapping[str, Any]],
    published: Mapping[tuple[str, str], datetime] | None = None,
) -> AsvHistory:
    """The history from evidence boots (rows of the view `boots` with a release) and their medians (rows of `boot_medians`).

    `published`: publication dates by engine and release, as far as they are known.
    """
    by_run: dict[str, list[Mapping[str, Any]]] = {}
    for row in medians:
        by_run.setdefault(row["run_id"], []).append(row)
    names = _model_names(boots)
    grouped: dict[tuple[Series, str], list[Mapping[str, Any]]] = {}
    for boot in boots:
        grouped.setdefault((_series(boot, names), boot["release"]), []).append(boot)
    timed: dict[Series, dict[str, bool]] = {}
    for (series, _), group in grouped.items():
        rows = [row for boot in group for row in by_run.get(boot["run_id"], ())]
        timed.setdefault(series, {}).update({row["workload"]: bool(row["launch_bound"]) for row in rows})
    results = [
        result
        for (series, release), group in grouped.items()
        if (result := _result(series, release, group, by_run, timed[series])) is not None
    ]
    machines = {_machine_name(boot): _machine(boot) for boot in boots}
    workloads = sorted({workload for result in results for workload in result.seconds_per_token})
    ordered = sorted(results, key=lambda r: (r.series.engine, Version(r.release), r.series.environment, r.series.machine))
    return AsvHistory(_releases(boots, published or {}), tuple(ordered), machines, tuple(workloads))


def result_file(result: ReleaseResult, commit: str, date: datetime, workloads: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Path below the results folder and content of one result file (asv results version 2)."""
    tokens = [result.seconds_per_token.get(workload, math.nan) for workload in workloads]
    started = _milliseconds(result.started_at)
    rows: dict[str, list[Any]] = {INCOHERENT: [[_or_nan(result.incoherent)], [], _BENCHMARK_VERSION, started]}
    rows[FAILED] = [[_or_nan(result.failed)], [], _BENCHMARK_VERSION, started]
    if workloads:
        name = LAUNCH_TIME if result.launch_bound else TIME_PER_TOKEN
        rows[name] = [tokens, _parameters(workloads), _BENCHMARK_VERSION, started]
    content = {
        "version": _RESULTS_VERSION,
        "commit_hash": commit,
        "date": _milliseconds(date),
        "env_name": result.series.environment,
        "env_vars": {},
        "params": result.series.params(),
        "python": "",
        "requirements": {},
        "result_columns": ["result", "params", "version", "started_at"],
        "results": rows,
        "durations": {},
    }
    return f"{result.series.machine}/{commit[:8]}-{result.series.environment}.json", content


def benchmarks_file(workloads: Sequence[str]) -> dict[str, Any]:
    """`benchmarks.json`. `less_is_better` is said explicitly: the page takes a tracked number for a throughput otherwise."""
    texts = {
        TIME_PER_TOKEN: ("seconds", "Seconds per token: median over boots of the median in a boot (all streams of a batch together)."),
        LAUNCH_TIME: ("seconds", "The same of a canary: launch overhead, no model's speed, and no regression of one."),
        INCOHERENT: ("incoherent", "1: the gate found the output incoherent or wrong, in one boot or more."),
        FAILED: ("failed", "1: crash, hang, out of memory, or not the kernel asked for, in one boot or more."),
    }
    shown = {name: text for name, text in texts.items() if workloads or name not in _TIMES}
    entries = {
        name: {
            "name": name,
            "pretty_name": name,
            "code": text,
            "type": "track",
            "unit": unit,
            "version": _BENCHMARK_VERSION,
            "less_is_better": True,
            "param_names": ["workload"] if name in _TIMES else [],
            "params": _parameters(workloads) if name in _TIMES else [],
            "timeout": 3600,
        }
        for name, (unit, text) in shown.items()
    }
    return {"version": _BENCHMARKS_VERSION, **entries}


def machine_file(node_id: str, machine: Mapping[str, Any]) -> dict[str, Any]:
    """`machine.json` of one node."""
    return {"version": _MACHINE_VERSION, "machine": node_id, **machine}


def config_file(engines: Sequence[str]) -> dict[str, Any]:
    """`asv.conf.json` of the export: a change of any size in a 0/1 is news, one of 3 % in a time (the floor of decode)."""
    return {
        "version": _CONFIG_VERSION,
        "project": "sparkproof",
        "project_url": "",
        "show_commit_url": "",
        "repo": "releases",
        "dvcs": "git",
        "branches": list(engines),
        "environment_type": "existing",
        "results_dir": "results",
        "html_dir": "html",
        "regressions_thresholds": {f"^{INCOHERENT}": 0, f"^{FAILED}": 0, f"^{TIME_PER_TOKEN}": 0.03},
        "regressions_first_commits": {f"^{LAUNCH_TIME}": None},
    }


def run_config_file(engines: Sequence[str], benchmark_dir: str) -> dict[str, Any]:
    """`run.conf.json`: for `asv run`, which makes boots of its own; its results lie apart, because asv rewrites `benchmarks.json`."""
    return {
        **config_file(engines),
        "benchmark_dir": benchmark_dir,
        "env_dir": "run/env",
        "results_dir": "run/results",
        "html_dir": "run/html",
        "regressions_thresholds": {f".*{INCOHERENT}": 0, f".*{TIME_PER_TOKEN}": 0.03},
    }


def _series(boot: Mapping[str, Any], names: Mapping[tuple[str, str | None], str]) -> Series:
    return Series(
        engine=_engine(boot),
        machine=_machine_name(boot),
        model=names[boot["recipe_name"], boot["recipe_id"]],
        backend=boot["backend_name"],
        distribution=boot["distribution"],
        node_state=_state_name(boot),
        protocol=str(boot["protocol_version"]),
    )


def _model_names(boots: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str | None], str]:
    """A recipe whose definition changed is several models: each is then named with its id."""
    ids: dict[str, set[str | None]] = {}
    for boot in boots:
        ids.setdefault(boot["recipe_name"], set()).add(boot["recipe_id"])
    return {
        (name, recipe_id): name if len(known) == 1 else f"{name} {(recipe_id or 'unknown')[:6]}"
        for name, known in ids.items()
        for recipe_id in known
    }


def _state_name(boot: Mapping[str, Any]) -> str:
    fields = {"driver": "driver_version", "kernel": "kernel_version", "firmware": "firmware", "clock cap": "sm_clock_cap_mhz"}
    told = ", ".join(f"{name} {boot[column]}" for name, column in fields.items() if boot.get(column) is not None) or "unknown"
    if len(told) <= _LONGEST_FACET:
        return told
    return f"{told[:_LONGEST_FACET]}… {hashlib.sha256(told.encode()).hexdigest()[:6]}"  # a facet becomes the name of a folder


def _engine(boot: Mapping[str, Any]) -> str:
    """The engine as the name of a branch."""
    return _NOT_IN_REFS.sub("-", boot["engine"].lower()).strip("-") or "engine"


def _machine_name(boot: Mapping[str, Any]) -> str:
    """The node as the name of a folder; ids come from other people's stores, too."""
    return _NOT_IN_NAMES.sub("-", boot["node_id"]).strip(".-")[:64] or "node"


def _result(
    series: Series,
    release: str,
    boots: Sequence[Mapping[str, Any]],
    medians: Mapping[str, Sequence[Mapping[str, Any]]],
    workloads: Mapping[str, bool],
) -> ReleaseResult | None:
    """None without evidence: a boot that the node spoilt is no point in a chart.

    `workloads`: all that this series was ever timed with, and whether launch-bound.
    """
    outcomes = [Outcome(boot["counted_as"]) for boot in boots]
    state = state_of(outcomes)
    if state is CellState.NOT_RUN:
        return None
    seconds: dict[str, float | None] = {}
    if state is Outcome.PASS:
        rates = _rates([row for boot in boots if boot["counted_as"] == Outcome.PASS for row in medians.get(boot["run_id"], ())])
        seconds = {workload: 1 / median(values) for workload, values in rates.items()}
    elif state is not Outcome.UNSUPPORTED:
        seconds = dict.fromkeys(workloads)
    evidence = None if state is Outcome.UNSUPPORTED else set(outcomes)
    return ReleaseResult(
        series,
        release,
        seconds,
        launch_bound=any(workloads.values()),
        incoherent=None if evidence is None else int(bool(evidence & _GATE)),
        failed=None if evidence is None else int(bool(evidence & _BROKEN)),
        started_at=min(boot["started_at"] for boot in boots),
    )


def _rates(medians: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Tokens per second of each boot by workload: of all streams together where there are several."""
    rates: dict[str, list[float]] = {}
    for row in medians:
        rate = row["aggregate_tok_s"] if row["concurrency"] > 1 else row["decode_tok_s"]
        if rate is not None and 0 < rate < math.inf:
            rates.setdefault(row["workload"], []).append(rate)
    return rates


def _releases(boots: Sequence[Mapping[str, Any]], published: Mapping[tuple[str, str], datetime]) -> tuple[Release, ...]:
    first: dict[tuple[str, str], datetime] = {}
    for boot in boots:
        key = (_engine(boot), boot["release"])
        first[key] = min(first.get(key, boot["started_at"]), boot["started_at"])
    releases: list[Release] = []
    for engine, version in sorted(first, key=lambda key: (key[0], Version(key[1]))):
        key = (engine, version)
        date = published.get(key, first[key]).replace(microsecond=0)
        if releases and releases[-1].engine == engine:
            date = max(date, releases[-1].date + timedelta(seconds=1))  # a repair release may be published after its successor
        releases.append(Release(engine, version, date, key in published))
    return tuple(releases)


def _machine(boot: Mapping[str, Any]) -> dict[str, Any]:
    memory = boot.get("memory_total_bytes")
    return {
        "os": str(boot.get("kernel_version") or ""),
        "arch": str(boot.get("compute_capability") or ""),
        "cpu": str(boot.get("gpu_name") or ""),
        "num_cpu": "",
        "ram": str(memory) if memory is not None else "",
    }


def _parameters(workloads: Sequence[str]) -> list[list[str]]:
    """Parameter values as asv keeps them: their `repr`."""
    return [[repr(workload) for workload in workloads]]


def _or_nan(value: int | None) -> float:
    return math.nan if value is None else value


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
