from __future__ import annotations

import pytest

from runners.process.log import LogLimits
from runners.process.server import Exit
from runners.process.vitals import Vitals, Watch, is_telling
from tests.runners.process.conftest import Start, eventually


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ('INFO:     127.0.0.1:4242 - "GET /health HTTP/1.1" 503 Service Unavailable\n', False),
        ('(APIServer pid=1) INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n\n', False),
        ("\n  \n", False),
        ("", False),
        ("INFO 11-30 13:07:00 [core.py:105] Loading weights\n", True),
        ('127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\nTraceback (most recent call last):\n', True),
    ],
)
def test_access_log_of_our_own_polls_is_no_sign_of_life(text: str, telling: bool) -> None:
    assert is_telling(text) is telling


@pytest.mark.parametrize(
    ("wrote", "cpu_s", "io_bytes", "active"),
    [(False, 0.0, 0, False), (True, 0.0, 0, True), (False, 0.04, 0, False), (False, 0.06, 0, True), (False, 0, 300_000, True)],
)
def test_any_of_log_cpu_and_disk_counts_as_activity(wrote: bool, cpu_s: float, io_bytes: int, active: bool) -> None:
    assert Vitals(None, wrote, cpu_s, io_bytes, frozenset()).active(1.0) is active


def test_work_of_a_silent_grandchild_is_seen(start: Start) -> None:
    """A compiler: another process, in another session, that writes nothing to the log."""
    server = start("import subprocess, sys; subprocess.run([sys.executable, '-I', '-S', '-c', 'while True: pass'], start_new_session=True)")
    watch = Watch(server)
    assert eventually(lambda: len(server.members().pids) == 2)
    watch.look()
    assert eventually(lambda: watch.look().active(0.02))


def test_work_of_a_compiler_that_has_ended_is_seen(start: Start) -> None:
    child = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    code = f"""
import os, subprocess, sys, time
while not os.path.exists("go"):
    time.sleep(0.02)
subprocess.run([sys.executable, "-I", "-S", "-c", {child!r}])
print("done", flush=True)
time.sleep(600)
"""
    server = start(code)
    watch = Watch(server)
    watch.look()
    (server.folder / "go").touch()
    assert eventually(lambda: server.log_path.read_text() == "done\n")
    assert watch.look().cpu_s >= 0.28  # the kernel counts in ticks


def test_bytes_read_by_the_server_are_seen(start: Start) -> None:
    server = start("import time\ntime.sleep(0.3)\nwhile True: open('/dev/zero', 'rb').read(4 << 20); time.sleep(0.05)")
    watch = Watch(server)
    assert eventually(lambda: watch.look().io_bytes > 1 << 20)


def test_silent_sleeper_shows_nothing_after_its_start(start: Start) -> None:
    server = start("import time; print('begin', flush=True); time.sleep(600)")
    watch = Watch(server)
    assert eventually(lambda: watch.look().wrote)
    assert eventually(lambda: not watch.look().active(1.0))
    seen = watch.look()
    assert (seen.wrote, seen.io_bytes, seen.exit, seen.pids) == (False, 0, None, frozenset({server.handle.pid}))


def test_end_and_trouble_are_seen(start: Start) -> None:
    server = start("print('x' * 1000, flush=True); raise SystemExit(7)")
    watch = Watch(server, LogLimits(largest_bytes=500))
    assert eventually(lambda: watch.look().exit is not None)
    seen = watch.look()
    assert seen.exit == Exit(code=7)
    assert seen.trouble is not None and "flood" in seen.trouble
