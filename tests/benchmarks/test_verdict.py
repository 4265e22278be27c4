from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.verdict import otava_peer
from benchmarks.verdict.__main__ import DATA, app
from benchmarks.verdict.days import FIRST_DAY, Day, planted, release_days
from benchmarks.verdict.methods import METHODS, OURS, ours
from benchmarks.verdict.nights import Nights, NightsFileError, read_nights
from benchmarks.verdict.synthetic import Scenario, grid, synthetic_days
from benchmarks.verdict.tally import count
from results.verdict.cell import judge_cell
from results.verdict.words import Verdict
from tests.results.verdict.boots import Node, history, scatter


def quick(*arguments: str) -> dict[str, Any]:
    answer = CliRunner().invoke(app, ["--quick", "--json", *arguments])
    assert answer.exit_code == 0, answer.output
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return quick()


def test_our_rule_raises_no_false_alarm_in_the_quick_protocol(result: dict[str, Any]) -> None:
    quiet = [row for row in result["results"] if row["method"] == OURS and row["shift_percent"] == 0]
    assert {row["boots"] for row in quiet} == {3, 5}
    assert all(row["of"] >= 100 for row in quiet)
    assert [row["told"] for row in quiet] == [0, 0]
    assert result["our_false_alarms"] == []


def test_our_rule_finds_nine_of_ten_five_percent_shifts_with_five_boots(result: dict[str, Any]) -> None:
    assert result["goal"]["found_at_least_90_percent_with_5_boots"] is True


def test_every_rate_has_its_counts_denominator_and_interval(result: dict[str, Any]) -> None:
    assert {row["method"] for row in result["results"]} == {method.name for method in METHODS} == set(result["methods"])
    for row in result["results"]:
        assert 0 <= row["told"] + row["told_wrong_way"] <= row["of"] == result["data"]["release_days"][str(row["boots"])]
        assert row["percent"] == pytest.approx(100 * row["told"] / row["of"], abs=1e-3)
        low, high = row["percent_95"]
        assert low <= row["percent"] <= high


def test_the_output_names_what_was_left_out(result: dict[str, Any]) -> None:
    assert "Otava" in result["missing_peers"]
    assert result["data"]["repeats_excluded"] == 0
    assert result["data"]["days_skipped_for_few_repeats"] == {"3": 0, "5": 0}
    assert result["protocol"]["seed"] == 1
    assert result["seconds"] > 0


def nights_file(folder: Path, content: object) -> Path:
    path = folder / "nights.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_any_file_of_the_shape_runs_and_the_seed_decides_the_draws(tmp_path: Path) -> None:
    rows = [[100 + (night * 7 + repeat * 13) % 11 for repeat in range(12)] for night in range(7)]
    path = nights_file(tmp_path, {"source": "made up", "nights": list("abcdefg"), "series": {"one": rows}})
    one, again, other = (quick("--data", str(path), "--seed", seed) for seed in ("5", "5", "6"))
    assert one["results"] == again["results"]
    assert one["data"]["release_days"] == {"3": 2, "5": 2}
    assert other["protocol"]["seed"] == 6


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"nights": ["a"], "series": []},
        {"nights": ["a", "b"], "series": {"one": [[1.0]]}},
        {"nights": ["a"], "series": {"one": [1.0]}},
    ],
)
def test_a_file_of_another_shape_is_refused(content: object, tmp_path: Path) -> None:
    path = nights_file(tmp_path, content)
    with pytest.raises(NightsFileError, match=r"nights\.json"):
        read_nights(path)
    assert CliRunner().invoke(app, ["--data", str(path)]).exit_code == 2


def test_repeats_that_are_no_measurements_are_left_out_and_counted(tmp_path: Path) -> None:
    nights = read_nights(nights_file(tmp_path, {"nights": ["a"], "series": {"one": [[1.0, None, float("nan"), -2, 0, "x", True, 3]]}}))
    assert nights.series == {"one": ((1.0, 3.0),)}
    assert nights.excluded == 6


def test_a_day_with_too_few_repeats_is_skipped_and_counted() -> None:
    nights = Nights("", tuple("abcdef"), {"one": ((1.0,) * 10,) * 5 + ((1.0,) * 9,)}, 0)
    assert list(release_days(nights, 5, 1)) == [None]
    assert list(release_days(nights, 4, 1)) != [None]


