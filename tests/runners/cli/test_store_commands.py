"""import, export, db and rebuild as they are typed: what is left out is named or counted, and the exit code says what happened."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from results.boot_folder import BootFolder
from results.kept_records import ClaimRecord, SessionRecord
from results.store import Store
from results.vocabulary import Outcome
from runners.cli.main import app
from tests.results.conftest import NODE, MakeBoot, dump, minutes
from tests.results.conftest import make_boot as make_boot  # noqa: PLC0414 - a fixture


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SPARKPROOF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "220")
    return Store(tmp_path / "home", wait_s=5)


@pytest.fixture
def theirs(tmp_path: Path, make_boot: MakeBoot) -> Store:
    """Two finished boots and a running one of another node that is called as ours is, a void session and a claim."""
    other = Store(tmp_path / "theirs", wait_s=5)
    node = dataclasses.replace(NODE, node_id="other")
    for number, outcome in enumerate((Outcome.PASS, Outcome.CRASH, None)):
        make_boot(root=other.boots, node=node, outcome=outcome, decode=(), started_at=minutes(10 * number), session=f"s{number}")
    other.keep(SessionRecord("s1", "other", "run", minutes(10), void=True))
    other.keep(ClaimRecord("c1", "x", "x", "x", 1.0))
    other.ingest_pending()
    return other


def _run(*arguments: str) -> Result:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def _said(done: Result, *, error: bool = False) -> str:
    """What was printed, in one line: how wide the console is depends on who asked first."""
    return " ".join((done.stderr if error else done.stdout).split())


def _json(*arguments: str) -> Any:
    return json.loads(_run(*arguments, "--json").stdout)


# -- import -----------------------------------------------------------------------------------------------------------------------------


def test_import_says_what_became_of_every_boot_and_a_second_time_changes_nothing(store: Store, theirs: Store) -> None:
    first = _run("import", str(theirs.root))
    assert first.exit_code == 0, first.stderr
    assert "2 boots imported, 0 were here already, 1 unfinished and left out, 0 in conflict, 0 unreadable" in _said(first)
    assert "2 sessions, claims and notes" in _said(first)
    before = dump(store)
    assert "0 boots imported, 2 were here already, 1 unfinished" in _said(_run("import", str(theirs.root)))
    assert dump(store) == before


def test_two_nodes_with_one_name_are_refused_with_both_ids_until_one_is_renamed(store: Store, theirs: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    refused = _run("import", str(theirs.root))
    assert refused.exit_code == 3
    assert "two nodes are called 'my spark': node and other" in _said(refused, error=True)
    assert "--label NEW-NAME" in _said(refused, error=True)
    assert len(list(store.boots.iterdir())) == 1, "nothing was copied"
    assert _run("import", str(theirs.root), "--label", "spark 2").exit_code == 0
    assert {row["label"] for row in store.query("SELECT label FROM nodes")} == {"my spark", "spark 2"}


def test_a_conflicting_run_id_keeps_ours_names_the_difference_and_exits_3(store: Store, theirs: Store) -> None:
    _run("import", str(theirs.root))
    folder = next(BootFolder(theirs.boots, path.name) for path in theirs.boots.iterdir() if '"crash"' in (path / "run.json").read_text())
    summary = folder.summary()
    folder.write_summary(dataclasses.replace(summary, run=dataclasses.replace(summary.run, reason="another reason")))
    done = _run("import", str(theirs.root))
    assert (done.exit_code, "1 in conflict" in done.stdout) == (3, True)
    assert f"left out {folder.run_id}: another boot of that id is here already; they differ in reason" in _said(done, error=True)
    assert store.query("SELECT reason FROM runs WHERE run_id = ?", [folder.run_id]) == [{"reason": "because"}]


def test_import_of_truncated_folders_names_them_and_takes_the_others(store: Store, theirs: Store) -> None:
    cut, odd = sorted(path for path in theirs.boots.iterdir())[:2]
    (cut / "run.json").write_text('{"run": {"run_id"')
    with (odd / "samples.jsonl").open("a") as samples:
        samples.write('{"run_id": "20261101T000')
    done = _run("import", str(theirs.root))
    assert done.exit_code == 0
    assert f"left out {cut.name}: run.json is damaged" in _said(done, error=True)
    assert "1 boots imported" in _said(done)
    assert "1 unreadable, 1 lines cut off or of another boot, 0 numbers that are not finite" in _said(done)


# -- export -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_export_writes_every_table_and_the_wide_view(store: Store, make_boot: MakeBoot, tmp_path: Path, format_: str) -> None:
    store.ingest(make_boot())
    to = tmp_path / "export"
    done = _run("export", "--to", str(to), "--format", format_)
    assert done.exit_code == 0, done.stderr
    tables = set(dump(store)) | {"boots"}
    assert {path.stem for path in to.glob(f"*.{format_}")} == tables
    assert f"{len(tables)} tables" in _said(done)
    assert _run("export", "--to", str(to), "--format", format_).exit_code == 0, "an older export is replaced"


def test_export_never_writes_into_a_folder_of_something_else(store: Store, make_boot: MakeBoot, tmp_path: Path) -> None:
    store.ingest(make_boot())
    (tmp_path / "mine.txt").write_text("mine")
    done = _run("export", "--to", str(tmp_path))
    assert done.exit_code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "mine.txt"]


# -- db and rebuild ---------------------------------------------------------------------------------------------------------------------


def test_db_check_counts_boots_without_folder_and_folders_not_stored(store: Store, make_boot: MakeBoot) -> None:
    gone = make_boot()
    store.ingest(gone)
    shutil.rmtree(gone.path)
    make_boot(started_at=minutes(0))
    done = _run("db", "check")
    assert done.exit_code == 0
    assert "1 boot folders are not stored yet; the next run stores them." in _said(done)
    assert "1 boots have no folder any more; a rebuild leaves them behind." in _said(done)


def test_db_vacuum_says_both_sizes_and_loses_nothing(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    before = dump(store)
    done = _run("db", "vacuum")
    assert (done.exit_code, " -> " in done.stdout) == (0, True)
    assert dump(store) == before
    assert _json("db", "check")["problems"] == []


def test_a_damaged_database_is_said_by_every_command_and_rebuild_brings_it_back(store: Store, make_boot: MakeBoot, tmp_path: Path) -> None:
    store.ingest(make_boot())
    before = dump(store)
    store.database.write_bytes(b"no database")
    for command in (["db", "check"], ["db", "vacuum"], ["export", "--to", str(tmp_path / "x")], ["findings"]):
        done = _run(*command)
        assert (done.exit_code, "sparkproof rebuild" in done.stderr) == (3, True), done.stderr
    assert _run("rebuild").exit_code == 0
    assert dump(store) == before


def test_rebuild_names_or_counts_everything_that_it_leaves_out(store: Store, make_boot: MakeBoot) -> None:
    """Truncated folder, cut and foreign lines, NaN, a clock that went back, a fork build, and two protocols, all at once."""
    make_boot(version="0.31.0", started_at=minutes(0))
    odd = make_boot(version="0.31.0", started_at=minutes(10), session="b")
    samples = odd.path / "samples.jsonl"
    lines = samples.read_text().replace('"ttft_s": 0.1', '"ttft_s": NaN', 2).splitlines()
    foreign = lines[0].replace(odd.run_id, "20200101T000000Z-00000000")
    samples.write_text("\n".join([*lines, foreign, lines[0][:40]]))
    make_boot(version="0.31.0", started_at=minutes(30), finished_at=minutes(20), session="c")
    make_boot(version="0.1.dev21830+g1234", started_at=minutes(40), session="d")
    for number in range(3):
        make_boot(started_at=minutes(50 + number), session=f"e{number}", protocol_version=2)
    truncated = make_boot(started_at=minutes(60))
    (truncated.path / "run.json").write_text((truncated.path / "run.json").read_text()[:100])

    done = _run("rebuild")
    assert done.exit_code == 0
    assert f"left out {truncated.run_id}: run.json is damaged" in _said(done, error=True)
    assert "7 boots stored, 1 left out, 2 lines cut off or of another boot, 2 numbers that are not finite (null)" in _said(done)
    assert "left out of verdicts: 1 boots of builds that are no release" in _said(done)
    assert "left out of verdicts: 1 boots whose clock went back, without their numbers" in _said(done)
    told = _json("rebuild")
    assert (told["cut_lines"], told["not_finite"], list(told["skipped"])) == (2, 2, [truncated.run_id])
    assert told["left_out_of_verdicts"] == {"clock_went_back": 1, "not_a_release": 1}
    (cell,) = _json("compare", "vllm==0.31.0", "vllm==0.32.0")["cells"]
    assert cell["verdict"] == "confounded"
    assert {"protocol" in number["reason"] for number in cell["numbers"]} == {True}


def test_boots_of_another_protocol_are_counted_where_the_numbers_are_shown(store: Store, make_boot: MakeBoot) -> None:
    for number, (version, protocol) in enumerate([("0.31.0", 1)] * 3 + [("0.31.0", 2)] + [("0.32.0", 2)] * 3):
        rates = (100.0,) if version == "0.31.0" else (90.0,)
        make_boot(version=version, decode=rates, started_at=minutes(number), session=f"s{number}", protocol_version=protocol)
    store.ingest_pending()
    counted = "3 boots under another node state were left out"
    assert f"note: {counted}" in _said(_run("compare", "vllm==0.31.0", "vllm==0.32.0"))
    (cell,) = _json("history", "--engine", "vllm", "--metric", "decode_tok_s")
    assert counted in cell["numbers"][-1]["warnings"]
