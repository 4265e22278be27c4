from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.node.memory import MemInfo, parse_meminfo, private_memory_bytes, read_memory, used_memory_bytes

DATA = Path(__file__).parents[2] / "data" / "node"
KIB = 1024


@pytest.mark.parametrize(
    ("name", "total", "available", "swap"),
    [("x86-vm-meminfo.txt", 24684084, None, 0), ("gb10-meminfo.txt", 127600748, 118566368, 16777212)],
)
def test_recorded_meminfo_is_read_in_bytes(name: str, total: int, available: int | None, swap: int) -> None:
    info = parse_meminfo((DATA / name).read_text())
    assert (info.total_bytes, info.swap_total_bytes, info.huge_pages_total) == (total * KIB, swap * KIB, 0)
    assert info.available_bytes is not None and info.available_bytes > 0
    if available is not None:
        assert info.used_bytes == (total - available) * KIB


def test_page_cache_is_not_used_memory() -> None:
    info = parse_meminfo("MemTotal: 100 kB\nMemFree: 5 kB\nMemAvailable: 80 kB\nCached: 75 kB\n")
    assert info.used_bytes == 20 * KIB


@pytest.mark.parametrize("text", ["", "MemTotal: 100 kB\n", "MemAvailable: 1 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal\n"])
def test_used_memory_is_unknown_unless_both_fields_are_there(text: str) -> None:
    assert parse_meminfo(text).used_bytes is None


@settings(deadline=None)
@given(st.text())
def test_any_other_text_is_read_as_unknown_without_an_error(text: str) -> None:
    assert isinstance(parse_meminfo(text), MemInfo)


@settings(deadline=None)
@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_used_is_total_minus_available(total: int, available: int) -> None:
    assert parse_meminfo(f"MemTotal:  {total} kB\nMemAvailable: {available} kB").used_bytes == (total - available) * KIB


def test_this_machine_is_read(tmp_path: Path) -> None:
    assert read_memory().total_bytes == psutil.virtual_memory().total
    used = used_memory_bytes()
    assert used is not None and 0 < used < psutil.virtual_memory().total
    assert read_memory(tmp_path / "none") == MemInfo()


def test_private_memory_is_the_sum_over_all_processes_that_can_be_read(tmp_path: Path) -> None:
    for pid, text in (
        ("1", "Name:\ta\nRssAnon:\t  100 kB\nRssFile:\t 7 kB\n"),
        ("22", "RssAnon:\t 20 kB\n"),
        ("3", "Name: kernel thread\n"),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "status").write_text(text)
    (tmp_path / "4").mkdir()
    assert private_memory_bytes(tmp_path) == 120 * 1024
    assert private_memory_bytes(tmp_path / "4") is None


def test_memory_that_this_process_takes_is_seen_as_private() -> None:
    before = private_memory_bytes()
    block = bytearray(b"x") * (200 << 20)
    after = private_memory_bytes()
    assert before is not None and after is not None and len(block) == 200 << 20
    assert after - before > 100 << 20
