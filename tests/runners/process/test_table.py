from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.process.table import PAGE_BYTES, TICKS_PER_S, carries, machine_boot_id, parse_stat, read_io_bytes, read_stat, read_table

NUMBERS = " 1 2 3 0 -1 4194560 9 9 9 9 {utime} {stime} {cutime} {cstime} 20 0 {threads} 0 {start} 999 {rss} 18446744073709551615 1 1"


def line(name: str = "python", state: str = "S", pid: int = 42, **numbers: int) -> str:
    values = {"utime": 0, "stime": 0, "cutime": 0, "cstime": 0, "threads": 1, "start": 5, "rss": 0, **numbers}
    return f"{pid} ({name}) {state}" + NUMBERS.format(**values)


def test_fields_of_a_stat_line_are_read_with_their_units() -> None:
    p = parse_stat(line(utime=TICKS_PER_S, stime=TICKS_PER_S, cutime=3 * TICKS_PER_S, start=777, rss=10, threads=4))
    assert (p.pid, p.ppid, p.pgid, p.sid, p.start_ticks, p.threads) == (42, 1, 2, 3, 777, 4)
    assert (p.cpu_s, p.waited_cpu_s, p.rss_bytes) == (2.0, 3.0, 10 * PAGE_BYTES)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_process_name_is_read_without_shifting_the_fields(name: str) -> None:
    p = parse_stat(line(name, start=123))
    assert (p.name, p.ppid, p.start_ticks) == (name, 1, 123)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_text_that_is_no_stat_line_is_refused_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a /proc/PID/stat line|invalid literal"):
        parse_stat("x" + text)


@pytest.mark.parametrize(("state", "threads", "alive"), [("S", 1, True), ("D", 1, True), ("Z", 1, False), ("Z", 0, False), ("Z", 2, True)])
def test_zombie_is_dead_unless_a_thread_of_it_still_runs(state: str, threads: int, alive: bool) -> None:
    assert parse_stat(line(state=state, threads=threads)).alive is alive


def test_own_process_is_in_the_table_with_the_start_time_the_kernel_gives() -> None:
    me = read_table()[os.getpid()]
    assert me.start_ticks == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    assert (me.ppid, me.pgid, me.sid) == (os.getppid(), os.getpgid(0), os.getsid(0))
    assert read_stat(os.getpid()) is not None


def test_process_born_while_the_table_is_read_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in (5, 6):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(line(pid=pid))
    listed = iter([["5", "4", "self"], ["6", "5"], ["6", "5"]])
    monkeypatch.setattr("runners.process.table.os.listdir", lambda path: next(listed))
    assert set(read_table(tmp_path)) == {5, 6}


def test_process_that_is_gone_is_none(tmp_path: Path) -> None:
    assert read_stat(1, tmp_path) is None
    assert read_io_bytes(1, tmp_path) is None
    assert not carries(1, "A", "b", tmp_path)


def test_bytes_read_are_counted() -> None:
    before = read_io_bytes(os.getpid())
    Path("/proc/self/maps").read_bytes()
    after = read_io_bytes(os.getpid())
    assert before is not None and after is not None and after > before


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        (b"A=1\0MARK=run-1\0B=2\0", True),
        (b"MARK=run-1\0", True),
        (b"A=1\0MARK=run-1", True),
        (b"MARK=run-12\0", False),
        (b"NOTMARK=run-1\0", False),
        (b"A=MARK=run-1\0", False),
        (b"", False),
    ],
)
def test_mark_is_found_only_as_a_whole_variable(tmp_path: Path, environment: bytes, found: bool) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(environment)
    assert carries(7, "MARK", "run-1", tmp_path) is found


def test_boot_id_is_the_kernels() -> None:
    assert machine_boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
