"""The sample of real measurements."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from results.boot_folder import BootFolder, all_folders
from results.sample import SAMPLE, sample_store, write_sample
from results.store import Store
from tests.dashboard.stores import small


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return sample_store(tmp_path_factory.mktemp("sample"))


def test_it_holds_several_releases_of_both_engines(store: Store) -> None:
    rows = store.query("SELECT engine, engine_version FROM runs GROUP BY ALL")
    assert Counter(row["engine"] for row in rows)["vllm"] >= 3
    assert Counter(row["engine"] for row in rows)["sglang"] >= 2


def test_it_holds_a_model_that_makes_no_sense_and_the_same_one_asked_rightly(store: Store) -> None:
    sql = (
        "SELECT r.outcome, d.use_instead FROM runs r LEFT JOIN diagnoses d USING (run_id) "
        "WHERE r.recipe_name = ? AND r.outcome <> 'interrupted'"
    )
    (broken,) = store.query(sql, ["gemma3-270m-no-bos"])
    assert (broken["outcome"], broken["use_instead"]) == ("incoherent", ["add_special_tokens=true in the request"])
    assert {row["outcome"] for row in store.query(sql, ["gemma3-270m"])} == {"pass"}


def test_every_row_says_on_which_machine_and_when_it_was_measured() -> None:
    files = sorted(SAMPLE.glob("*.parquet"))
    assert len(files) >= 5
    for path in files:
        for row in pq.read_table(path, columns=["machine", "measured_at"]).to_pylist():
            assert row["machine"]
            assert row["measured_at"].startswith("20")


def test_it_names_no_folder_of_the_machine_it_comes_from() -> None:
    for path in SAMPLE.glob("*.parquet"):
        text = str(pq.read_table(path).to_pylist())
        for start in ("/root/", "/home/", "/tmp/", "/work/", "/opt/"):
            assert start not in text


def test_every_boot_that_passed_has_its_gate_its_log_and_samples_unless_it_was_a_sweep(store: Store) -> None:
    rows = store.query(
        "SELECT r.run_id, r.in_process, f.gate_prompts, coalesce(f.samples, 0) AS samples "
        "FROM runs r JOIN boot_facts f USING (run_id) WHERE r.outcome = 'pass'"
    )
    assert {row["in_process"] for row in rows} == {True, False}
    for row in rows:
        assert row["gate_prompts"] > 0
        assert (row["samples"] > 0) != row["in_process"]
        assert BootFolder(store.boots, row["run_id"]).log.stat().st_size > 0


def test_what_is_written_is_read_back_exactly(tmp_path: Path) -> None:
    made = small(tmp_path / "made")
    write_sample([(folder.read(), {"server.log": folder.log.read_text()}) for folder in all_folders(made.boots)], tmp_path)
    again = sample_store(tmp_path / "again", tmp_path)
    for one, other in zip(all_folders(made.boots), all_folders(again.boots), strict=True):
        assert dataclasses.asdict(one.summary()) == dataclasses.asdict(other.summary())
        assert one.read().rows == other.read().rows
        assert one.log.read_text() == other.log.read_text()


def test_it_is_made_once(store: Store) -> None:
    before = store.database.stat().st_mtime_ns
    sample_store(store.root)
    assert store.database.stat().st_mtime_ns == before
