from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from runners.engines.base import ServeCommand
from runners.errors import InfrastructureError, SparkproofError, UsageError
from runners.launchers import docker as containers
from runners.launchers.docker import ContainerProcess, Mount, exit_of, launch, model_mounts, run_argv
from runners.launchers.docker_cli import ImageIdentity
from runners.process.server import Exit, LaunchError
from tests.runners.launchers.conftest import DIES, Stand

IMAGE = ImageIdentity("vllm/vllm-openai:v0.28.0", "sha256:" + "a1" * 32, "vllm/vllm-openai@sha256:" + "c3" * 32, "arm64")
COMMAND = ServeCommand(
    ("python3", "-m", "vllm.entrypoints.cli.main", "serve", "/models/m", "--host", "0.0.0.0", "--port", "18001"),
    {"VLLM_LOGGING_COLOR": "0", "MODEL_TOKEN": "s3cret"},
)
RUN_ID = "20261130T130501Z-1f00ab42"
ARGV = (
    "docker run --detach --pull never --init --name sparkproof-20261130T130501Z-1f00ab42"
    " --label sparkproof.run_id=20261130T130501Z-1f00ab42 --label sparkproof.runner=7:8:boot --gpus all"
    " --ipc host --ulimit memlock=-1:-1 --ulimit stack=67108864:67108864 --publish 127.0.0.1:18001:18001/tcp"
    " --log-driver json-file --log-opt max-size=1g --log-opt max-file=2"
    " --mount type=bind,source=/models/m,target=/models/m,readonly"
    " --mount type=volume,source=sparkproof-cache-a1a1a1a1a1a1,target=/sparkproof-home"
    " --env HOME=/sparkproof-home --env MODEL_TOKEN --env SPARKPROOF_RUN_ID=20261130T130501Z-1f00ab42 --env VLLM_LOGGING_COLOR=0"
    " --entrypoint python3 vllm/vllm-openai@sha256:"
    + "c3" * 32
    + " -m vllm.entrypoints.cli.main serve /models/m --host 0.0.0.0 --port 18001"
)


def _argv(command: ServeCommand = COMMAND) -> tuple[str, ...]:
    return run_argv("docker", command, IMAGE, RUN_ID, "7:8:boot", 18001, [Mount(Path("/models/m"))], has_cuda=True)


def _launched(stand: Stand, folder: Path, **options: Any) -> ContainerProcess:
    folder.mkdir(exist_ok=True)
    inside = options.pop("is_inside", lambda pid, container_id: True)
    return launch(stand.docker, COMMAND, IMAGE, folder, RUN_ID, 18001, is_inside=inside, **options)


def test_the_exact_command_of_a_container() -> None:
    assert " ".join(_argv()) == ARGV


def test_without_a_gpu_none_is_asked_for() -> None:
    assert "--gpus" not in run_argv("docker", COMMAND, IMAGE, RUN_ID, "7:8:boot", 18001, [], has_cuda=False)


@pytest.mark.parametrize("run_id", ["", "a b", "-x", "a/../b", "x" * 101])
def test_a_run_id_that_is_no_container_name_is_refused(run_id: str) -> None:
    with pytest.raises(LaunchError, match="not plain"):
        run_argv("docker", COMMAND, IMAGE, run_id, "7:8:boot", 18001, [], has_cuda=True)


def test_a_server_that_docker_could_not_reach_is_refused() -> None:
    with pytest.raises(LaunchError, match=r"must listen on 0\.0\.0\.0, not on 127\.0\.0\.1"):
        _argv(ServeCommand(("python3", "--host", "127.0.0.1", "--port", "1"), {}))


