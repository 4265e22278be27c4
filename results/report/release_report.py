"""What one release did to every cell: the rows that all formats show.

Trap: the Markdown for the web page and the JUnit file for CI disagree, or a cell without evidence vanishes from one of them. Rule: one
structure, made once from stored verdicts; a format only renders it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from results.queries.query import query
from results.store import Store
from results.verdict.releases import order_releases
from results.verdict.words import Verdict

_QUIET = ("unchanged", "new")


@dataclass(frozen=True)
class NumberLine:
    """One number with news: changed, suspected or not comparable. `effect` is relative to the baseline."""

    series: str
    verdict: str
    reason: str
    median: float
    baseline: str | None
    effect: float | None
    p: float | None
    boots: tuple[int, int]
    moved: bool


@dataclass(frozen=True)
class CellLine:
    """One cell on the release. `verdict` is the one word for it; None: no evidence."""

    distribution: str
    recipe: str
    quantization: str | None
    backend: str
    node: str
    state: str
    verdict: str | None
    alarm: bool
    confirmed: bool
    boots: int
    reason: str
    differs: tuple[str, ...]
    decode_tok_s: float | None
    decode_tok_s_low: float | None
    decode_tok_s_high: float | None
    decode_change: float | None
    aggregate_tok_s: float | None
    ttft_s: float | None
    launch_bound: bool
    last_good: str | None
    run_id: str | None
    numbers: tuple[NumberLine, ...]

    @property
    def failed(self) -> bool:
        """Ended otherwise than `pass`, `unsupported` or without evidence."""
        return self.state not in ("pass", "not_run", "unsupported")

    @property
    def skipped(self) -> bool:
        """Nothing was found out about this cell here."""
        return self.state in ("not_run", "unsupported")


@dataclass(frozen=True)
class ReleaseReport:
    """All cells of one release of one engine, the broken ones first."""

    engine: str
    release: str
    cells: tuple[CellLine, ...]
    left_out: tuple[str, ...]
    """Versions with boots that are no releases (fork and development builds): counted, never ordered among them."""

    def as_json(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)


def release_reports(store: Store, engine: str | None = None, version: str | None = None) -> list[ReleaseReport]:
    """The report on `version` (None: the newest release with boots) of each engine. Raises StoreError."""
    reports: list[ReleaseReport] = []
    for row in _asked(store, engine, version):
        cells = query(_CELLS, engine=row["engine"], release=row["release"]).rows(store)
        numbers = query(_NUMBERS, engine=row["engine"], release=row["release"]).rows(store)
        left_out = [one["version"] for one in query(_NOT_RELEASES, engine=row["engine"]).rows(store)]
        reports.append(report_of(row["engine"], row["release"], cells, numbers, left_out))
    return reports


def _asked(store: Store, engine: str | None, version: str | None) -> list[dict[str, Any]]:
    known = query(_KNOWN, engine=engine).rows(store)
    if version is None:
        return [row for row in known if row["is_newest"]]
    spelled = order_releases([version, *(row["release"] for row in known)]).name_of
    return [row for row in known if row["release"] == version or spelled[row["release"]] == spelled.get(version)]


def known_releases(store: Store, engine: str | None = None) -> list[str]:
    """Engine and release of everything that there could be a report on, newest first."""
    return [f"{row['engine']} {row['release']}" for row in query(_KNOWN, engine=engine).rows(store)]


def report_of(
    engine: str, release: str, cells: Sequence[Mapping[str, Any]], numbers: Sequence[Mapping[str, Any]], left_out: Sequence[str] = ()
) -> ReleaseReport:
    """The report from rows of the views `matrix` and `numbers`."""
    by_history: dict[str, list[NumberLine]] = {}
    for row in numbers:
        if row["verdict"] not in _QUIET:
            by_history.setdefault(row["history_id"], []).append(_number(row))
    lines = [_cell(row, tuple(by_history.get(row["history_id"], ()))) for row in cells]
    ordered = sorted(lines, key=lambda line: (_rank(line), line.recipe, line.backend, line.node, line.distribution))
    return ReleaseReport(engine, release, tuple(ordered), tuple(left_out))


def _rank(line: CellLine) -> int:
    if line.failed or line.alarm:
        return 0
    return 1 if line.verdict not in (Verdict.UNCHANGED, Verdict.NEW) else 2


def _number(row: Mapping[str, Any]) -> NumberLine:
    return NumberLine(
        series=row["series"],
        verdict=row["verdict"],
        reason=row["reason"],
        median=row["median"],
        baseline=row["baseline"],
        effect=row["effect"],
        p=row["p"],
        boots=(row["n_baseline"], row["n_candidate"]),
        moved=row["moved"],
    )


def _cell(row: Mapping[str, Any], numbers: tuple[NumberLine, ...]) -> CellLine:
    return CellLine(
        distribution=row["distribution"],
        recipe=row["recipe_name"],
        quantization=row["quantization"],
        backend=row["backend_name"],
        node=row["node_label"] or row["node_id"],
        state=row["state"],
        verdict=row["headline"],
        alarm=bool(row["alarm"]),
        confirmed=bool(row["confirmed"]),
        boots=int(row["boots"]),
        reason=row["reason"],
        differs=tuple(row["differs"] or ()),
        decode_tok_s=row["decode_tok_s"],
        decode_tok_s_low=row["decode_tok_s_low"],
        decode_tok_s_high=row["decode_tok_s_high"],
        decode_change=row["decode_change"],
        aggregate_tok_s=row["aggregate_tok_s"],
        ttft_s=row["ttft_s"],
        launch_bound=bool(row["launch_bound"]),
        last_good=row["last_good"],
        run_id=row["last_run_id"],
        numbers=numbers,
    )


_KNOWN = """
SELECT engine, release, any_value(position) AS position, position = max(position) OVER (PARTITION BY engine) AS is_newest
FROM matrix WHERE ($engine IS NULL OR engine = $engine) AND boots > 0 AND position IS NOT NULL
GROUP BY engine, release, position ORDER BY engine, position DESC
"""
_CELLS = "SELECT * FROM matrix WHERE engine = $engine AND release = $release"
_NUMBERS = "SELECT * FROM numbers WHERE engine = $engine AND release = $release ORDER BY series"
_NOT_RELEASES = """
SELECT DISTINCT v.version FROM engine_versions v JOIN runs r ON r.engine = v.engine AND r.engine_version = v.version
WHERE v.engine = $engine AND v.release IS NULL ORDER BY ALL LIMIT 50
"""
