"""Other processes, kill -9 and a full disk: nothing that was stored is lost, and the file can always be read."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scale.contention import contend, make_boot
from results.errors import StoreLocked
from results.maintenance import check, vacuum
from results.store import Store
from tests.results.conftest import MakeBoot, dump

KILLS = 6

_STORE_FOREVER = """
import sys
from pathlib import Path
from benchmarks.scale.contention import make_boot
from results.store import Store
store = Store(Path(sys.argv[1]))
for number in range(50):
    folder = make_boot(store, 1, number)
    print("begin", folder.run_id, flush=True)
    store.ingest(folder)
    print("stored", folder.run_id, flush=True)
"""
_STORE_WITH_LITTLE_DISK = """
import resource, signal, sys
from pathlib import Path
from results.boot_folder import BootFolder
from results.errors import StoreError
from results.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    store.ingest(BootFolder(store.boots, sys.argv[2]))
except StoreError as error:
    print(error)
    raise SystemExit(3)
"""


def test_readers_never_see_half_a_commit_and_writers_lose_nothing(tmp_path: Path) -> None:
    result = contend(tmp_path, seconds=4, writers=2, readers=2)
    assert (result.failed, result.lost, result.problems) == ((), (), ())
    assert result.reads > 0
    assert result.writes > 0


def test_kill_9_inside_a_commit_loses_at_most_that_commit_and_never_the_file(tmp_path: Path) -> None:
    store = Store(tmp_path, wait_s=30)
    acknowledged: set[str] = set()
    for kill in range(KILLS):
        child = subprocess.Popen([sys.executable, "-c", _STORE_FOREVER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        begun = 0
        for line in child.stdout:
            word, run_id = line.split()
            begun += word == "begin"
            if word == "stored":
                acknowledged.add(run_id)
            if begun > kill % 3:
                child.kill()  # at work on the commit of this boot
                break
        acknowledged |= {line.split()[1] for line in child.stdout if line.startswith("stored ")}
        child.wait()
        stored = {row["run_id"] for row in store.query("SELECT run_id FROM runs")} if store.database.exists() else set()
        assert acknowledged <= stored
        if stored:
            assert check(store).problems == ()
    store.ingest_pending()
    assert {row["run_id"] for row in store.query("SELECT run_id FROM runs")} == {path.name for path in store.boots.iterdir()}


def test_a_full_disk_is_said_leaves_the_store_readable_and_the_boot_is_stored_later(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    before = dump(store)
    large = make_boot(decode=tuple(float(rate) for rate in range(100, 4000)))
    done = subprocess.run(
        [sys.executable, "-c", _STORE_WITH_LITTLE_DISK, str(store.root), large.run_id], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "the disk took no more" in done.stdout
    assert "Nothing is lost" in done.stdout
    assert dump(store) == before
    assert store.ingest_pending().ingested == (large.run_id,)


@pytest.mark.parametrize("table", ["stored_medians", "boot_facts"])
def test_check_names_a_derived_table_that_is_not_what_its_formula_gives(store: Store, make_boot: MakeBoot, table: str) -> None:
    store.ingest(make_boot())
    assert check(store).problems == ()
    with store.writing() as connection:
        connection.execute(f"UPDATE {table} SET decode_tok_s = 7")
    assert f"{table}: 2 rows differ from their formula; run `sparkproof rebuild`" in check(store).problems


def test_check_names_boots_without_folder_and_folders_not_stored(store: Store, make_boot: MakeBoot) -> None:
    gone, waiting = make_boot(), make_boot()
    store.ingest(gone)
    (store.boots / gone.run_id).rename(store.root / "elsewhere")
    report = check(store)
    assert (report.without_folder, report.unstored) == ((gone.run_id,), (waiting.run_id,))


def test_vacuum_keeps_every_row_and_makes_a_file_with_gaps_smaller(store: Store, make_boot: MakeBoot) -> None:
    with store.writing() as connection:
        connection.execute("CREATE TABLE gap AS SELECT random() AS x FROM range(2_000_000)")
    store.ingest(make_boot(decode=tuple(float(rate) for rate in range(100, 4000))))
    with store.writing() as connection:
        connection.execute("DROP TABLE gap")
    before = dump(store)
    report = vacuum(store)
    assert report.after_bytes < report.before_bytes
    assert dump(store) == before
    store.ingest(make_boot())
    assert len(store.query("SELECT * FROM runs")) == 2
    assert sorted(path.name for path in store.root.iterdir()) == [
        "boots",
        "sparkproof.duckdb",
        "sparkproof.duckdb.lock",
        "sparkproof.duckdb.turn",
    ]


def test_a_vacuum_that_the_disk_does_not_hold_leaves_the_old_file(store: Store) -> None:
    store.ingest(make_boot(store, 1, 1))
    before = dump(store)
    (store.root / "sparkproof.vacuum.duckdb").mkdir()
    with pytest.raises(OSError, match="directory"):
        vacuum(store)
    assert dump(store) == before


def test_a_reader_that_comes_while_a_writer_waits_waits_behind_it(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    impatient = Store(store.root, wait_s=3, clock=lambda: now[0], sleep=sleep)
    with (store.root / "sparkproof.duckdb.turn").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # a writer that waits for a reader
        with pytest.raises(StoreLocked):
            impatient.query("SELECT 1")
    assert now[0] > 2.5, "it waited as long as it was told to"
    assert impatient.query("SELECT count(*) AS n FROM runs") == [{"n": 1}]


def test_a_store_on_a_medium_that_may_only_be_read_is_read_without_locks(
    store: Store, make_boot: MakeBoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.ingest(make_boot())

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    assert store.query("SELECT count(*) AS n FROM runs") == [{"n": 1}]


def test_nobody_opens_the_file_while_somebody_has_it_open_for_writing(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    impatient = Store(store.root, wait_s=0.01)
    with store.exclusive():
        with pytest.raises(StoreLocked, match="another process kept the database"):
            impatient.query("SELECT 1")
        with pytest.raises(StoreLocked, match="another process kept the database"):
            impatient.ingest(make_boot())
    assert impatient.query("SELECT count(*) AS n FROM runs") == [{"n": 1}]


def test_a_question_within_a_question_does_not_wait_for_a_writer_that_waits(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    impatient = Store(store.root, wait_s=0.01)
    with impatient.reading(), (store.root / "sparkproof.duckdb.turn").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        assert impatient.query("SELECT count(*) AS n FROM runs") == [{"n": 1}]
    assert impatient.query("SELECT 1 AS one") == [{"one": 1}]


def test_a_signal_while_the_database_works_is_an_interruption_and_no_fault_of_the_database(tmp_path: Path) -> None:
    """DuckDB raises `RuntimeError: Query interrupted` in place of what the handler raised; seen as a traceback at the very end of a run."""
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt), store.writing():
        raise RuntimeError("Query interrupted")
    with pytest.raises(KeyboardInterrupt), store.reading():
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="something else"), store.reading():
        raise RuntimeError("something else")
