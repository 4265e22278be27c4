"""The sample of real measurements."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from results.boot_folder import BootFolder, all_folders
from results.records import CoherenceRecord
from results.sample import SAMPLE, sample_store, write_sample
from results.sample.tables import DOCUMENTS, boots_table, write_tables
from results.store import Store
from results.vocabulary import Outcome
from tests.dashboard.stores import Planned, made, small, write_boot


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
        "WHERE r.engine = 'vllm' AND r.recipe_name = ? AND r.outcome <> 'interrupted'"
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


def test_every_boot_that_passed_has_its_gate_its_log_and_samples_if_it_was_to_be_timed(store: Store) -> None:
    rows = store.query(
        "SELECT r.run_id, r.purpose IN ('sweep', 'control', 'admission') AS judged_only, f.gate_prompts, coalesce(f.samples, 0) AS samples "
        "FROM runs r JOIN boot_facts f USING (run_id) WHERE r.outcome = 'pass' AND r.weights = 'real'"
    )
    assert {row["judged_only"] for row in rows} == {True, False}
    for row in rows:
        assert row["gate_prompts"] > 0
        assert (row["samples"] > 0) != row["judged_only"]
        assert BootFolder(store.boots, row["run_id"]).log.stat().st_size > 0


def test_what_is_written_is_read_back_exactly(tmp_path: Path) -> None:
    original = small(tmp_path / "made")
    write_sample([(folder.read(), {"server.log": folder.log.read_text()}) for folder in all_folders(original.boots)], tmp_path)
    again = sample_store(tmp_path / "again", tmp_path)
    for one, other in zip(all_folders(original.boots), all_folders(again.boots), strict=True):
        assert dataclasses.asdict(one.summary()) == dataclasses.asdict(other.summary())
        assert one.read().rows == other.read().rows
        assert one.log.read_text() == other.log.read_text()


def test_it_is_made_once(store: Store) -> None:
    before = store.database.stat().st_mtime_ns
    sample_store(store.root)
    assert store.database.stat().st_mtime_ns == before


def test_the_documents_show_the_tables_of_this_sample(store: Store, tmp_path: Path) -> None:
    for document in DOCUMENTS:
        copy = tmp_path / document.name
        copy.write_text(document.read_text(encoding="utf-8"), encoding="utf-8")
        assert write_tables(store, [copy]), document.name
        assert copy.read_text(encoding="utf-8") == document.read_text(encoding="utf-8"), "run python -m results.sample --tables"


def test_every_boot_that_a_document_names_is_in_the_sample(store: Store) -> None:
    known = {row["run_id"] for row in store.query("SELECT run_id FROM runs")}
    named = {
        run_id for document in DOCUMENTS for run_id in re.findall(r"\b20\d{6}T\d{6}Z-[0-9a-f]{8}\b", document.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= known


def test_a_table_is_written_between_its_markers_and_nowhere_else(tmp_path: Path) -> None:
    store = sample_store(tmp_path / "root", tmp_path)
    begin = "<!-- boots: python -m results.sample --tables -->"
    document = tmp_path / "words.md"
    document.write_text(f"before\n{begin}\nold\n<!-- end of boots -->\nafter\n<!-- formats: no end -->\n")
    assert write_tables(store, [document]) == ["words.md: boots"]
    text = document.read_text()
    assert text.startswith(f"before\n{begin}\n\n| machine |")
    assert text.endswith("<!-- end of boots -->\nafter\n<!-- formats: no end -->\n")
    assert "old" not in text


def test_a_cell_needs_three_boots_to_be_shown_and_a_failure_among_them_counts(tmp_path: Path) -> None:
    one = Planned(version="0.32.0")
    failed = dataclasses.replace(one, outcome=Outcome.CRASH)
    store = made(tmp_path, [one, one, failed, *[dataclasses.replace(one, version="0.31.0")] * 2])
    (row,) = boots_table(store).splitlines()[2:]
    assert row.startswith("| label of spark-1 | vLLM 0.32.0 | gpt-oss-120b | marlin | 2 of 3 pass |")


@pytest.mark.parametrize("shortest", (0, 3, 5))
def test_of_gates_alike_the_shortest_is_shown_whatever_the_order_of_the_boots(shortest: int, tmp_path: Path) -> None:
    store = Store(tmp_path)
    ids = [write_boot(store, number, Planned()) for number in range(6)]
    for run_id in ids[:shortest] + ids[shortest + 1 :]:
        folder = BootFolder(store.boots, run_id)
        asked = folder.read().of(CoherenceRecord)
        folder.append([dataclasses.replace(asked[0], prompt_name="one more")])
    store.rebuild()
    (row,) = boots_table(store).splitlines()[2:]
    assert "| 6 pass | 3/3 |" in row
