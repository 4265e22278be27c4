from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.errors import StoreError
from runners.nightly.state import NightState, StateFile

NOW = datetime(2026, 12, 1, 2, 0, tzinfo=UTC)
SIX = timedelta(hours=6)
CUT_OFF = NightState("s1", "2026-12-01T01:30:00+00:00", "boot-1", finished=False)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "new")
    file.write(CUT_OFF)
    assert file.read() == CUT_OFF
    assert file.update(finished=True).finished
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["nightly.json"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"finished": "what"}', '{"began_at": "yesterday"}', '{"began_at": "2026-12-01T01:30:00"}']
)
def test_damaged_state_is_an_empty_one(tmp_path: Path, content: str) -> None:
    file = StateFile(tmp_path)
    file.path.write_text(content)
    assert file.read() == NightState()


def test_missing_state_is_an_empty_one(tmp_path: Path) -> None:
    assert StateFile(tmp_path).read() == NightState()


def test_disk_that_refuses_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        StateFile(tmp_path / "file").write(CUT_OFF)


@pytest.mark.parametrize(
    ("state", "now", "budget", "boot", "goes_on"),
    [
        (CUT_OFF, NOW, SIX, "boot-1", True),
        (CUT_OFF, NOW, None, "boot-1", True),
        (CUT_OFF, NOW, SIX, "boot-2", False),
        (CUT_OFF, NOW + SIX, SIX, "boot-1", False),
        (CUT_OFF, NOW + timedelta(hours=21), None, "boot-1", False),
        (CUT_OFF, NOW - SIX, SIX, "boot-1", False),
        (NightState("s1", CUT_OFF.began_at, "boot-1", finished=True), NOW, SIX, "boot-1", False),
        (NightState(), NOW, SIX, "boot-1", False),
    ],
    ids=["killed", "no budget", "rebooted", "budget over", "another night", "clock set back", "finished", "first night"],
)
def test_a_session_goes_on_only_while_it_is_the_same_night(
    state: NightState, now: datetime, budget: timedelta | None, boot: str, goes_on: bool
) -> None:
    assert state.goes_on(now, budget, boot) is goes_on


def test_self_check_is_due_monthly_and_the_first_time() -> None:
    month = timedelta(days=30)
    assert NightState().self_check_due(NOW, month)
    assert not NightState(last_self_check_at="2026-11-15T00:00:00+00:00").self_check_due(NOW, month)
    assert NightState(last_self_check_at="2026-10-15T00:00:00+00:00").self_check_due(NOW, month)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = StateFile(tmp_path_factory.mktemp("state"))
    file.path.write_bytes(content)
    assert isinstance(file.read(), NightState)


def test_unknown_fields_of_a_newer_version_do_not_stop_the_night(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    file.path.write_text(json.dumps({"session_id": "s9", "new_field": 1}))
    assert file.read().session_id in ("s9", None)
