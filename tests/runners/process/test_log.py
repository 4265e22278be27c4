from __future__ import annotations

from pathlib import Path

import pytest

from runners.process.log import LogLimits, LogTail, log_trouble, read_end, shorten


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (LogLimits(), None),
        (LogLimits(largest_bytes=99), "flood"),
        (LogLimits(largest_bytes=100), None),
        (LogLimits(least_free_bytes=1 << 60), "free at least"),
    ],
)
def test_log_or_disk_over_its_limit_is_trouble_with_a_reason(tmp_path: Path, limits: LogLimits, message: str | None) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * 100)
    trouble = log_trouble(log, limits)
    assert trouble is None if message is None else message in str(trouble)


def test_log_that_does_not_exist_yet_is_no_trouble(tmp_path: Path) -> None:
    assert log_trouble(tmp_path / "server.log") is None
    assert read_end(tmp_path / "server.log") == ""
    assert LogTail(tmp_path / "server.log").appended() == ""


def test_end_of_a_log_is_read_bounded(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"a" * 1000 + b"\xff end")
    assert read_end(log, 5) == "\N{REPLACEMENT CHARACTER} end"
    assert len(read_end(log)) == 1005


def test_tail_gives_each_text_once_and_skips_what_a_flood_buries(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    tail = LogTail(log, most_bytes=10)
    log.write_text("one")
    assert tail.appended() == "one"
    assert tail.appended() == ""
    with log.open("a") as file:
        file.write("two" + "x" * 100 + "last")
    assert tail.appended() == "xxxxxxlast"
    assert tail.appended() == ""


def test_flooded_log_keeps_its_identity_lines_and_its_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"HEAD" + b"x" * 1000 + b"TAIL")
    assert shorten(log, 4, 4) is True
    assert log.read_text() == "HEAD\n[1000 bytes left out here]\nTAIL"


def test_short_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"12345678")
    assert shorten(log, 4, 4) is False
    assert log.read_bytes() == b"12345678"
