from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runners.engines.base import ServeCommand
from runners.errors import InfrastructureError
from runners.process.log import LogLimits
from runners.process.members import MARK
from runners.process.server import Exit, LaunchError, LaunchRecord, launch, read_record, server_environment, write_record
from runners.process.table import machine_boot_id, read_stat
from tests.runners.process.conftest import Start, eventually, marked, never_needs_memory, python_command


def test_server_leads_its_own_session_with_no_input_and_its_output_in_the_log(start: Start, tmp_path: Path) -> None:
    leads = "os.getsid(0) == os.getpgid(0) == os.getpid()"
    server = start(f"import os, sys; print({leads}, repr(sys.stdin.read()), os.getcwd()); print('e', file=sys.stderr)")
    assert eventually(lambda: server.exit() is not None)
    assert sorted(server.log_path.read_text().splitlines()) == sorted([f"True '' {server.folder}", "e"])
    assert server.folder.parent == tmp_path


def test_process_json_lets_a_later_start_find_the_server(start: Start, run_id: str) -> None:
    server = start("import time; time.sleep(600)", port=8123)
    stat, me = read_stat(server.handle.pid), read_stat(os.getpid())
    assert stat is not None and me is not None
    found = json.loads((server.folder / "process.json").read_text())
    assert found == {
        "run_id": run_id,
        "port": 8123,
        "machine_boot_id": machine_boot_id(),
        "runner_pid": os.getpid(),
        "runner_start_ticks": me.start_ticks,
        "memory_baseline_bytes": 0,
        "private_baseline_bytes": 0,
        "pid": server.handle.pid,
        "start_ticks": stat.start_ticks,
    }
    assert read_record(server.folder) == server.record


def test_process_json_is_on_disk_before_the_server_exists(tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[LaunchRecord | None] = []

    def no_start(*arguments: object, **options: object) -> None:
        found.append(read_record(tmp_path))
        raise OSError("killed here")

    monkeypatch.setattr("runners.process.server.subprocess.Popen", no_start)
    with pytest.raises(LaunchError, match="killed here"):
        launch(python_command("pass"), tmp_path, run_id, 1, used_memory=never_needs_memory, private_memory=never_needs_memory)
    assert [(r.run_id, r.pid) for r in found if r] == [(run_id, None)]


def test_environment_carries_the_mark_and_only_our_engine_switches(start: Start, monkeypatch: pytest.MonkeyPatch, run_id: str) -> None:
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "LEAKED")
    monkeypatch.setenv("SGLANG_X", "LEAKED")
    monkeypatch.setenv("PYTHONPATH", "/leaked")
    monkeypatch.setenv("KEPT", "yes")
    server = start("import os, json; print(json.dumps(dict(os.environ)))", VLLM_USE_V1="1")
    assert eventually(lambda: server.exit() is not None)
    environment = json.loads(server.log_path.read_text())
    assert "LEAKED" not in environment.values() and "PYTHONPATH" not in environment
    assert (environment["KEPT"], environment["VLLM_USE_V1"], environment[MARK], environment["SPT_NOENV"]) == ("yes", "1", run_id, "1")


def test_command_cannot_take_the_mark_away() -> None:
    command = ServeCommand(("x",), {MARK: "other", "SPT_NOENV": ""})
    assert server_environment({MARK: "outer"}, command, "run") == {MARK: "run", "SPT_NOENV": "1"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": ServeCommand(("/no/such/program",), {})}, "No such file"),
        ({"command": ServeCommand((), {})}, "empty"),
        ({"command": ServeCommand((sys.executable, "a\0b"), {})}, "null byte"),
        ({"run_id": "a\nb"}, "run id"),
        ({"run_id": ""}, "run id"),
        ({"folder": "missing"}, "no such folder"),
        ({"log_limits": LogLimits(least_free_bytes=1 << 60)}, "free at least"),
    ],
)
def test_launch_that_cannot_be_is_refused_as_our_fault_and_leaves_nothing(
    tmp_path: Path, run_id: str, change: dict[str, Any], message: str
) -> None:
    asked = {"command": python_command("import time; time.sleep(600)"), "run_id": run_id, "log_limits": LogLimits(), **change}
    folder = tmp_path / asked.pop("folder", ".")
    with pytest.raises(LaunchError, match=message) as refused:
        launch(
            asked["command"],
            folder,
            asked["run_id"],
            1,
            log_limits=asked["log_limits"],
            used_memory=never_needs_memory,
            private_memory=never_needs_memory,
        )
    assert isinstance(refused.value, InfrastructureError)
    assert marked(run_id) == set()


