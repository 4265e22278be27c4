from __future__ import annotations

import dataclasses
import json
import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from results.boot_folder import BootFolder
from results.errors import FolderError, StoreError, StoreLocked
from results.records import CoherenceRecord
from results.store import Store
from results.vocabulary import Outcome
from tests.results.conftest import MakeBoot

TABLES = ("nodes", "runs", "phases", "coherence_results", "samples", "resources")


def _dump(store: Store) -> dict[str, list[dict[str, object]]]:
    return {table: store.query(f"SELECT * FROM {table} ORDER BY ALL") for table in TABLES}


def test_every_record_of_a_boot_folder_becomes_a_row_and_null_stays_null(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot()
    store.ingest(folder)
    assert {t: len(rows) for t, rows in _dump(store).items()} == {
        "nodes": 1,
        "runs": 1,
        "phases": 1,
        "coherence_results": 3,
        "samples": 4,
        "resources": 1,
    }
    sample = store.query("SELECT * FROM samples WHERE NOT cold AND repeat = 0")[0]
    assert sample["decode_tok_s"] == 100.0
    assert sample["prefill_tok_s"] is None


def test_storing_a_boot_twice_changes_nothing(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot()
    store.ingest(folder)
    first = _dump(store)
    store.ingest(folder)
    assert _dump(store) == first


def test_rebuild_from_folders_gives_the_identical_database(store: Store, make_boot: MakeBoot) -> None:
    for version in ("0.31.0", "0.32.0"):
        store.ingest(make_boot(version=version))
    before = _dump(store)
    store.database.unlink()
    report = store.rebuild()
    assert len(report.ingested) == 2
    assert _dump(store) == before


def test_rebuild_leaves_out_a_damaged_folder_and_says_why(store: Store, make_boot: MakeBoot) -> None:
    good, bad = make_boot(), make_boot()
    (bad.path / "run.json").write_text('{"run": {"run_id"')
    report = store.rebuild()
    assert report.ingested == (good.run_id,)
    assert "run.json is damaged" in report.skipped[bad.run_id]


def test_rebuild_keeps_the_former_database_if_it_holds_boots_without_folder(store: Store, make_boot: MakeBoot) -> None:
    kept, gone = make_boot(), make_boot()
    store.ingest(kept)
    store.ingest(gone)
    shutil.rmtree(gone.path)
    report = store.rebuild()
    assert (report.ingested, report.without_folder) == ((kept.run_id,), (gone.run_id,))
    with duckdb.connect(str(report.former), read_only=True) as former:
        assert former.execute("SELECT count(*) FROM runs").fetchall() == [(2,)]
    again = store.rebuild()
    assert (again.without_folder, again.former) == ((), None)
    assert Path(str(report.former)).exists(), "one that holds more is not replaced by one that holds less"


def test_a_line_cut_off_by_a_crash_is_left_out_and_counted(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot()
    with (folder.path / "samples.jsonl").open("a") as f:
        f.write('{"run_id": "' + folder.run_id + '", "workl')
    report = store.rebuild()
    assert report.cut_lines == 1
    assert len(store.query("SELECT * FROM samples")) == 4


def test_medians_leave_out_cold_and_invalid_samples(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot(decode=(100.0, 110.0, 130.0)))
    row = store.query("SELECT * FROM boot_medians")[0]
    assert (row["decode_tok_s"], row["decode_tok_s_min"], row["samples"]) == (110.0, 100.0, 3)


def test_pending_folders_are_stored_by_the_next_start(store: Store, make_boot: MakeBoot) -> None:
    stored, waiting = make_boot(), make_boot()
    store.ingest(stored)
    assert store.ingest_pending().ingested == (waiting.run_id,)
    assert store.ingest_pending().ingested == ()


def test_reading_without_a_store_says_how_to_make_one(store: Store) -> None:
    with pytest.raises(StoreError, match=r"there are no results yet.*sparkproof run"):
        store.query("SELECT 1")


def test_a_database_held_by_another_process_is_reported_and_nothing_is_lost(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot()
    store.ingest(make_boot())
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import duckdb; c = duckdb.connect({str(store.database)!r}); print('held', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        impatient = Store(store.root, wait_s=3, clock=lambda: now[0], sleep=sleep)
        with pytest.raises(StoreLocked, match="Nothing is lost"):
            impatient.ingest(folder)
    finally:
        holder.communicate("\n", timeout=20)
    assert store.ingest_pending().ingested == (folder.run_id,)


def _write(root: Path, folders: list[str]) -> None:
    store = Store(root)
    for run_id in folders:
        store.ingest(BootFolder(store.boots, run_id))


def _read(root: Path, wanted: int) -> None:
    store = Store(root)
    while len(store.query("SELECT run_id FROM runs")) < wanted:
        pass


def test_readers_and_writers_in_other_processes_neither_fail_nor_lose_a_row(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    folders = [make_boot().run_id for _ in range(20)]
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_write, args=(store.root, folders[:10])),
        context.Process(target=_write, args=(store.root, folders[10:])),
        context.Process(target=_read, args=(store.root, 21)),
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len(store.query("SELECT * FROM runs")) == 21


def test_a_database_that_is_no_database_names_the_way_back(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot()
    store.database.write_bytes(b"junk" * 4096)
    with pytest.raises(StoreError, match="sparkproof rebuild"):
        store.ingest(folder)
    assert store.rebuild().ingested == (folder.run_id,)
    assert len(store.query("SELECT * FROM runs")) == 1


def test_a_newer_schema_is_refused(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    with duckdb.connect(str(store.database)) as connection:
        connection.execute("INSERT INTO schema_version (version) VALUES (999)")
    with pytest.raises(StoreError, match="schema version 999"):
        store.query("SELECT 1")
    with pytest.raises(StoreError, match="schema version 999"):
        store.ingest(make_boot())


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "", "20261130T130501Z-1f00ab4", "20261130T130501Z-1f00ab42/..", "a" * 5000])
def test_a_run_id_from_outside_never_becomes_a_path(store: Store, run_id: str) -> None:
    with pytest.raises(FolderError, match="not a run id"):
        BootFolder(store.boots, run_id)


def test_a_commit_killed_half_way_leaves_the_database_readable(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    victim = make_boot()
    script = (
        "import os, sys; from pathlib import Path\n"
        "from results.store import Store; from results.ingest import store_boots; from results.boot_folder import BootFolder\n"
        "store = Store(Path(sys.argv[1]))\n"
        "with store.writing() as c:\n"
        "    store_boots(c, [BootFolder(store.boots, sys.argv[2]).read()])\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(store.root), victim.run_id], check=False)
    assert killed.returncode == -9
    assert len(store.query("SELECT * FROM runs")) == 1
    assert store.ingest_pending().ingested == (victim.run_id,)


def test_a_running_boot_has_no_outcome_and_is_stored_again_when_it_ends(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot(outcome=None)
    store.ingest(folder)
    assert store.query("SELECT outcome FROM runs") == [{"outcome": None}]
    assert store.ingest_pending().ingested == (folder.run_id,)
    assert Outcome.PASS == "pass"


def test_half_a_surrogate_pair_and_an_endless_number_from_a_server_are_stored_as_well_as_they_can_be(
    store: Store, make_boot: MakeBoot
) -> None:
    folder = make_boot()
    summary = folder.summary()
    run = dataclasses.replace(summary.run, server_version="0.32.0\ud800", max_model_len=10**30)
    folder.write_summary(dataclasses.replace(summary, run=run))
    folder.append([CoherenceRecord(folder.run_id, "A", "odd", "golden", "match", "reason", "text \udfff")])
    store.ingest(folder)
    row = store.query("SELECT server_version, max_model_len FROM runs")[0]
    assert row == {"server_version": "0.32.0?", "max_model_len": None}
    assert store.query("SELECT text FROM coherence_results WHERE prompt_name = 'odd'") == [{"text": "text ?"}]


def test_one_folder_that_the_database_cannot_hold_does_not_stop_the_others(store: Store, make_boot: MakeBoot) -> None:
    good, bad = make_boot(), make_boot()
    data = json.loads((bad.path / "run.json").read_text())
    data["run"]["started_at"] = "not a time"
    (bad.path / "run.json").write_text(json.dumps(data))
    report = store.rebuild()
    assert report.ingested == (good.run_id,)
    assert "holds a value that the database cannot" in report.skipped[bad.run_id]


def test_a_folder_where_a_file_should_be_is_left_out_and_named(store: Store, make_boot: MakeBoot) -> None:
    good, bad = make_boot(), make_boot()
    (bad.path / "samples.jsonl").unlink()
    (bad.path / "samples.jsonl").mkdir()
    report = store.rebuild()
    assert report.ingested == (good.run_id,)
    assert "cannot be read" in report.skipped[bad.run_id]


def test_a_database_with_a_damaged_block_is_an_error_with_the_way_back(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot()
    store.ingest(folder)
    raw = bytearray(store.database.read_bytes())
    for at in range(4096, len(raw), 512):
        raw[at] ^= 0xFF
    store.database.write_bytes(raw)
    with pytest.raises(StoreError, match="sparkproof rebuild"):
        store.query("SELECT * FROM runs")
    assert store.rebuild().ingested == (folder.run_id,)
    assert len(store.query("SELECT * FROM runs")) == 1
