from __future__ import annotations

from dataclasses import replace

import pytest

from runners.errors import InfrastructureError, SparkproofError, UsageError
from runners.launchers.docker_cli import ImageIdentity, explain
from tests.runners.launchers.conftest import IMAGE, Stand

PULL_LINES = [
    "v0.28.0: Pulling from vllm/vllm-openai",
    "7646c8da3324: Pulling fs layer",
    "df1b2cfa9a31: Pulling fs layer",
    "7646c8da3324: Download complete",
    "7646c8da3324: Pull complete",
    "df1b2cfa9a31: Pull complete",
    "Digest: sha256:" + "c3" * 32,
]


def test_a_usable_daemon_says_its_version(stand: Stand) -> None:
    assert stand.docker.check() == "28.2.2"


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"daemon": "down"}, "the docker daemon does not run.*systemctl start docker"),
        ({"daemon": "forbidden"}, "this user may not use docker.*docker group"),
        ({"host": "tcp://10.0.0.7:2375"}, "not on this machine.*DOCKER_HOST"),
    ],
)
def test_a_daemon_that_cannot_be_used_is_explained(stand: Stand, behaviour: dict[str, str], words: str) -> None:
    stand.behave(**behaviour)
    with pytest.raises(InfrastructureError, match=words):
        stand.docker.check()


def test_a_node_without_docker_is_told_the_alternatives(stand: Stand) -> None:
    with pytest.raises(InfrastructureError, match=r"there is no /nowhere/docker program.*@venv"):
        replace(stand.docker, program="/nowhere/docker").check()


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ("manifest for vllm/vllm-openai:v9 not found: manifest unknown: manifest unknown", UsageError, "no such image"),
        ("pull access denied for a/b, repository does not exist or may require 'docker login'", UsageError, "docker login"),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", UsageError, "not built for this machine"),
        ("write /var/lib/docker/tmp/x: no space left on device", InfrastructureError, "docker system df"),
        ("toomanyrequests: You have reached your pull rate limit", InfrastructureError, "limits downloads"),
        ('Get "https://registry/v2/": dial tcp: lookup registry: no such host', InfrastructureError, "registry cannot be reached"),
        ('could not select device driver "" with capabilities: [[gpu]]', InfrastructureError, "NVIDIA container toolkit"),
        ("unknown or invalid runtime name: nvidia", InfrastructureError, "nvidia-ctk"),
        ("Bind for 127.0.0.1:8000 failed: port is already allocated", InfrastructureError, "port was taken"),
        ('exec: "python9": executable file not found in $PATH: unknown', UsageError, "does not hold the program"),
        ("something nobody has seen", InfrastructureError, "something nobody has seen"),
    ],
)
def test_what_docker_says_becomes_cause_and_next_step(message: str, kind: type[SparkproofError], words: str) -> None:
    error = explain("pull", ["Using default tag", f"Error response from daemon: {message}", "See 'docker run --help'."])
    assert type(error) is kind
    assert words in str(error)
    assert message[:40] in str(error)


def test_what_docker_says_is_shown_without_escapes_and_credentials() -> None:
    error = explain("pull", ["\x1b[31mGet https://me:hunter22@registry/v2/: denied\x1b[0m"])
    assert "hunter22" not in str(error)
    assert "\x1b" not in str(error)


def test_an_image_is_pulled_once_with_progress_and_known_by_its_digest(stand: Stand) -> None:
    stand.behave(pull_lines=PULL_LINES)
    said: list[str] = []
    image = stand.docker.ensure_image("vllm/vllm-openai:v0.33.0", "aarch64", said.append)
    assert said == [
        "pulling vllm/vllm-openai:v0.33.0",
        "pulling vllm/vllm-openai:v0.33.0: 1 of 2 layers",
        "pulling vllm/vllm-openai:v0.33.0: 2 of 2 layers",
    ]
    assert image.digest == image.reference == "vllm/vllm-openai@sha256:" + "c3" * 32
    stand.docker.ensure_image("vllm/vllm-openai:v0.33.0", "aarch64", said.append)
    assert len(stand.calls("pull")) == 1


def test_an_image_built_here_is_known_by_its_id(stand: Stand) -> None:
    stand.behave(pulled={**IMAGE, "RepoDigests": []})
    image = stand.docker.ensure_image("vllm-node:latest", "aarch64", lambda _: None)
    assert (image.digest, image.reference) == (None, IMAGE["Id"])


def test_an_image_of_another_architecture_is_refused_before_a_container_is_made(stand: Stand) -> None:
    with pytest.raises(UsageError, match="built for arm64, this machine is amd64"):
        stand.docker.ensure_image("vllm/vllm-openai:v0.28.0", "x86_64", lambda _: None)


def test_a_failed_pull_says_why(stand: Stand) -> None:
    stand.behave(pull="manifest unknown")
    with pytest.raises(UsageError, match="vllm/vllm-openai:v9: there is no such image"):
        stand.docker.ensure_image("vllm/vllm-openai:v9", "aarch64", lambda _: None)


def test_the_digest_is_the_one_of_the_named_repository(stand: Stand) -> None:
    stand.behave(pulled={**IMAGE, "RepoDigests": ["x@sha256:1", "localhost:5000/a/b@sha256:2"]})
    for name in ("localhost:5000/a/b:v1", "localhost:5000/a/b"):
        found = stand.docker.ensure_image(name, "aarch64", lambda _: None)
        assert found == ImageIdentity(name, str(IMAGE["Id"]), "localhost:5000/a/b@sha256:2", "arm64")
