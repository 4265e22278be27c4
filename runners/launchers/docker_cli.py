"""The `docker` program: run it, and say in words what it refuses.

Trap: "docker failed" hides whether the daemon is off, the user may not use it, the image does not exist, or the GPU runtime is missing, and
each needs another step. Rule: every call is an argument list with a time limit, and what docker says is turned into one sentence of cause
and one of what to do; unknown words are shown as they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.redact import plain, redact
from runners.envs.command import Finished, run_command
from runners.errors import InfrastructureError, SparkproofError, UsageError

_LAYER_DONE = ("Pull complete", "Already exists")
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}


@dataclass(frozen=True)
class _Refusal:
    pattern: re.Pattern[str]
    error: type[SparkproofError]
    cause: str
    todo: str


def _refusal(pattern: str, error: type[SparkproofError], cause: str, todo: str) -> _Refusal:
    return _Refusal(re.compile(pattern, re.IGNORECASE), error, cause, todo)


_REFUSALS = (
    _refusal(
        r"permission denied while trying to connect",
        InfrastructureError,
        "this user may not use docker.",
        "Add the user to the docker group (`sudo usermod -aG docker $USER`) and log in again.",
    ),
    _refusal(
        r"cannot connect to the docker daemon|is the docker daemon running|error during connect",
        InfrastructureError,
        "the docker daemon does not run.",
        "Start it: `sudo systemctl start docker`.",
    ),
    _refusal(
        r"no space left on device",
        InfrastructureError,
        "the disk of docker's images is full.",
        "See `docker system df`; free space with `docker image prune`.",
    ),
    _refusal(
        r"could not select device driver|unknown or invalid runtime name: nvidia|nvidia-container-cli|unresolvable CDI devices",
        InfrastructureError,
        "docker cannot give a container the GPU.",
        "Install the NVIDIA container toolkit, run `sudo nvidia-ctk runtime configure --runtime=docker` and restart docker.",
    ),
    _refusal(
        r"no matching manifest for|exec format error|does not match the (?:detected|specified) host platform",
        UsageError,
        "the image is not built for this machine's architecture.",
        "Name an image for it (GB10: arm64).",
    ),
    _refusal(
        r"manifest unknown|not found: manifest|pull access denied|repository does not exist|no such image|name unknown"
        r"|requested access to the resource is denied",
        UsageError,
        "there is no such image, or it needs a login.",
        "Check its name and tag; for a private one run `docker login`.",
    ),
    _refusal(r"toomanyrequests|pull rate limit", InfrastructureError, "the registry limits downloads.", "Wait, or run `docker login`."),
    _refusal(
        r"port is already allocated|address already in use",
        InfrastructureError,
        "the port was taken by somebody else.",
        "Try again: another port is chosen each time.",
    ),
    _refusal(
        r"executable file not found in \$PATH|no such file or directory: unknown|exec: \"",
        UsageError,
        "the image does not hold the program that was to be started.",
        "Name an image of that engine.",
    ),
    _refusal(
        r"no such host|i/o timeout|tls handshake timeout|connection refused|network is unreachable|context deadline exceeded",
        InfrastructureError,
        "the registry cannot be reached.",
        "Check the network and docker's proxy settings.",
    ),
)


@dataclass(frozen=True)
class ImageIdentity:
    """A local image. `digest` is what a registry calls it (`name@sha256:...`), None for one that was built here."""

    name: str
    image_id: str
    digest: str | None
    architecture: str

    @property
    def reference(self) -> str:
        """What to run: the digest or the id, never the tag, which may move."""
        return self.digest or self.image_id


Run = Callable[..., Finished]


@dataclass(frozen=True)
class Docker:
    """One docker client. `run` is `run_command` or a stand-in with the same arguments."""

    program: str = "docker"
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    run: Run = run_command
    folder: Path = Path("/")

    def ask(self, *arguments: str, timeout_s: float = 30.0, **streaming: Any) -> Finished:
        """Run `docker ARGUMENTS` whatever comes of it; `streaming` as in `run_command`. Raises InfrastructureError without a docker."""
        try:
            return self.run([self.program, *arguments], environment=self.environment, folder=self.folder, timeout_s=timeout_s, **streaming)
        except FileNotFoundError as error:
            todo = "Install docker, or give the engine as @venv or @endpoint:URL."
            raise InfrastructureError(f"there is no {self.program} program on this node.", todo=todo) from error
        except OSError as error:
            raise InfrastructureError(f"{self.program} cannot be started: {error.strerror}.", todo="Check its permissions.") from error

    def must(self, *arguments: str, timeout_s: float = 30.0) -> str:
        """Standard output of `docker ARGUMENTS`. Raises UsageError or InfrastructureError in words if it fails."""
        finished = self.ask(*arguments, timeout_s=timeout_s)
        if finished.returncode is None:
            raise InfrastructureError(f"`docker {arguments[0]}` did not end within {timeout_s:.0f} s.", todo="Check the docker daemon.")
        if finished.returncode != 0:
            raise explain(arguments[0], finished.messages)
        return finished.output

    def check(self) -> str:
        """The daemon's version. Raises InfrastructureError if it cannot be used, or runs on another machine than we do."""
        where = self.must("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").strip()
        if not where.startswith("unix://"):
            message = f"docker is set to a daemon that is not on this machine ({plain(redact(where), 100)})."
            raise InfrastructureError(message, todo="Run Sparkproof on that machine, or unset DOCKER_HOST.")
        return self.must("version", "--format", "{{.Server.Version}}").strip()

    def image(self, name: str) -> ImageIdentity | None:
        """The local image of that name; None if it is not here."""
        finished = self.ask("image", "inspect", "--format", "{{json .}}", name)
        if finished.returncode != 0:
            error = explain("image inspect", finished.messages)
            if isinstance(error, UsageError):
                return None
            raise error
        return _identity(name, _json(finished.output))

    def ensure_image(self, name: str, machine: str, progress: Callable[[str], None]) -> ImageIdentity:
        """The image, pulled if it is not here. Raises in words; UsageError for one of another architecture than `machine`."""
        found = self.image(name)
        if found is None:
            self.pull(name, progress)
            found = self.image(name)
        if found is None:
            raise InfrastructureError(f"docker pulled {name}, but does not have it.", todo="Try `docker pull` by hand.")
        wanted = _ARCHITECTURES.get(machine, machine)
        if found.architecture not in ("", wanted):
            message = f"the image is built for {found.architecture}, this machine is {wanted}."
            raise UsageError(message, where=name, todo="Name an image for this machine, or remove the local copy and pull again.")
        return found

    def pull(self, name: str, progress: Callable[[str], None], timeout_s: float = 4 * 3600) -> None:
        """Download an image; a line to `progress` whenever a layer is complete. Finished layers survive an interruption."""
        layers: dict[str, bool] = {}

        def on_line(line: str) -> None:
            layer, colon, state = line.partition(": ")
            if colon and re.fullmatch(r"[0-9a-f]{6,64}", layer):
                layers[layer] = layers.get(layer, False) or state.startswith(_LAYER_DONE)
                if state.startswith(_LAYER_DONE):
                    progress(f"pulling {name}: {sum(layers.values())} of {len(layers)} layers")

        progress(f"pulling {name}")
        finished = self.ask("pull", name, timeout_s=timeout_s, on_message=on_line, all_messages=True)
        if finished.returncode is None:
            raise InfrastructureError(
                f"pulling {name} took more than {timeout_s / 3600:.0f} h.", todo="Try again: finished layers are kept."
            )
        if finished.returncode != 0:
            raise explain("pull", finished.messages, where=name)


