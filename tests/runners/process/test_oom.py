from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from runners.process.oom import (
    KernelReport,
    KernelWitness,
    matching_line,
    parse_kernel_record,
    parse_oom_kills,
    read_kernel_log,
    read_oom_kills,
)

OOM_LINE = "Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:104857600kB, anon-rss:98765432kB, file-rss:0kB, UID:1000"
DRIVER_LINE = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from _memdescAllocInternal"


@pytest.mark.parametrize(
    ("record", "parsed"),
    [
        ("3,1234,987654321,-;" + OOM_LINE + "\n SUBSYSTEM=x\n", (1234, OOM_LINE)),
        ("6,0,0,-;hello; world", (0, "hello; world")),
        ("garbage", None),
        ("3,x,1,-;m", None),
        ("", None),
    ],
)
def test_kernel_log_record_is_split(record: str, parsed: tuple[int, str] | None) -> None:
    assert parse_kernel_record(record) == parsed


def test_kernel_log_that_may_not_be_read_is_unknown_and_not_empty(tmp_path: Path) -> None:
    assert read_kernel_log(-1, tmp_path / "none") is None


def test_only_records_after_the_launch_are_read(tmp_path: Path) -> None:
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    keep_open = os.open(fifo, os.O_RDWR)
    try:
        os.write(keep_open, b"6,5,1,-;before")
        assert read_kernel_log(5, fifo) == ()
        os.write(keep_open, b"6,6,1,-;after")
        assert read_kernel_log(5, fifo) == ((6, "after"),)
    finally:
        os.close(keep_open)


@pytest.mark.parametrize(("text", "kills"), [("nr_free 1\noom_kill 3\nx 4\n", 3), ("nr_free 1\n", None), ("oom_kill x\n", None)])
def test_oom_kills_are_counted_where_the_kernel_counts(text: str, kills: int | None) -> None:
    assert parse_oom_kills(text) == kills


def test_this_kernel_counts_kills_since_a_look() -> None:
    assert read_oom_kills() is not None
    assert read_oom_kills(Path("/proc/none")) is None
    now = KernelWitness.now()
    assert replace(now, oom_kills=(now.oom_kills or 0) - 2).report().oom_kills == 2
    assert replace(now, oom_kills=None).report().oom_kills is None


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (KernelReport(0, ()), None),
        (KernelReport(None, None), None),
        (KernelReport(1, None), "OOM killer ended 1 process"),
        (KernelReport(0, ("eth0 up", DRIVER_LINE)), "NV_ERR_NO_MEMORY"),
        (KernelReport(None, (OOM_LINE,)), "Killed process 4242"),
    ],
)
def test_kernel_is_believed_about_memory(report: KernelReport, said: str | None) -> None:
    reason = report.memory_reason()
    assert reason is None if said is None else said in str(reason)


def test_last_matching_line_among_the_last_is_found_bounded() -> None:
    pattern = (re.compile("needle"),)
    log = "needle old\n" + "x\n" * 500 + "needle 1\nneedle 2\nend\n"
    assert matching_line(log, pattern) == "needle 2"
    assert matching_line("needle old\n" + "x\n" * 500, pattern) is None
    assert matching_line("y" * 5000 + "needle", pattern) is None
