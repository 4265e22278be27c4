"""Publication dates from lock files as uv 0.8 to 0.9 writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.envs.published import publication_dates, uploaded_at

LOCK = """
lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "vllm"
version = "0.31.0"
sdist = { url = "x/vllm-0.31.0.tar.gz", upload-time = 2026-10-05T07:47:02Z, size = 43419411, hashes = { sha256 = "d" } }
wheels = [{ url = "x/vllm-0.31.0.whl", upload-time = 2026-10-05T07:40:41Z, size = 3, hashes = { sha256 = "e" } }]
"""
DATE = datetime(2026, 10, 5, 7, 40, 41, tzinfo=UTC)


def test_the_earliest_file_tells_when_a_release_was_published() -> None:
    assert uploaded_at(LOCK) == DATE


@pytest.mark.parametrize(
    "lock",
    [
        "",
        "not toml [",
        "packages = 1",
        "packages = [1]",
        '[[packages]]\nname = "vllm"',
        '[[packages]]\nname = "vllm"\nsdist = { url = "x" }\nwheels = [{ url = "y", upload-time = "soon" }]',
    ],
)
def test_a_lock_without_upload_times_leaves_the_date_unknown(lock: str) -> None:
    assert uploaded_at(lock) is None


@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    assert uploaded_at(text) is None or "upload-time" in text


def test_a_date_is_asked_for_once_and_kept(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(package: str, version: str) -> str | None:
        asked.append(version)
        return LOCK

    kept = tmp_path / "cache" / "dates.json"
    for _ in range(2):
        assert publication_dates([("vllm", "0.31.0")], kept, ask) == {("vllm", "0.31.0"): DATE}
    assert asked == ["0.31.0"]


def test_an_index_that_does_not_answer_is_left_alone_after_two_releases_and_nothing_is_invented(tmp_path: Path) -> None:
    asked: list[str] = []

    def silent(package: str, version: str) -> str | None:
        asked.append(version)
        return None

    kept = tmp_path / "dates.json"
    assert publication_dates([("vllm", f"0.{n}.0") for n in range(30)], kept, silent) == {}
    assert len(asked) == 2
    assert not kept.exists()


@pytest.mark.parametrize("content", ["", "[]", "nonsense", json.dumps({"vllm==0.31.0": "yesterday"}), json.dumps({"vllm==0.31.0": 3})])
def test_a_damaged_file_of_dates_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    kept = tmp_path / "dates.json"
    kept.write_text(content)
    assert publication_dates([("vllm", "0.31.0")], kept, lambda package, version: LOCK) == {("vllm", "0.31.0"): DATE}