class _Daemon(BaseHTTPRequestHandler):
    """As much of docker's API as `docker run --detach` asks for."""

    made: dict[str, Any]

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._say(200, None)

    def do_GET(self) -> None:
        self._say(200, {} if "version" in self.path else None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "/containers/create" in self.path:
            type(self).made = {"path": self.path, **json.loads(body)}
            return self._say(201, {"Id": "d4" * 32, "Warnings": []})
        return self._say(500, {"message": 'could not select device driver "" with capabilities: [[gpu]]'})

    def _say(self, status: int, answer: Any) -> None:
        body = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Api-Version", "1.50")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def address_string(self) -> str:
        return "local"


@contextmanager
def _daemon(path: Path) -> Iterator[type[_Daemon]]:
    server = ThreadingUnixStreamServer(str(path), _Daemon)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield _Daemon
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker client here")
def test_the_real_client_understands_the_command_and_its_refusal_is_understood(tmp_path: Path) -> None:
    with _daemon(tmp_path / "d.sock") as daemon:
        environment = {
            **os.environ,
            "DOCKER_HOST": f"unix://{tmp_path / 'd.sock'}",
            "DOCKER_CONFIG": str(tmp_path),
            "MODEL_TOKEN": "s3cret",
        }
        ended = subprocess.run(_argv(), env=environment, capture_output=True, text=True, check=False)
    assert "could not select device driver" in ended.stderr, ended.stderr
    error = containers.explain("run", ended.stderr.splitlines())
    assert "NVIDIA container toolkit" in str(error)
    made, host = daemon.made, daemon.made["HostConfig"]
    assert made["path"].endswith(f"/containers/create?name=sparkproof-{RUN_ID}")
    assert made["Labels"] == {"sparkproof.run_id": RUN_ID, "sparkproof.runner": "7:8:boot"}
    assert sorted(made["Env"]) == ["HOME=/sparkproof-home", "MODEL_TOKEN=s3cret", f"SPARKPROOF_RUN_ID={RUN_ID}", "VLLM_LOGGING_COLOR=0"]
    assert (made["Entrypoint"], made["Cmd"]) == (["python3"], list(COMMAND.argv[1:]))
    assert host["PortBindings"] == {"18001/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18001"}]}
    assert host["Mounts"] == [
        {"Type": "bind", "Source": "/models/m", "Target": "/models/m", "ReadOnly": True},
        {"Type": "volume", "Source": "sparkproof-cache-a1a1a1a1a1a1", "Target": "/sparkproof-home"},
    ]
    assert (host["IpcMode"], host["Init"], host["AutoRemove"]) == ("host", True, False)
    assert host["DeviceRequests"][0]["Count"] == -1
    assert {u["Name"]: (u["Soft"], u["Hard"]) for u in host["Ulimits"]} == {"memlock": (-1, -1), "stack": (67108864, 67108864)}
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-file": "2", "max-size": "1g"}}


def test_a_plain_model_folder_is_mounted_alone(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").touch()
    assert model_mounts(tmp_path / "m") == (Mount(tmp_path / "m"),)


def test_a_snapshot_of_links_is_mounted_with_what_they_point_to(tmp_path: Path) -> None:
    repo = tmp_path / "models--a--b"
    snapshot = repo / "snapshots" / ("0" * 40)
    (repo / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (repo / "blobs" / name).touch()
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    assert model_mounts(snapshot) == (Mount(repo / "blobs"), Mount(snapshot))


def test_a_path_that_a_mount_cannot_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    with pytest.raises(LaunchError, match="comma"):
        model_mounts(tmp_path / "a,b")


def test_a_started_container_is_recorded_and_its_log_followed(stand: Stand, tmp_path: Path) -> None:
    process = _launched(stand, tmp_path / "boot")
    try:
        record = containers.read_record(tmp_path / "boot")
        assert record == process.container
        assert record.launch.pid == process.record.pid in process.members().pids
        assert process.exit() is None
        assert process.listeners().pids == {process.record.pid}
    finally:
        assert containers.remove(stand.docker, process.name)
        process.handle.wait(10)
    assert process.log_path.read_text() == "engine starts\n"
    assert process.exit() == Exit()
    assert not process.listeners().any


def test_a_secret_reaches_docker_but_not_its_command_line(stand: Stand, tmp_path: Path) -> None:
    process = _launched(stand, tmp_path / "boot")
    assert containers.remove(stand.docker, process.name)
    process.handle.wait(10)
    calls = [json.loads(line) for line in (stand.state / "calls.jsonl").read_text().splitlines()]
    run = next(call for call in calls if call["argv"][0] == "run")
    assert run["secret"] == "s3cret"
    assert "s3cret" not in json.dumps([call["argv"] for call in calls])
    assert "s3cret" not in (tmp_path / "boot" / "container.json").read_text()


def test_a_container_that_dies_at_once_keeps_its_exit_code_and_log(stand: Stand, tmp_path: Path) -> None:
    stand.behave(content=DIES)
    process = _launched(stand, tmp_path / "boot")
    process.handle.wait(10)
    assert process.exit() == Exit(code=3)
    assert "no kernel image" in process.log_path.read_text()
    assert containers.remove(stand.docker, process.name)


def test_memory_that_ran_out_is_docker_s_word(stand: Stand, tmp_path: Path) -> None:
    stand.behave(content="import os; os.kill(os.getpid(), 9)", oom_killed=True)
    process = _launched(stand, tmp_path / "boot")
    process.handle.wait(10)
    assert process.exit() == Exit(signal=9)
    assert process.memory_reason() == "docker says OOMKilled"
    assert containers.remove(stand.docker, process.name)


@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', InfrastructureError, "NVIDIA container toolkit"),
        ('exec: "python3": executable file not found in $PATH: unknown', UsageError, "does not hold the program"),
        ("Bind for 127.0.0.1:18001 failed: port is already allocated", InfrastructureError, "port was taken"),
    ],
)
def test_a_refused_start_leaves_no_container(stand: Stand, tmp_path: Path, message: str, error: type[SparkproofError], words: str) -> None:
    stand.behave(run=message)
    with pytest.raises(error, match=words):
        _launched(stand, tmp_path / "boot")
    assert stand.containers() == []


