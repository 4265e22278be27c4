"""Boots of other nodes: each once, never two machines as one, and nothing that was not finished."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from results.boot_folder import BootFolder
from results.errors import FolderError, StoreError
from results.export import MANIFEST, export
from results.imports.boots import NodeConflict, import_boots
from results.imports.exported import is_export, restore
from results.kept_files import KeptFiles
from results.kept_records import ClaimRecord, SessionRecord
from results.records import KernelMessageRecord, RecipeRecord, ScoreRecord
from results.store import Store
from results.vocabulary import Outcome
from tests.results.conftest import NODE, MakeBoot, dump, minutes

OTHER = dataclasses.replace(NODE, node_id="other", label="their spark", gpu_name="NVIDIA GB10", cpu_count=20)


@pytest.fixture
def theirs(tmp_path: Path, make_boot: MakeBoot) -> Store:
    """Another node's store with three boots, one of them unfinished."""
    other = Store(tmp_path / "theirs", wait_s=5)
    for number, outcome in enumerate((Outcome.PASS, Outcome.CRASH, None)):
        decode = (100.0,) if outcome is Outcome.PASS else ()
        folder = make_boot(
            root=other.boots, node=OTHER, outcome=outcome, decode=decode, started_at=minutes(10 * number), session=f"s{number}"
        )
        (folder.path / "process.json").write_text('{"pid": 1}')
        (folder.path / "server.log").write_text("a log")
    other.keep(SessionRecord("s1", "other", "run", minutes(10), void=True))
    other.keep(ClaimRecord("c1", "x", "x", "x", 1.0))
    other.ingest_pending()
    return other


