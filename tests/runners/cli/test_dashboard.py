"""`sparkproof dashboard` and `sparkproof demo` from the shell."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "SPARKPROOF_HOME": str(root / "home"), "SPARKPROOF_CACHE": str(root / "cache"), "PYTHONPATH": str(REPOSITORY)}


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runners.cli.main", *arguments]
    return subprocess.run(command, env=_environment(root), capture_output=True, text=True, timeout=120, check=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = _run(tmp_path, "dashboard", "--port", str(port))
    assert done.returncode == 2
    assert f"try --port {port + 1}" in done.stderr


def test_an_address_that_is_not_here_is_refused(tmp_path: Path) -> None:
    done = _run(tmp_path, "dashboard", "--host", "192.0.2.77", "--port", str(_free_port()))
    assert done.returncode == 2
    assert "192.0.2.77" in done.stderr


@pytest.mark.parametrize(("command", "host"), [("dashboard", "127.0.0.1"), ("demo", "127.0.0.1"), ("dashboard", "0.0.0.0")])
def test_it_serves_says_where_and_ends_when_told(tmp_path: Path, command: str, host: str) -> None:
    port = _free_port()
    arguments = [sys.executable, "-m", "runners.cli.main", command, "--host", host, "--port", str(port), "--json"]
    errors = tmp_path / "errors"
    with errors.open("wb") as err:
        server = subprocess.Popen(arguments, env=_environment(tmp_path), stdout=subprocess.PIPE, stderr=err, start_new_session=True)
    try:
        told = json.loads(_first_object(server))
        assert told["url"] == f"http://{host}:{port}"
        assert told["store"].startswith(str(tmp_path))
        assert _answers(port, server)
        assert ("There is no password" in errors.read_text()) == (host == "0.0.0.0")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        assert server.wait(20) is not None


def _first_object(server: subprocess.Popen[bytes]) -> str:
    assert server.stdout is not None
    lines = []
    for line in server.stdout:
        lines.append(line.decode())
        if line.startswith(b"}"):
            break
    return "".join(lines)


def _answers(port: int, server: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as answer:
                return bool(answer.read() == b"ok")
        except OSError:
            time.sleep(0.2)
    return False
