from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from results.asv.release_repo import import_stream
from results.asv.shape import LAUNCH_TIME, TIME_PER_TOKEN, Release, config_file, history_of, result_file

START = datetime(2026, 3, 1, tzinfo=UTC)


def _boot(**fields: Any) -> dict[str, Any]:
    return {
        "run_id": "run",
        "engine": "vllm",
        "release": "0.32.0",
        "distribution": "venv",
        "recipe_name": "model",
        "recipe_id": "r1",
        "backend_name": "eager",
        "node_id": "node",
        "protocol_version": 1,
        "counted_as": "pass",
        "started_at": START,
        **fields,
    }


def _medians(run_id: str, rate: float) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "workload": "decode_c1",
        "concurrency": 1,
        "launch_bound": False,
        "decode_tok_s": rate,
        "aggregate_tok_s": None,
    }


@pytest.mark.parametrize(
    "other",
    [
        {"driver_version": "590.10"},
        {"kernel_version": "6.17"},
        {"firmware": "2.0"},
        {"sm_clock_cap_mhz": 1400},
        {"protocol_version": 2},
        {"recipe_id": "r2"},
        {"distribution": "docker"},
        {"node_id": "other"},
        {"backend_name": "marlin"},
    ],
)
def test_whatever_can_change_a_number_besides_the_release_makes_a_series_of_its_own(other: dict[str, Any]) -> None:
    boots = [_boot(run_id="a", release="0.31.0"), _boot(run_id="b", **other)]
    history = history_of(boots, [_medians("a", 100.0), _medians("b", 50.0)])
    assert len({result.series for result in history.results}) == 2


def test_the_median_over_boots_is_exported_and_a_failing_boot_makes_the_number_a_failure() -> None:
    boots = [_boot(run_id=name) for name in "abc"]
    (result,) = history_of(boots, [_medians("a", 100.0), _medians("b", 200.0), _medians("c", 400.0)]).results
    assert result.seconds_per_token == {"decode_c1": 1 / 200}
    (flaky,) = history_of([*boots, _boot(run_id="d", counted_as="wrong")], [_medians("a", 100.0)]).results
    assert (flaky.seconds_per_token, flaky.incoherent, flaky.failed) == ({"decode_c1": None}, 1, 0)


def test_an_unsupported_backend_is_not_available_rather_than_failed() -> None:
    (result,) = history_of([_boot(counted_as="unsupported")], []).results
    assert (result.seconds_per_token, result.incoherent, result.failed) == ({}, None, None)


def test_dates_are_publication_dates_where_known_and_rise_with_the_versions_always() -> None:
    boots = [_boot(release=r, started_at=START + timedelta(days=d)) for r, d in (("0.9.0", 9), ("0.10.0", 3), ("0.11.0", 5))]
    published = {("vllm", "0.9.0"): START - timedelta(days=30)}
    releases = history_of(boots, [], published).releases
    assert [(r.version, r.published) for r in releases] == [("0.9.0", True), ("0.10.0", False), ("0.11.0", False)]
    assert [r.date for r in releases] == [START - timedelta(days=30), START + timedelta(days=3), START + timedelta(days=5)]
    late = history_of([_boot(release=r, started_at=START) for r in ("0.9.0", "0.10.0")], []).releases
    assert late[1].date - late[0].date == timedelta(seconds=1)


def test_names_from_outside_become_neither_paths_nor_git_commands() -> None:
    evil = "../../x\nreset refs/heads/main"
    boots = [_boot(engine=evil, node_id=evil, recipe_name=evil, backend_name=evil)]
    history = history_of(boots, [])
    (result,) = history.results
    path, _ = result_file(result, "0" * 40, START, ())
    assert path.count("/") == 1
    assert ".." not in path.split("/")
    assert b"reset refs/heads/main" not in import_stream(history.releases)
    assert set(history.machines) == {path.split("/")[0]}


def test_a_long_firmware_string_fits_into_the_name_of_a_folder() -> None:
    boots = [_boot(firmware="f" * 400), _boot(firmware="f" * 399)]
    states = {result.series.node_state for result in history_of(boots, []).results}
    assert len(states) == 2
    assert all(len(state) < 100 for state in states)


def test_the_stream_says_whether_a_date_is_the_publication_or_the_first_boot() -> None:
    stream = import_stream([Release("vllm", "0.31.0", START, True), Release("vllm", "0.32.0", START + timedelta(days=1), False)])
    assert b"Published 2026-03-01." in stream
    assert b"First booted here 2026-03-02; its publication date is not known." in stream


def test_the_speed_of_a_canary_is_a_benchmark_of_its_own_that_is_never_a_regression() -> None:
    canary = {**_medians("run", 100.0), "launch_bound": True}
    history = history_of([_boot()], [canary])
    _, content = result_file(history.results[0], "0" * 40, START, history.workloads)
    assert content["results"][LAUNCH_TIME][0] == [0.01]
    assert TIME_PER_TOKEN not in content["results"]
    assert config_file(("vllm",))["regressions_first_commits"] == {f"^{LAUNCH_TIME}": None}