def test_the_protocol_draws_record_and_rerun_without_replacement() -> None:
    rows = tuple(tuple(float(100 * night + repeat) for repeat in range(12)) for night in range(8))
    days = [day for day in release_days(Nights("", tuple("abcdefgh"), {"one": rows}, 0), 5, 1) if day]
    assert [day.night for day in days] == ["f", "g", "h"]
    for index, day in enumerate(days, start=FIRST_DAY):
        assert len(day.record) == index + 1
        assert all(len(record) == 5 for record in day.record)
        assert len(set(day.newest)) == len(set(day.before)) == 10
        assert set(day.newest) <= set(rows[index])
        assert set(day.before) <= set(rows[index - 1])


def test_a_planted_shift_moves_every_boot_of_the_newest_night_and_nothing_else() -> None:
    day = next(synthetic_days(Scenario("gaussian", 0.01, 0.0, 0.0), 3, 1, 1))
    shifted = planted(day, 0.05)
    assert shifted.newest == pytest.approx([value * 1.05 for value in day.newest])
    assert (shifted.record[:-1], shifted.rerun_before) == (day.record[:-1], day.rerun_before)


def quiet_day(ratio: float = 1.0, nights: int = 8) -> Day:
    """A night is 0.2 % of scatter around 100; the newest is `ratio` times that."""
    record = tuple(tuple(scatter(100, 5, night, 0.002)) for night in range(nights))
    day = Day("one", "last", record, tuple(scatter(100, 5, 100, 0.002)), tuple(scatter(100, 5, 101, 0.002)))
    return planted(day, ratio - 1)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_sees_a_large_slowdown_and_is_silent_about_nothing(method: Any) -> None:
    assert method.judge_all([quiet_day(1.3), quiet_day()]) == [1, 0]


@pytest.mark.parametrize(
    "method", [one for one in METHODS if "slowdowns only" not in one.rule and "3%" not in one.name], ids=lambda one: one.name
)
def test_methods_with_two_directions_tell_a_speedup(method: Any) -> None:
    assert method.judge_all([quiet_day(0.7)]) == [-1]


def cell_verdict(day: Day) -> int:
    """What the whole engine says of the newest night when each night is a release of its own."""
    node = Node()
    boots = [boot for number, night in enumerate(day.record) for boot in speeds(node, f"0.{number}.0", night)]
    names = [f"0.{len(day.record) - 2}.0", f"0.{len(day.record) - 1}.0"]
    turns = zip(day.rerun_before, day.rerun_newest, strict=True)
    boots += [node.boot(name, session="rerun", itl_p50_s=value) for turn in turns for name, value in zip(names, turn, strict=True)]
    verdict = judge_cell(history(boots)).releases[-1].numbers["chat/itl_p50_s"].verdict
    return {Verdict.SLOWER: 1, Verdict.FASTER: -1}.get(verdict, 0)


def speeds(node: Node, release: str, values: Sequence[float]) -> list[Any]:
    return [node.boot(release, session=release, itl_p50_s=value) for value in values]


def test_the_benchmark_asks_the_rule_that_a_cell_is_judged_by() -> None:
    nights = read_nights(DATA)
    days = [day for day in release_days(nights, 5, 3) if day][::25]
    answers = [(ours(shifted), cell_verdict(shifted)) for day in days for shifted in (day, planted(day, 0.05), planted(day, -0.05))]
    assert all(alone == whole for alone, whole in answers)
    assert {alone for alone, _ in answers} == {-1, 0, 1}


def test_the_synthetic_grid_is_unchanged_and_reproducible() -> None:
    for scenario in grid():
        first, again = (list(synthetic_days(scenario, 3, 2, 7)) for _ in range(2))
        assert first == again
        assert all(math.isfinite(value) and value > 0 for day in first for night in day.per_night for value in night)
    steady = Scenario("gaussian", 0.01, 0.0, 0.0)
    values = [math.log(value) for day in synthetic_days(steady, 5, 60, 1) for night in day.per_night for value in night]
    assert sum(values) / len(values) == pytest.approx(0.0, abs=0.001)


def test_a_speedup_told_of_a_planted_slowdown_is_no_hit() -> None:
    wrong = [one for one in METHODS if one.name == "screen alone"]
    (counted,) = count("made up", [quiet_day(0.5)], wrong, [0.05], 5, lambda answered: None)
    assert (counted.told, counted.wrong_way, counted.days) == (0, 1, 1)


def test_an_otava_that_cannot_be_installed_is_named_in_the_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(otava_peer, "user_cache_path", lambda name: tmp_path)
    monkeypatch.setattr("uv.find_uv_bin", lambda: str(tmp_path / "no-uv"))
    with pytest.raises(otava_peer.OtavaUnavailableError, match="cannot install apache-otava"), otava_peer.otava_method():
        pass
