"""What a visit leaves about itself (`SessionRecord`)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from results.errors import StoreError
from results.kept_records import SessionRecord
from results.store import Store
from results.vocabulary import Outcome, Purpose
from runners.session import _close

SESSION = SessionRecord("s1", "n1", "run", "2026-11-30T13:00:00+00:00")


def made(run_id: str = "r1", *, purpose: Purpose = Purpose.MEASURE, outcome: Outcome = Outcome.PASS, void: str | None = None) -> Any:
    return SimpleNamespace(run=SimpleNamespace(run_id=run_id, purpose=purpose, outcome=outcome), void=void, notes=[])


def closed(tmp_path: Path, *results: Any) -> dict[str, Any]:
    store = Store(tmp_path)
    _close(SESSION, store, results)
    (row,) = store.query("SELECT * FROM sessions")
    return row


def test_sound_visit_is_kept_with_its_end_and_its_anchor(tmp_path: Path) -> None:
    row = closed(tmp_path, made("a", purpose=Purpose.ANCHOR), made("b"))
    assert (row["void"], row["void_reason"], row["anchor_run_id"]) == (False, None, "a")
    assert row["finished_at"] is not None


@pytest.mark.parametrize(
    ("first", "second", "void"),
    [
        ("before the boot: slow", None, True),
        (None, "before the boot: slow", False),
        ("after the boot: slow", None, False),
        (None, None, False),
    ],
    ids=["off from the beginning", "off later", "off after the first boot", "never off"],
)
def test_visit_is_void_only_if_the_node_was_off_before_its_first_boot(
    tmp_path: Path, first: str | None, second: str | None, void: bool
) -> None:
    assert closed(tmp_path, made(void=first), made(void=second))["void"] is void


def test_anchor_that_failed_is_no_anchor(tmp_path: Path) -> None:
    assert closed(tmp_path, made("a", purpose=Purpose.ANCHOR, outcome=Outcome.CRASH))["anchor_run_id"] is None


def test_visit_that_cannot_be_kept_loses_no_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(record: SessionRecord) -> None:
        raise StoreError("the disk is full")

    store = Store(tmp_path)
    monkeypatch.setattr(store, "keep", refuse)
    result = made()
    _close(SESSION, store, [result])
    assert "the disk is full" in result.notes[0]
