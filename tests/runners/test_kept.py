"""A server left running with --keep-server is never measured beside unseen."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.store import Store
from runners.kept import kept_servers
from runners.process.table import ProcessStat, read_stat
from tests.planted import Planted, plant


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """A planted world with one kept server, which is ended afterwards."""
    planted = plant(tmp_path_factory.mktemp("kept"))
    code, shown = planted.run("--keep-server")
    assert code == 0, shown
    try:
        yield planted
    finally:
        for server in kept_servers(Store(planted.home)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


def test_a_kept_server_is_found_with_the_command_that_ends_it(world: Planted) -> None:
    (server,) = kept_servers(Store(world.home))
    assert server.end_by_hand == f"kill -- -{server.pid}"
    assert str(server.port) in server.sentence()


def test_the_next_measurement_is_refused_with_the_way_out(world: Planted) -> None:
    (server,) = kept_servers(Store(world.home))
    before = sorted(path.name for path in (world.home / "boots").iterdir())
    code, said = world.run()
    assert code == 3
    words = " ".join(said.split())
    assert server.run_id in words
    assert server.end_by_hand in words
    assert "--beside-kept" in words
    assert sorted(path.name for path in (world.home / "boots").iterdir()) == before


def test_told_to_measure_beside_it_every_boot_says_so(world: Planted) -> None:
    code, shown = world.run("--beside-kept")
    assert code == 0, shown
    assert any(warning.startswith("measured beside another server: ") for warning in shown["cells"][0]["warnings"])


def test_attaching_to_the_kept_server_is_no_measurement_beside_it(world: Planted) -> None:
    (server,) = kept_servers(Store(world.home))
    spec = f"vllm=={world.version}@endpoint:http://127.0.0.1:{server.port}"
    done = world.sparkproof("run", "--engine", spec, "--model", "canary-dense", "--backend", "default", "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cells"][0]["outcome"] == "pass"


def test_a_number_that_belongs_to_another_process_now_is_no_kept_server(world: Planted) -> None:
    def later(pid: int) -> ProcessStat | None:
        found = read_stat(pid)
        return None if found is None else ProcessStat(**{**vars(found), "start_ticks": found.start_ticks + 1})

    assert kept_servers(Store(world.home), stat=later) == []
    assert kept_servers(Store(world.home), boot_id=lambda: "another boot of the machine") == []


def test_a_store_without_boots_has_no_kept_servers(tmp_path: Path) -> None:
    assert kept_servers(Store(tmp_path)) == []


def test_one_boot_at_a_time_can_be_kept(world: Planted) -> None:
    done = world.sparkproof("run", "--engine", "vllm==0.32.0", "--model", "canary-dense", "--boots", "2", "--keep-server")
    assert done.returncode == 2
    assert "--keep-server is for one boot, this plan has 2" in " ".join(done.stderr.split())
