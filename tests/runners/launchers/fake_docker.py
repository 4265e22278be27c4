#!/usr/bin/env python3
"""A stand-in for the `docker` program: the same words, exit codes and life of a container, with a local process as its content.

The content is the Python text `content` of the behaviour, or, if that names `programs`, the container's own command with its entrypoint
replaced by the program of that name. State lies in the folder $FAKE_DOCKER: `behaviour.json` says what goes wrong, every container has a
folder, and `calls.jsonl` holds every argument list and whether a secret came through the environment. Messages are those of docker 28.2.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

STATE = Path(os.environ["FAKE_DOCKER"])
BEHAVIOUR = json.loads((STATE / "behaviour.json").read_text())
FLAGS = {"--detach", "--init", "--force", "--volumes", "--all", "--no-trunc", "--follow"}
DAEMON = {
    "down": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    "forbidden": "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
}


def fail(message: str, code: int = 1) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(code)


def split(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Options before the first positional argument, and everything from it on."""
    options: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)
        options.setdefault(name, []).append("" if name in FLAGS else rest.pop(0))
    return options, rest


def folders() -> list[Path]:
    return sorted(p for p in (STATE / "containers").iterdir() if (p / "container.json").exists())


def find(name: str) -> Path:
    for folder in folders():
        if name in (folder.name, json.loads((folder / "container.json").read_text())["id"]):
            return folder
    fail(f"Error response from daemon: No such container: {name}")
    raise AssertionError


def running(folder: Path) -> int:
    """The process of a running container, 0 if it has ended or never started."""
    return 0 if (folder / "exit").exists() or not (folder / "pid").exists() else int((folder / "pid").read_text())


def inspect(folder: Path) -> dict[str, object]:
    made = json.loads((folder / "container.json").read_text())
    pid = running(folder)
    code = int((folder / "exit").read_text()) if (folder / "exit").exists() else 0
    host, port, inside = made["publish"].split(":")
    ports = {inside: [{"HostIp": host, "HostPort": port}]} if pid else {}
    status = "running" if pid else "exited" if (folder / "exit").exists() else "created"
    oom = bool(BEHAVIOUR.get("oom_killed")) and not pid
    state = {"Status": status, "Pid": pid, "ExitCode": code, "OOMKilled": oom}
    return {"Id": made["id"], "State": state, "Config": {"Labels": made["labels"]}, "NetworkSettings": {"Ports": ports}}


