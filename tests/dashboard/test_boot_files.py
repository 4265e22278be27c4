"""Which files of a boot's folder a page may show, and which line of a log is marked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dashboard.boot_files import LOG, log_lines, read
from results.errors import FolderError
from results.store import Store

RUN = "20261101T060000Z-00000001"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    (store.boots / RUN).mkdir(parents=True)
    return store


def test_a_log_is_read_without_its_secrets(store: Store) -> None:
    (store.boots / RUN / LOG).write_text("Authorization: Bearer abcdefghijklmnop\nready\n")
    assert read(store, RUN, LOG) == "Authorization: Bearer [redacted]\nready\n"


def test_a_missing_log_is_none(store: Store) -> None:
    assert read(store, RUN, LOG) is None


def test_only_the_end_of_a_huge_log_is_read(store: Store) -> None:
    (store.boots / RUN / LOG).write_bytes(b"x" * (6 * 2**20) + b"\nthe end")
    text = read(store, RUN, LOG)
    assert text is not None
    assert len(text) == 4 * 2**20
    assert text.endswith("the end")


@pytest.mark.parametrize("run", ["../../etc", "..", "", "20261101T060000Z-00000001/../..", RUN + "\n"])
def test_what_is_no_run_id_reads_nothing(store: Store, run: str) -> None:
    with pytest.raises(FolderError):
        read(store, run, LOG)


@pytest.mark.parametrize("name", ["../secret", "run.json", "/etc/passwd"])
def test_no_other_file_is_read(store: Store, name: str) -> None:
    with pytest.raises(ValueError, match="no file of a boot"):
        read(store, RUN, name)


def test_a_link_out_of_the_folder_is_not_followed(store: Store, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (store.boots / RUN / LOG).symlink_to(secret)
    assert read(store, RUN, LOG) is None


def test_a_folder_that_is_a_link_is_not_entered(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / LOG).write_text("secret")
    other = RUN[:-1] + "2"
    (store.boots / other).symlink_to(outside)
    assert read(store, other, LOG) is None


def test_a_pipe_in_place_of_a_log_does_not_hang(store: Store) -> None:
    os.mkfifo(store.boots / RUN / LOG)
    assert read(store, RUN, LOG) is None


def test_the_decisive_lines_are_marked_in_their_surroundings() -> None:
    log = "\n".join(f"line {index}" for index in range(1_000))
    shown = log_lines(log, "line 500\nline 501\n")
    assert [own.number for own in shown if own.decisive] == [501, 502]
    assert (shown[0].number, shown[-1].number) == (351, 650)


def test_without_a_decisive_line_the_end_is_shown() -> None:
    shown = log_lines("\n".join(f"line {index}" for index in range(1_000)), None)
    assert shown[-1].text == "line 999"
    assert len(shown) == 300


def test_an_excerpt_that_the_log_does_not_hold_marks_nothing() -> None:
    assert not any(own.decisive for own in log_lines("a\nb\nc", "z"))
