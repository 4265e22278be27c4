from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from results.records import HealthRecord, KernelMessageRecord, ResourceRecord
from results.vocabulary import Phase
from runners import node_watch
from runners.node.kernel_log import MOST_LINES, KernelLine
from runners.node_watch import NodeWatch

RUN = "20261130T130501Z-1f00ab42"


class Recorder:
    """Keeps rows and warnings."""

    def __init__(self) -> None:
        self.run = SimpleNamespace(run_id=RUN)
        self.rows: list[Any] = []
        self.warnings: list[str] = []

    def append(self, rows: list[Any]) -> None:
        self.rows += rows

    def warn(self, text: str) -> None:
        self.warnings.append(text)


class Checkup:
    """Answers with the verdicts given, in turn, and keeps what it was asked."""

    def __init__(self, *verdicts: str) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[tuple[str, bool, int]] = []

    def look(self, run_id: str, moment: str, python: Path | None, *, probe: bool = True, timed: Any = ()) -> HealthRecord:
        self.asked.append((moment, probe, len(list(timed))))
        return HealthRecord(run_id, "2026-11-30T13:00:00+00:00", moment, self.verdicts.pop(0), ("because",))


class Tail:
    """A kernel log whose new lines are set by the test."""

    def __init__(self, *, readable: bool = True) -> None:
        self.readable = readable
        self.lines: list[str] = []
        self.closed = False

    def new_lines(self) -> tuple[str, ...]:
        lines, self.lines = tuple(self.lines), []
        return lines

    def close(self) -> None:
        self.closed = True


def watch(checkup: Checkup | None, tail: Tail | None = None, distribution: str = "venv") -> NodeWatch:
    boot = SimpleNamespace(
        recorder=Recorder(),
        environment=None,
        cell=SimpleNamespace(spec=SimpleNamespace(distribution=distribution)),
        progress=lambda text: None,
    )
    return NodeWatch(boot, checkup, tail or Tail(), clock=lambda: 1000.0)  # type: ignore[arg-type]


def sample(phase: Phase, at: float = 7.0) -> ResourceRecord:
    return ResourceRecord(RUN, at, phase)


def test_healthy_node_leaves_two_rows_and_no_warning() -> None:
    checkup = Checkup("ok", "ok")
    watched = watch(checkup)
    watched.before()
    for phase in (Phase.READY, Phase.THROUGHPUT, Phase.THROUGHPUT, Phase.RECHECK):
        watched.sample(sample(phase))
    watched.after()
    assert checkup.asked == [("before", True, 0), ("after", True, 2)], "only samples of the timing are judged"
    assert [row.moment for row in watched.boot.recorder.rows] == ["before", "after"]  # type: ignore[union-attr]
    assert (watched.void, watched.boot.recorder.warnings) == (None, [])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("verdicts", "void"), [(("void", "ok"), "before the boot: because"), (("ok", "void"), "after the boot: because")])
def test_void_node_is_a_warning_and_says_when(verdicts: tuple[str, str], void: str) -> None:
    watched = watch(Checkup(*verdicts))
    watched.before()
    watched.after()
    assert watched.void == void
    assert len(watched.boot.recorder.warnings) == 1  # type: ignore[attr-defined]


def test_suspect_node_is_a_warning_and_not_void() -> None:
    watched = watch(Checkup("suspect", "unknown"))
    watched.before()
    watched.after()
    assert watched.void is None
    assert watched.boot.recorder.warnings == ["the node is suspect before the boot: because"]  # type: ignore[attr-defined]


def test_endpoint_is_not_disturbed_by_a_probe() -> None:
    checkup = Checkup("unknown")
    watch(checkup, distribution="endpoint").before()
    assert checkup.asked == [("before", False, 0)]


def test_kernel_lines_are_kept_with_their_time_and_their_number_is_bounded() -> None:
    tail = Tail()
    watched = watch(None, tail)
    tail.lines = ["NVRM: Xid 119"]
    watched.sample(sample(Phase.READY, 12.5))
    assert watched.boot.recorder.rows == [KernelMessageRecord(RUN, 12.5, "NVRM: Xid 119")]  # type: ignore[attr-defined]
    for _ in range(MOST_LINES):
        tail.lines = ["NVRM: again", "NVRM: and again"]
        watched.sample(sample(Phase.READY))
    assert len(watched.boot.recorder.rows) == MOST_LINES  # type: ignore[attr-defined]
    watched.close()
    assert tail.closed


def test_journal_is_asked_after_the_boot_where_the_device_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_watch, "journal_lines", lambda since: (KernelLine("NVRM: Xid 119", since + 33.0),))
    watched = watch(Checkup("ok"), Tail(readable=False))
    watched.after()
    assert KernelMessageRecord(RUN, 33.0, "NVRM: Xid 119") in watched.boot.recorder.rows  # type: ignore[attr-defined]


def test_without_a_checkup_nobody_looks() -> None:
    watched = watch(None)
    watched.before()
    watched.after()
    assert watched.boot.recorder.rows == []  # type: ignore[attr-defined]