def run(arguments: list[str]) -> None:
    options, rest = split(arguments)
    name = options["--name"][0]
    folder = STATE / "containers" / name
    if (folder / "container.json").exists():
        other = json.loads((folder / "container.json").read_text())["id"]
        fail(f'docker: Error response from daemon: Conflict. The container name "/{name}" is already in use by container "{other}".', 125)
    container_id = secrets.token_hex(32)
    labels = dict(label.split("=", 1) for label in options["--label"])
    folder.mkdir(parents=True)
    made = {"id": container_id, "labels": labels, "publish": options["--publish"][0], "env": options.get("--env", [])}
    (folder / "container.json").write_text(json.dumps({**made, "command": [options["--entrypoint"][0], *rest[1:]]}))
    if "run" in BEHAVIOUR:
        fail(f"docker: Error response from daemon: {BEHAVIOUR['run']}\n\nRun 'docker run --help' for more information", 125)
    with (folder / "log").open("w") as log:
        subprocess.Popen(
            [sys.executable, __file__, "_shim", str(folder)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    while not (folder / "pid").exists():
        time.sleep(0.005)
    print(container_id)


def shim(folder: Path) -> None:
    """Start the content, and write down how it ended."""
    made = json.loads((folder / "container.json").read_text())
    entrypoint, *arguments = made["command"]
    program = BEHAVIOUR.get("programs", {}).get(entrypoint)
    command = [program, *arguments] if program else [sys.executable, "-c", BEHAVIOUR["content"]]
    given = {name: value for name, equals, value in (text.partition("=") for text in made["env"]) if equals}
    child = subprocess.Popen(command, env={**os.environ, **given}, start_new_session=True)
    (folder / ".pid").write_text(str(child.pid))
    (folder / ".pid").replace(folder / "pid")
    code = child.wait()
    (folder / ".exit").write_text(str(code if code >= 0 else 128 - code))
    (folder / ".exit").replace(folder / "exit")


def kill(arguments: list[str]) -> None:
    options, rest = split(arguments)
    folder = find(rest[0])
    pid = running(folder)
    if not pid:
        fail(f"Error response from daemon: cannot kill container: {rest[0]}: container is not running")
    os.kill(pid, signal.Signals[f"SIG{options.get('--signal', ['KILL'])[0]}"])
    print(rest[0])


def remove(arguments: list[str]) -> None:
    _, rest = split(arguments)
    if BEHAVIOUR.get("rm_fails"):
        fail("Error response from daemon: cannot remove container: device or resource busy")
    folder = find(rest[0])
    pid = running(folder)
    if pid:
        os.kill(pid, signal.SIGKILL)
        while running(folder):
            time.sleep(0.005)
    (folder / "container.json").rename(folder / "removed.json")
    print(rest[0])


def logs(arguments: list[str]) -> None:
    _, rest = split(arguments)
    folder = find(rest[0])
    with (folder / "log").open("rb") as log:
        while True:
            ended = not running(folder)
            sys.stdout.buffer.write(log.read())
            sys.stdout.buffer.flush()
            if ended:
                return
            time.sleep(0.01)


def ps(arguments: list[str]) -> None:
    options, _ = split(arguments)
    wanted = options["--filter"][0].removeprefix("label=").partition("=")
    for folder in folders():
        made = json.loads((folder / "container.json").read_text())
        if wanted[0] not in made["labels"] or (wanted[1] and made["labels"][wanted[0]] != wanted[2]):
            continue
        line = options["--format"][0].replace("{{.ID}}", made["id"])
        for label, value in made["labels"].items():
            line = line.replace('{{.Label "' + label + '"}}', value)
        print(line)


def image_inspect(name: str) -> None:
    images = json.loads((STATE / "images.json").read_text())
    if name not in images:
        fail(f"Error response from daemon: No such image: {name}")
    print(json.dumps(images[name]))


def pull(name: str) -> None:
    for line in BEHAVIOUR.get("pull_lines", []):
        print(line, flush=True)
    if "pull" in BEHAVIOUR:
        fail(f"Error response from daemon: {BEHAVIOUR['pull']}")
    images = json.loads((STATE / "images.json").read_text())
    (STATE / "images.json").write_text(json.dumps({**images, name: BEHAVIOUR["pulled"]}))
    print(f"Status: Downloaded newer image for {name}")


def main(arguments: list[str]) -> None:
    if arguments[0] == "_shim":
        return shim(Path(arguments[1]))
    with (STATE / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps({"argv": arguments, "secret": os.environ.get("MODEL_TOKEN")}) + "\n")
    if arguments[:2] == ["context", "inspect"]:
        return print(BEHAVIOUR.get("host", "unix:///var/run/docker.sock"))
    if BEHAVIOUR.get("daemon") in DAEMON:
        fail(DAEMON[BEHAVIOUR["daemon"]])
    if arguments[:2] == ["container", "inspect"]:
        options, rest = split(arguments[2:])
        found = inspect(find(rest[0]))
        layout = options["--format"][0]
        labels: dict[str, str] = found["Config"]["Labels"]  # type: ignore[index]
        return print(json.dumps(found) if layout == "{{json .}}" else labels.get(layout.split('"')[1], ""))
    if arguments[:2] == ["image", "inspect"]:
        return image_inspect(split(arguments[2:])[1][0])
    if arguments[0] == "version":
        return print("28.2.2")
    if arguments[0] == "pull":
        return pull(arguments[1])
    return {"run": run, "kill": kill, "rm": remove, "logs": logs, "ps": ps}[arguments[0]](arguments[1:])


main(sys.argv[1:])