def test_folder_of_another_boot_is_refused(start: Start, run_id: str) -> None:
    server = start("import time; time.sleep(600)")
    with pytest.raises(LaunchError, match="folder of its own"):
        launch(python_command("pass"), server.folder, run_id, 1, used_memory=never_needs_memory, private_memory=never_needs_memory)
    assert marked(run_id) == {server.handle.pid}
    assert read_record(server.folder) == server.record


def test_server_is_killed_if_its_record_cannot_be_written(tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_once_started(folder: Path, record: LaunchRecord) -> None:
        if record.pid is not None:
            raise LaunchError("disk full")

    monkeypatch.setattr("runners.process.server.write_record", fail_once_started)
    with pytest.raises(LaunchError, match="disk full"):
        launch(
            python_command("import time; time.sleep(600)"),
            tmp_path,
            run_id,
            1,
            used_memory=never_needs_memory,
            private_memory=never_needs_memory,
        )
    assert marked(run_id) == set()


@pytest.mark.parametrize(
    ("code", "expected", "text"),
    [
        ("raise SystemExit(7)", Exit(code=7), "exited with code 7"),
        ("import os; os.kill(os.getpid(), 9)", Exit(signal=9), "was killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", Exit(signal=40), "was killed by signal 40"),
    ],
)
def test_exit_is_seen_without_giving_up_the_number(start: Start, code: str, expected: Exit, text: str) -> None:
    server = start(code)
    assert eventually(lambda: server.exit() is not None)
    assert server.exit() == server.exit() == expected
    assert str(expected) == text
    held = read_stat(server.handle.pid)
    assert held is not None and held.start_ticks == server.record.start_ticks
    assert server.reap() == expected == server.exit()
    assert read_stat(server.handle.pid) is None


def test_status_that_somebody_else_took_is_unknown_and_not_zero(start: Start) -> None:
    server = start("raise SystemExit(7)")
    os.waitpid(server.handle.pid, 0)
    assert server.exit() == Exit()
    assert str(Exit()) == "ended (status lost)"
    server.handle.returncode = 0


def test_running_server_has_no_exit(start: Start) -> None:
    server = start("import time; time.sleep(600)")
    assert server.exit() is None
    assert server.reap() is None
    os.kill(server.handle.pid, signal.SIGKILL)


RECORD = LaunchRecord("run-1", 8000, "boot", 5, 6, None)


def test_nothing_launched_is_no_record(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [{"pid": "1; kill -9 -1"}, {"pid": True}, {"port": None}, {"run_id": "a b"}, {"run_id": 3}, {"machine_boot_id": None}, {"extra": 1}],
    ids=str,
)
def test_record_that_is_not_ours_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "process.json").write_text(json.dumps({**asdict(RECORD), **change}))
    with pytest.raises(ValueError):
        read_record(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(JSON | st.fixed_dictionaries({}, optional={name: JSON for name in asdict(RECORD)}))
def test_any_other_json_is_refused_with_a_value_error(tmp_path: Path, content: object) -> None:
    (tmp_path / "process.json").write_text(json.dumps(content))
    with pytest.raises(ValueError):
        read_record(tmp_path)


RECORDS = st.builds(
    LaunchRecord,
    run_id=st.text("aZ09._:+-", min_size=1, max_size=50),
    port=st.integers(1, 65535),
    machine_boot_id=st.text(max_size=40),
    runner_pid=st.integers(1),
    runner_start_ticks=st.integers(0),
    memory_baseline_bytes=st.none() | st.integers(0),
    pid=st.none() | st.integers(1),
    start_ticks=st.none() | st.integers(0),
)


@given(RECORDS)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_record_comes_back_as_it_was_written(tmp_path: Path, record: LaunchRecord) -> None:
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert [p.name for p in tmp_path.iterdir()] == ["process.json"]
