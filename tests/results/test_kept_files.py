"""Sessions, claims and ignores outlive the database and change exactly the verdicts they concern."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from results.errors import FolderError, StoreError
from results.kept_files import KeptFiles
from results.kept_records import ClaimRecord, IgnoreRecord, KeptRecord, SessionRecord
from results.store import Store
from results.vocabulary import Outcome
from tests.results.conftest import MakeBoot, dump, minutes

SESSION = SessionRecord("s0", "node", "run", minutes(0))
CLAIM = ClaimRecord("c0", "a forum", "llama-benchy", "decode_tok_s", 42.0, engine="vllm")


def _broken_cell(store: Store, make_boot: MakeBoot) -> str:
    """A cell that broke in 0.32.0, confirmed; returns the finding's id."""
    for number, version in enumerate(["0.31.0", "0.32.0", "0.32.0"]):
        outcome = Outcome.PASS if version == "0.31.0" else Outcome.CRASH
        decode = (100.0,) if outcome is Outcome.PASS else ()
        store.ingest(make_boot(version=version, outcome=outcome, decode=decode, started_at=minutes(10 * number), session=f"s{number}"))
    (finding,) = store.query("SELECT finding_id, stage FROM findings")
    assert finding["stage"] == "confirmed"
    return str(finding["finding_id"])


def _ignore(finding_id: str) -> IgnoreRecord:
    return IgnoreRecord(
        finding_id, "vllm", "canary-dense", "eager", "node", "outcome", "broke", "0.31.0", "0.32.0", "known upstream", minutes(99)
    )


@pytest.mark.parametrize("record", [SESSION, CLAIM, _ignore("0123456789ab")])
def test_a_kept_record_is_a_file_and_a_row_and_survives_a_rebuild(store: Store, record: KeptRecord) -> None:
    store.keep(record)
    before = dump(store)
    store.database.unlink()
    assert store.rebuild().skipped == {}
    assert dump(store) == before
    assert sum(len(before[table]) for table in ("sessions", "claims", "ignores")) == 1
    assert KeptFiles(store.root).read_all() == ([record], {})


def test_an_ignored_finding_raises_no_alarm_until_the_note_is_taken_back(store: Store, make_boot: MakeBoot) -> None:
    finding = _broken_cell(store, make_boot)
    store.keep(_ignore(finding))
    assert store.query("SELECT stage, note FROM findings") == [{"stage": "ignored", "note": "known upstream"}]
    assert store.take_back(IgnoreRecord, finding)
    assert store.query("SELECT stage, note FROM findings") == [{"stage": "confirmed", "note": None}]
    assert store.query("SELECT * FROM ignores") == []
    assert not store.take_back(IgnoreRecord, finding)


def test_a_session_that_becomes_void_takes_its_boots_out_of_the_verdict(store: Store, make_boot: MakeBoot) -> None:
    _broken_cell(store, make_boot)
    for session in ("s1", "s2"):
        store.keep(SessionRecord(session, "node", "run", minutes(0), void=True, void_reason="the probe was off"))
    assert store.query("SELECT * FROM findings") == []
    assert store.query("SELECT state, verdict FROM matrix WHERE release = '0.32.0'") == [{"state": "not_run", "verdict": None}]
    assert store.query("SELECT exclusions->>'void_session' AS left_out FROM histories") == [{"left_out": "2"}]
    assert {row["counted_as"] for row in store.query("SELECT counted_as FROM boots WHERE session_void")} == {"infrastructure"}


def test_files_written_while_the_database_was_away_are_stored_by_the_next_start(store: Store, make_boot: MakeBoot) -> None:
    finding = _broken_cell(store, make_boot)
    KeptFiles(store.root).write(_ignore(finding))
    KeptFiles(store.root).write(dataclasses.replace(SESSION, session_id="s1", void=True))
    store.ingest_pending()
    assert store.query("SELECT stage FROM findings") == [{"stage": "ignored"}]
    assert [row["void"] for row in store.query("SELECT void FROM sessions")] == [True]
    before = dump(store)
    store.ingest_pending()
    assert dump(store) == before


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("sessions/s0.json", '{"session_id": "s0", "node', "damaged"),
        ("claims/c0.json", "[]", "damaged"),
        ("claims/c1.json", '{"claim_id": "c2", "source": "x", "tool": "x", "metric": "x", "value": 1}', "says it is 'c2'"),
        ("ignores/x.json", " " * 1_000_001, "larger than"),
        ("sessions/s1.json", '{"session_id": "s1", "node_id": "n", "kind": "run", "started_at": "yesterday"}', "no ISO 8601 time"),
    ],
)
def test_a_damaged_file_is_named_and_left_out(store: Store, make_boot: MakeBoot, name: str, text: str, why: str) -> None:
    folder = make_boot()
    path = store.root / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    report = store.rebuild()
    assert report.ingested == (folder.run_id,)
    (reason,) = report.skipped.values()
    assert why in reason
    assert store.ingest_pending().ingested == ()


@pytest.mark.parametrize("record_id", ["../s", "", "a/b", ".hidden", "a" * 65, "a.b"])
def test_an_id_never_becomes_a_path_unchecked(store: Store, record_id: str) -> None:
    with pytest.raises(FolderError, match="not an id"):
        store.keep(dataclasses.replace(SESSION, session_id=record_id))
    with pytest.raises(FolderError, match="not an id"):
        store.take_back(SessionRecord, record_id)


def test_a_disk_that_takes_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        KeptFiles(tmp_path).write(SESSION)