def test_a_container_of_that_name_which_is_not_ours_is_left_alone(stand: Stand, tmp_path: Path) -> None:
    folder = stand.state / "containers" / f"sparkproof-{RUN_ID}"
    folder.mkdir()
    (folder / "container.json").write_text(json.dumps({"id": "e5" * 32, "labels": {}, "publish": "127.0.0.1:1:1/tcp"}))
    with pytest.raises(LaunchError, match=r"exists and is not ours.*docker rm --force"):
        _launched(stand, tmp_path / "boot")
    assert stand.containers() == [f"sparkproof-{RUN_ID}"]
    assert not stand.calls("rm")


def test_a_container_whose_processes_we_cannot_see_is_removed_again(stand: Stand, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"not in this machine's process table.*on the node itself"):
        _launched(stand, tmp_path / "boot", is_inside=lambda pid, container_id: False)
    assert stand.containers() == []


def test_a_container_that_cannot_be_removed_after_a_failed_start_is_named(stand: Stand, tmp_path: Path) -> None:
    stand.behave(run="port is already allocated", rm_fails=True)
    with pytest.raises(InfrastructureError) as caught:
        _launched(stand, tmp_path / "boot")
    assert caught.value.__notes__ == [f"The container sparkproof-{RUN_ID} could not be removed."]


def test_a_daemon_that_does_not_answer_says_nothing_about_the_container(stand: Stand, tmp_path: Path) -> None:
    process = _launched(stand, tmp_path / "boot")
    stand.behave(daemon="down")
    assert process.exit() is None
    stand.behave(daemon="")
    assert containers.remove(stand.docker, process.name)
    process.handle.wait(10)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"Status": "running", "ExitCode": 0}, None),
        ({"Status": "created", "ExitCode": 0}, None),
        ({"Status": "exited", "ExitCode": 0}, Exit(code=0)),
        ({"Status": "exited", "ExitCode": 1}, Exit(code=1)),
        ({"Status": "exited", "ExitCode": 137}, Exit(signal=9)),
        ({"Status": "dead", "ExitCode": 255}, Exit(code=255)),
        ({"Status": "exited"}, Exit()),
    ],
)
def test_docker_s_state_is_read_as_an_exit(state: dict[str, object], expected: Exit | None) -> None:
    assert exit_of({"State": state}) == expected


def test_the_kernel_says_which_container_a_process_belongs_to(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cgroup").write_text(f"0::/system.slice/docker-{'d4' * 32}.scope\n")
    assert containers.belongs_to(12, "d4" * 32, tmp_path)
    assert not containers.belongs_to(12, "e5" * 32, tmp_path)
    assert not containers.belongs_to(13, "d4" * 32, tmp_path)


@pytest.mark.parametrize("text", ["{}", '{"name": "x", "image": "i", "container_id": null, "launch": {}}', "[", '{"launch": 3}'])
def test_a_record_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "container.json").write_text(text)
    with pytest.raises(ValueError):
        containers.read_record(tmp_path)
