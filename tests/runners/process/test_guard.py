from __future__ import annotations

from runners.process.guard import LogGuard
from runners.process.log import LogLimits
from runners.process.server import Exit
from tests.runners.process.conftest import Start, eventually


def test_flooding_server_is_killed_and_the_reason_is_kept(start: Start) -> None:
    server = start("while True: print('x' * 1000)")
    guard = LogGuard(server, LogLimits(largest_bytes=1 << 20))

    def checked() -> bool:
        guard.check()
        return guard.trouble is not None

    assert eventually(checked)
    assert eventually(lambda: server.exit() == Exit(signal=9))
    assert "flood" in str(guard.trouble)


def test_quiet_server_is_left_alone(start: Start) -> None:
    server = start("import time; time.sleep(600)")
    guard = LogGuard(server)
    guard.check()
    assert (guard.trouble, server.exit()) == (None, None)