def explain(command: str, messages: Sequence[str], where: str = "") -> SparkproofError:
    """What docker's words mean: UsageError (the image), InfrastructureError (everything else)."""
    said = "\n".join(messages[-20:])[-4000:]
    shown = plain(redact(_last_words(messages)), 300)
    for refusal in _REFUSALS:
        if refusal.pattern.search(said):
            return refusal.error(f"{refusal.cause} (docker says: {shown})", where=where, todo=refusal.todo)
    return InfrastructureError(f"`docker {command}` failed: {shown or 'without a word'}.", where=where, todo="Try it by hand.")


def _last_words(messages: Sequence[str]) -> str:
    told = [line.strip() for line in messages if line.strip() and not line.strip().startswith("See 'docker")]
    return told[-1] if told else ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InfrastructureError(f"docker's answer is not JSON: {plain(text, 80)!r}.", todo="Check `docker version`.") from error


def _identity(name: str, found: Any) -> ImageIdentity:
    image_id = found.get("Id") if isinstance(found, dict) else None
    if not isinstance(image_id, str) or not image_id.startswith("sha256:"):
        raise InfrastructureError("docker describes the image without an id.", where=name, todo="Check `docker version`.")
    digests = [d for d in found.get("RepoDigests") or () if isinstance(d, str) and "@sha256:" in d]
    repository = name.partition("@")[0]
    repository = repository.rpartition(":")[0] if ":" in repository.rpartition("/")[2] else repository
    own = [d for d in digests if d.partition("@")[0].removeprefix("docker.io/") == repository.removeprefix("docker.io/")]
    architecture = found.get("Architecture")
    return ImageIdentity(name, image_id, next(iter(own or digests), None), architecture if isinstance(architecture, str) else "")
