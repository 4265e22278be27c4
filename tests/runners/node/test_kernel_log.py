from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from runners.node.kernel_log import CONCERNS_US, KernelTail, journal_lines, shown

XID = "NVRM: Xid (PCI:000f:01:00): 119, pid=2212, name=VLLM::EngineCor, Timeout after 6s of waiting for RPC response from GPU0 GSP!"
"""As in public reports about GB10 nodes whose whole host hung (Xid 119)."""
NO_MEMORY = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"
KILLED = "Out of memory: Killed process 4242 (VLLM::EngineCor) total-vm:98765432kB, anon-rss:61234567kB"


@pytest.mark.parametrize("line", [XID, NO_MEMORY, KILLED, "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)"])
def test_lines_about_the_gpu_and_memory_concern_us(line: str) -> None:
    assert CONCERNS_US.search(line)


@pytest.mark.parametrize("line", ["eth0: link up", "audit: type=1400 apparmor=DENIED", "perf: interrupt took too long", "Xidious"])
def test_other_lines_do_not(line: str) -> None:
    assert not CONCERNS_US.search(line)


def kernel_record(number: int, message: str) -> str:
    return f"6,{number},{number * 1000},-;{message}\n"


def test_only_lines_written_after_the_start_are_told(tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    device.write_text(kernel_record(1, KILLED))
    tail = KernelTail(device)
    assert tail.readable
    assert tail.new_lines() == ()
    with device.open("a") as file:
        file.write(kernel_record(2, XID))
    assert tail.new_lines() == (XID,)
    assert tail.new_lines() == ()
    tail.close()
    assert not tail.readable


def test_overwritten_records_are_passed_over_and_a_dead_device_ends_the_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(
        [OSError(errno.EPIPE, "overwritten"), kernel_record(7, NO_MEMORY).encode(), OSError(errno.EAGAIN, ""), OSError(errno.EIO, "")]
    )

    def read(fd: int, size: int) -> bytes:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    device = tmp_path / "kmsg"
    device.touch()
    tail = KernelTail(device)
    monkeypatch.setattr(os, "read", read)
    assert tail.new_lines() == (NO_MEMORY,)
    assert tail.readable
    assert tail.new_lines() == ()
    assert not tail.readable


def test_device_that_may_not_be_opened_is_not_readable(tmp_path: Path) -> None:
    tail = KernelTail(tmp_path / "missing")
    assert not tail.readable
    assert tail.new_lines() == ()


def test_journal_is_read_where_the_device_may_not_be() -> None:
    text = f"1796054400.123456 spark-3f2a kernel: {XID}\n1796054401.000001 spark-3f2a kernel: eth0: link up\nnonsense\n"
    (line,) = journal_lines(1796054399.0, lambda since: text)
    assert (line.line, line.epoch_s) == (XID, 1796054400.123456)
    assert journal_lines(0.0, lambda since: None) == ()


def test_hostile_process_name_cannot_bring_escapes_into_the_record() -> None:
    assert "\x1b" not in shown("NVRM: name=\x1b[31mred\nnext")
    assert "\n" not in shown("NVRM: name=\x1b[31mred\nnext")
    assert len(shown("NVRM " * 10_000)) <= 500


def test_the_serial_number_of_a_board_is_not_kept() -> None:
    assert shown("NVRM: GPU Board Serial Number: 1650000000000") == "NVRM: GPU Board Serial Number: [redacted]"
    uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    assert shown(f"NVRM: GPU at PCI:0000:00:06: {uuid}") == "NVRM: GPU at PCI:0000:00:06: GPU-[redacted]"
