"""What a page says of the nights."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboard.nightly import Nights, nights

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "systemd" / "user"
    folder.mkdir(parents=True)
    return folder / "sparkproof-nightly.timer"


def test_without_files_nothing_is_claimed(tmp_path: Path, config: Path) -> None:
    assert nights(tmp_path, NOW) == Nights(None, None, None, None)


@pytest.mark.parametrize(("at", "day"), [("02:30", 1), ("11:59", 1), ("23:15", 30)])
def test_the_next_night_is_the_next_time_the_timer_names(tmp_path: Path, config: Path, at: str, day: int) -> None:
    config.write_text(f"[Timer]\nOnCalendar=*-*-* {at}:00\nPersistent=true\n")
    found = nights(tmp_path, NOW).next_at
    assert found is not None
    assert (found.day, f"{found:%H:%M}") == (day, at)


def test_the_last_night_is_read_from_its_state(tmp_path: Path, config: Path) -> None:
    (tmp_path / "nightly.json").write_text(json.dumps({"began_at": "2026-11-30T01:00:00+00:00", "finished": True}))
    found = nights(tmp_path, NOW)
    assert (found.began_at, found.finished) == ("2026-11-30T01:00:00+00:00", True)


@pytest.mark.parametrize("damaged", ["", "[1]", "{", '{"began_at": 5, "finished": "yes"}', "\x00" * 50])
def test_damaged_files_are_as_good_as_none(tmp_path: Path, config: Path, damaged: str) -> None:
    (tmp_path / "nightly.json").write_text(damaged)
    config.write_text(damaged)
    assert nights(tmp_path, NOW) == Nights(None, None, None, None)
