from __future__ import annotations

import pytest

from runners.errors import UsageError
from runners.launchers.images import default_image, image_facts


@pytest.mark.parametrize(
    ("engine", "version", "image", "evidence"),
    [
        ("vllm", "0.28.0", "vllm/vllm-openai:v0.28.0", "seen"),
        ("vllm", "0.19.0", "nvcr.io/nvidia/vllm:26.04-py3", "reported"),
        ("vllm", "0.12.0", "vllm/vllm-openai:v0.12.0-aarch64", "seen"),
        ("sglang", "0.5.14", "lmsysorg/sglang:v0.5.14-cu130", "unverified"),
    ],
)
def test_a_release_has_one_default_image_and_its_evidence(engine: str, version: str, image: str, evidence: str) -> None:
    found, fact = default_image(engine, version, "aarch64")
    assert (found, fact.evidence) == (image, evidence)
    assert fact.source


@pytest.mark.parametrize(
    ("engine", "version", "machine"),
    [
        ("vllm", "0.17.1", "aarch64"),
        ("vllm", "0.12.0", "x86_64"),
        ("vllm", "0.1.dev21830+g1a2b3c", "aarch64"),
        ("vllm", None, "aarch64"),
        ("vllm", "nightly", "aarch64"),
        ("llamacpp", "0.28.0", "aarch64"),
    ],
)
def test_where_no_image_is_known_the_user_is_asked_for_one(engine: str, version: str | None, machine: str) -> None:
    with pytest.raises(UsageError, match=f"Name one: {engine}==.*@docker:IMAGE"):
        default_image(engine, version, machine)


def test_no_default_image_is_a_tag_that_moves() -> None:
    assert all("latest" not in fact.image and "nightly" not in fact.image for fact in image_facts())
