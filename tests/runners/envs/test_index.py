from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from runners.envs.command import Finished
from runners.envs.index import list_versions, nearest_versions
from runners.errors import InfrastructureError

DATA = Path(__file__).parents[2] / "data" / "envs" / "pip"


def recorded(name, returncode=1):
    messages = (DATA / f"{name}.err").read_text(encoding="utf-8").splitlines()
    return lambda distribution: Finished(returncode, (DATA / f"{name}.out").read_text(encoding="utf-8"), tuple(messages))


def test_recorded_answer_of_pip_is_read_newest_first():
    versions = list_versions("sglang", recorded("versions", 0))
    assert (len(versions), str(versions[0]), str(versions[8])) == (151, "0.5.23", "0.5.15.post1")


def test_package_that_the_index_does_not_know_has_no_versions():
    assert list_versions("sparkproof-zzz-nope", recorded("unknown-package")) == ()


@pytest.mark.parametrize("name", ["connection-refused", "name-not-resolved", "host-not-trusted", "http-401"])
def test_unreachable_index_is_infrastructure_and_names_the_setting(name):
    with pytest.raises(InfrastructureError, match=r"index-url.*pip config list") as raised:
        list_versions("vllm", recorded(name))
    assert raised.value.exit_code == 3


def test_index_that_never_answers_is_infrastructure():
    with pytest.raises(InfrastructureError, match="did not answer within"):
        list_versions("vllm", lambda distribution: Finished(None, "", ()))


def test_credentials_in_pips_messages_are_not_shown():
    messages = ("WARNING: Retrying after connection broken: https://user:sekret@mirror.example/simple/vllm/",)
    with pytest.raises(InfrastructureError) as raised:
        list_versions("vllm", lambda distribution: Finished(1, "", messages))
    assert "sekret" not in str(raised.value)


VERSIONS = [Version(f"0.{minor}.0") for minor in range(10, 34)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("0.32.9", ["0.33.0", "0.32.0", "0.31.0", "0.30.0", "0.29.0"]),
        ("0.20.1", ["0.22.0", "0.21.0", "0.20.0", "0.19.0", "0.18.0"]),
        ("0.1.0", ["0.14.0", "0.13.0", "0.12.0", "0.11.0", "0.10.0"]),
        ("9", ["0.33.0", "0.32.0", "0.31.0", "0.30.0", "0.29.0"]),
    ],
)
def test_nearest_versions_are_the_neighbours(wanted, expected):
    assert [str(v) for v in nearest_versions(wanted, VERSIONS)] == expected


def test_nearest_to_what_is_no_version_are_the_most_alike():
    assert Version("0.17.0") in nearest_versions("v0.17.x", VERSIONS, n=2)


@given(st.text(max_size=12), st.lists(st.sampled_from(VERSIONS), unique=True), st.integers(1, 6))
def test_nearest_are_always_existing_versions_newest_first(wanted, available, n):
    nearest = nearest_versions(wanted, available, n)
    assert set(nearest) <= set(available)
    assert len(nearest) == min(n, len(available))
    assert list(nearest) == sorted(nearest, reverse=True)
