import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.envs.build import read_build, wheel_digest
from runners.errors import InfrastructureError


def test_real_environment_is_read_by_its_own_python():
    build = read_build(Path(sys.executable), "vllm", "1.0", "vllm==1.0", os.environ)
    assert any(wheel.startswith("pytest==") for wheel in build.wheels)
    assert list(build.wheels) == sorted(set(build.wheels))
    assert all(name == name.lower() and "_" not in name for name in (wheel.partition("==")[0] for wheel in build.wheels))
    assert (build.digest, build.python_version) == (wheel_digest(build.wheels), ".".join(map(str, sys.version_info[:3])))


@given(st.sets(st.from_regex(r"[a-z]{1,8}==[0-9]{1,3}", fullmatch=True), min_size=1))
def test_digest_tells_every_other_wheel_set_apart(wheels):
    ordered = tuple(sorted(wheels))
    assert wheel_digest(ordered) != wheel_digest((*ordered[:-1], ordered[-1] + "9"))
    assert wheel_digest(ordered) != wheel_digest(ordered[:-1])


@pytest.mark.parametrize("body", ["exit 1", "echo not json", "echo '{}'", "echo '[1]'", "echo '{\"wheels\": [[1]]}'"])
def test_python_that_cannot_answer_is_infrastructure(tmp_path, body):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    python.chmod(0o755)
    with pytest.raises(InfrastructureError, match="packages cannot be listed"):
        read_build(python, "vllm", "1.0", "vllm==1.0", os.environ)


def test_of_a_package_found_twice_the_one_that_is_imported_counts(tmp_path):
    for folder, version in (("first", "2.0"), ("second", "1.0")):
        info = tmp_path / folder / f"some_package-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: Some.Package\nVersion: {version}\n", encoding="utf-8")
    python = tmp_path / "python"
    path = f"{tmp_path / 'first'}:{tmp_path / 'second'}"
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={path} exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    build = read_build(python, "vllm", "1.0", "vllm==1.0", os.environ)
    assert [wheel for wheel in build.wheels if wheel.startswith("some-package==")] == ["some-package==2.0"]


def test_missing_python_is_infrastructure(tmp_path):
    with pytest.raises(InfrastructureError, match="packages cannot be listed"):
        read_build(tmp_path / "python", "vllm", "1.0", "vllm==1.0", os.environ)
