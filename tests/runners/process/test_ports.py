from __future__ import annotations

import os
import random
import socket
from types import SimpleNamespace

import psutil
import pytest

from runners.process.ports import Listeners, free_port, port_owner
from tests.runners.process.conftest import Start, eventually


def test_free_port_has_no_owner() -> None:
    assert port_owner(free_port()) == Listeners()


def test_a_free_port_leaves_room_for_the_port_that_sglang_derives_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free := free_port()))
        monkeypatch.setattr(random, "sample", lambda candidates, count: [free, max(candidates), min(candidates)])
        found = free_port()
        assert found != free and found + 10_000 <= 65_535
        monkeypatch.setattr(random, "sample", lambda candidates, count: [free])
        with pytest.raises(OSError, match="no port from"):
            free_port()
    assert not Listeners().any


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "0.0.0.0")])
def test_owner_is_found_on_any_address(family: socket.AddressFamily, host: str) -> None:
    with socket.create_server((host, 0), family=family) as listening:
        assert port_owner(listening.getsockname()[1]) == Listeners(frozenset({os.getpid()}))


def test_connection_that_does_not_listen_is_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as client:
        assert not port_owner(client.getsockname()[1]).any


def test_both_servers_that_share_a_port_are_seen(start: Start) -> None:
    """vLLM sets SO_REUSEPORT: a second server on the same port starts without an error."""
    shared = "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('127.0.0.1', {port})); s.listen()"
    code = f"import socket, time; {shared.format(port=(port := free_port()))}; print('up', flush=True); time.sleep(600)"
    servers = [start(code), start(code)]
    assert eventually(lambda: all(s.log_path.read_bytes() for s in servers))
    assert port_owner(port).pids == {s.handle.pid for s in servers}


def test_listener_of_another_user_is_hidden_and_not_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    unseen = SimpleNamespace(status=psutil.CONN_LISTEN, laddr=SimpleNamespace(ip="127.0.0.1", port=80), pid=None)
    monkeypatch.setattr(psutil, "net_connections", lambda kind: [unseen])
    assert port_owner(80) == Listeners(hidden=True)
    assert port_owner(80).any
    assert not port_owner(81).any