def test_another_stores_boots_come_in_once_with_their_sessions(store: Store, theirs: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    report = import_boots(store, theirs.root)
    assert (len(report.imported), len(report.unfinished), report.kept, report.skipped) == (2, 1, 2, {})
    after = dump(store)
    assert {row["node_label"] for row in store.query("SELECT node_label FROM boots")} == {"my spark", "their spark"}
    assert [row["counted_as"] for row in store.query("SELECT counted_as FROM boots WHERE session_id = 's1'")] == ["infrastructure"]
    again = import_boots(store, theirs.root)
    assert (again.imported, len(again.already_here), again.kept) == ((), 2, 0)
    assert dump(store) == after
    store.rebuild()
    assert dump(store) == after


def test_no_process_of_another_node_is_ever_looked_for_here(store: Store, theirs: Store) -> None:
    for run_id in import_boots(store, theirs.root).imported:
        assert {path.name for path in (store.boots / run_id).iterdir()} >= {"run.json", "samples.jsonl", "server.log"}
        assert not (store.boots / run_id / "process.json").exists()


@pytest.mark.parametrize("what", ["root", "boots", "one boot"])
def test_a_store_its_boots_folder_and_one_boot_can_be_imported(store: Store, theirs: Store, what: str) -> None:
    first = sorted(theirs.boots.iterdir())[0]
    source = {"root": theirs.root, "boots": theirs.boots, "one boot": first}[what]
    assert len(import_boots(store, source).imported) == (1 if what == "one boot" else 2)


def test_two_nodes_with_one_name_are_refused_before_anything_is_copied_and_a_new_name_helps(
    store: Store, theirs: Store, make_boot: MakeBoot
) -> None:
    store.ingest(make_boot(node=dataclasses.replace(NODE, label="their spark")))
    with pytest.raises(NodeConflict, match=r"two nodes are called 'their spark': node and other.*--label"):
        import_boots(store, theirs.root)
    assert len(list(store.boots.iterdir())) == 1
    assert len(import_boots(store, theirs.root, label="spark 2").imported) == 2
    assert {row["label"] for row in store.query("SELECT label FROM nodes")} == {"their spark", "spark 2"}


def test_two_machines_with_one_id_are_refused_with_what_differs(store: Store, theirs: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot(node=dataclasses.replace(OTHER, cpu_count=72)))
    with pytest.raises(NodeConflict, match=r"two machines have the node id other: cpu_count \(72 here, 20 there\)"):
        import_boots(store, theirs.root)


def test_one_label_cannot_be_given_to_two_nodes(store: Store, theirs: Store, make_boot: MakeBoot) -> None:
    make_boot(root=theirs.boots, node=NODE)
    with pytest.raises(NodeConflict, match="2 nodes cannot all be called"):
        import_boots(store, theirs.root, label="one")


def test_another_boot_under_a_run_id_of_ours_is_a_conflict_and_ours_stays(store: Store, theirs: Store) -> None:
    import_boots(store, theirs.root)
    before = dump(store)
    folder = BootFolder(theirs.boots, sorted(theirs.boots.iterdir())[0].name)
    summary = folder.summary()
    folder.write_summary(dataclasses.replace(summary, run=dataclasses.replace(summary.run, engine_version="9.9.9")))
    report = import_boots(store, theirs.root)
    assert "differ in engine_version" in report.conflicting[folder.run_id]
    assert dump(store) == before


def test_a_truncated_folder_is_named_and_the_others_come_in(store: Store, theirs: Store) -> None:
    first, second, _ = sorted(theirs.boots.iterdir())
    (first / "run.json").write_text('{"run": {')
    with (second / "phases.jsonl").open("a") as f:
        f.write('{"run_id": "2026')
    report = import_boots(store, theirs.root)
    assert report.imported == (second.name,)
    assert "run.json is damaged" in report.skipped[first.name]
    assert report.cut_lines == 1


def test_a_link_in_a_boot_folder_is_not_followed(store: Store, theirs: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    first = sorted(theirs.boots.iterdir())[0]
    (first / "server.log").unlink()
    (first / "server.log").symlink_to(tmp_path / "secret")
    import_boots(store, theirs.root)
    assert not (store.boots / first.name / "server.log").exists()


def test_a_folder_without_boots_says_what_can_be_imported(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"no boot folders here.*Parquet"):
        import_boots(store, tmp_path)


# -- export and back --------------------------------------------------------------------------------------------------------------------


def test_an_export_in_parquet_is_imported_as_the_very_same_boots(store: Store, theirs: Store, tmp_path: Path) -> None:
    folder = BootFolder(theirs.boots, sorted(theirs.boots.iterdir())[0].name)
    summary = folder.summary()
    run = dataclasses.replace(summary.run, started_at="2026-11-01T00:00:00.123+00:00", finished_at="2026-11-01T00:09:00.5+00:00")
    unnamed = RecipeRecord("r", "canary-dense", "owner/model", revision=None, quantization=None, kind="canary")
    folder.write_summary(dataclasses.replace(summary, run=dataclasses.replace(run, recipe_id="r"), recipe=unnamed))
    folder.append([ScoreRecord(folder.run_id, "cold", "nll_mean", "p", 1.5), KernelMessageRecord(folder.run_id, 1.0, "NVRM: Xid 13")])
    theirs.rebuild()
    report = export(theirs, tmp_path / "export", "parquet")
    assert (report.tables["runs"], report.tables["boots"]) == (3, 3)
    assert is_export(tmp_path / "export")
    restored = Store(restore(tmp_path / "export", tmp_path / "restored"))
    restored.rebuild()
    assert dump(restored) == dump(theirs)
    assert len(import_boots(store, tmp_path / "restored").imported) == 2
    assert len(import_boots(store, theirs.root).already_here) == 2, "folders and export are the same boots"


def test_csv_holds_the_same_rows_and_cannot_be_imported(theirs: Store, tmp_path: Path) -> None:
    export(theirs, tmp_path / "csv", "csv")
    assert len((tmp_path / "csv" / "runs.csv").read_text().strip().splitlines()) == 4
    with pytest.raises(FolderError, match="Export with --format parquet"):
        restore(tmp_path / "csv", tmp_path / "restored")


def test_an_export_is_never_written_into_a_folder_of_something_else(theirs: Store, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match="not empty"):
        export(theirs, tmp_path / "mine", "parquet")
    export(theirs, tmp_path / "again", "csv")
    export(theirs, tmp_path / "again", "parquet")
    assert not list((tmp_path / "again").glob("*.csv"))


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "damaged"), ('{"format": "parquet", "schema_version": 1}', "schema version 1"), ("[]", "damaged")],
)
def test_an_export_that_is_none_is_refused(theirs: Store, tmp_path: Path, text: str, why: str) -> None:
    export(theirs, tmp_path / "export", "parquet")
    (tmp_path / "export" / MANIFEST).write_text(text)
    with pytest.raises(FolderError, match=why):
        restore(tmp_path / "export", tmp_path / "restored")


def test_a_damaged_file_in_an_export_is_named(theirs: Store, tmp_path: Path) -> None:
    export(theirs, tmp_path / "export", "parquet")
    (tmp_path / "export" / "samples.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(FolderError, match=r"samples\.parquet"):
        restore(tmp_path / "export", tmp_path / "restored")


def test_a_kept_file_of_ours_is_not_replaced_by_theirs(store: Store, theirs: Store) -> None:
    store.keep(ClaimRecord("c1", "ours", "x", "x", 2.0))
    import_boots(store, theirs.root)
    assert json.loads((store.root / "claims" / "c1.json").read_text())["source"] == "ours"
    assert len(KeptFiles(store.root).read_all()[0]) == 2
