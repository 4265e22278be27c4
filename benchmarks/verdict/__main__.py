"""`python -m benchmarks.verdict --data FILE [--json] [--quick]`: tables on stdout, or one JSON object; progress on stderr."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from benchmarks.verdict import report
from benchmarks.verdict.days import FIRST_DAY, Day, release_days
from benchmarks.verdict.methods import METHODS, OURS, Method
from benchmarks.verdict.nights import Nights, NightsFileError, read_nights
from benchmarks.verdict.otava_peer import OtavaUnavailableError, otava_method
from benchmarks.verdict.synthetic import grid, synthetic_days
from benchmarks.verdict.tally import Count, count

DATA = Path(__file__).with_name("data") / "unchanged_binary_nights.json"
BOOTS = (3, 5)
SHIFTS = (0.0, 0.03, 0.05, 0.08, 0.10)
SYNTHETIC_SHIFTS = (0.0, 0.05)
SYNTHETIC_DAYS = 20
QUICK_SERIES = 20
QUICK_SHIFTS = (0.0, 0.05)

app = typer.Typer(add_completion=False)


@app.command()
def main(
    data: Annotated[Path, typer.Option(help="File of nightly re-measurements of an unchanged program.")] = DATA,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help=f"{QUICK_SERIES} series, two shifts, no synthetic grid, no Otava.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of every draw.")] = 1,
    otava: Annotated[bool, typer.Option(help="Install Otava into a cached environment of its own and ask it too.")] = True,
) -> None:
    """Compare our verdict rule with its peers on unchanged nights, with and without planted shifts."""
    try:
        nights = read_nights(data)
    except (NightsFileError, OSError) as error:
        typer.echo(f"cannot read the data: {error}", err=True)
        raise typer.Exit(2) from error
    with ExitStack() as stack:
        methods, missing = _methods(otava and not quick, stack)
        real, synthetic, result = _judge(nights, data.name, quick, seed, methods)
    result["missing_peers"] = missing
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        _print_tables(Console(), real, synthetic, result)


def _judge(nights: Nights, file: str, quick: bool, seed: int, methods: Sequence[Method]) -> tuple[list[Count], list[Count], dict[str, Any]]:
    started = time.monotonic()
    shifts = QUICK_SHIFTS if quick else SHIFTS
    drawn = {boots: list(release_days(_thinned(nights) if quick else nights, boots, seed)) for boots in BOOTS}
    scenarios = [] if quick else grid()
    questions = sum(map(len, drawn.values())) * len(shifts)
    questions += len(scenarios) * len(BOOTS) * SYNTHETIC_DAYS * len(SYNTHETIC_SHIFTS)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("judging release days", total=questions * len(methods))
        real, synthetic = _counts(drawn, scenarios, methods, shifts, seed, lambda answered: progress.advance(task, answered))
    result = {
        "data": _data_facts(file, nights, drawn, quick),
        "protocol": {
            "seed": seed,
            "boots": BOOTS,
            "shifts_percent": [100 * shift for shift in shifts],
            "first_release_night": FIRST_DAY + 1,
        },
        "methods": {method.name: method.rule for method in methods},
        "results": [report.as_json(one) for one in real],
        "synthetic": [report.as_json(one) for one in synthetic],
        "our_false_alarms": report.false_alarms([*real, *synthetic]),
        "goal": report.goal_reached(real),
        "seconds": round(time.monotonic() - started, 1),
    }
    return real, synthetic, result


def _methods(with_otava: bool, stack: ExitStack) -> tuple[list[Method], dict[str, str]]:
    if not with_otava:
        return list(METHODS), {"Otava": "left out on request"}
    try:
        return [*METHODS, stack.enter_context(otava_method())], {}
    except OtavaUnavailableError as error:
        return list(METHODS), {"Otava": str(error)}


def _thinned(nights: Nights) -> Nights:
    """Every k-th series, so that about QUICK_SERIES are left."""
    step = max(1, len(nights.series) // QUICK_SERIES)
    return replace(nights, series=dict(list(nights.series.items())[::step]))


def _counts(
    drawn: dict[int, list[Day | None]],
    scenarios: Sequence[Any],
    methods: Sequence[Method],
    shifts: Sequence[float],
    seed: int,
    advance: Callable[[int], None],
) -> tuple[list[Count], list[Count]]:
    real: list[Count] = []
    synthetic: list[Count] = []
    for boots, days in drawn.items():
        real += count("nights", [day for day in days if day], methods, shifts, boots, advance)
        for scenario in scenarios:
            made = list(synthetic_days(scenario, boots, SYNTHETIC_DAYS, seed))
            synthetic += count(scenario.name, made, methods, SYNTHETIC_SHIFTS, boots, advance)
    return real, synthetic


def _data_facts(file: str, nights: Nights, drawn: dict[int, list[Day | None]], quick: bool) -> dict[str, Any]:
    return {
        "file": file,
        "source": nights.source,
        "nights": len(nights.nights),
        "series": len(nights.series),
        "quick": quick,
        "repeats_excluded": nights.excluded,
        "release_days": {boots: sum(day is not None for day in days) for boots, days in drawn.items()},
        "days_skipped_for_few_repeats": {boots: days.count(None) for boots, days in drawn.items()},
    }


def _print_tables(console: Console, real: Sequence[Count], synthetic: Sequence[Count], result: dict[str, Any]) -> None:
    for boots in BOOTS:
        console.print(report.table(real, boots, f"{result['data']['file']}, seed {result['protocol']['seed']}"))
    for boots in BOOTS if synthetic else ():
        console.print(report.table(synthetic, boots, "synthetic grid"))
    for peer, why in result["missing_peers"].items():
        console.print(f"{peer}: {why}")
    for alarm in result["our_false_alarms"]:
        console.print(f"false alarm of {OURS}: {alarm['series']}, night {alarm['night']}, {alarm['boots']} boots ({alarm['data']})")
    console.print_json(json.dumps(result["goal"]))
    console.print(f"{result['seconds']} s")


if __name__ == "__main__":
    app()
