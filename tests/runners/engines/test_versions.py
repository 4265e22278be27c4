"""Ranges and standings of versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from runners.engines.versions import Standing, VersionRange, VersionTextError, parse_version, position

_READ = ("0.9.2", "0.10.2", "0.17.1", "0.24.0", "0.33.0")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("0.17.0..0.23.0", ["0.17.0", "0.17.1", "0.23.0", "0.19.2rc1.dev3+gabc"], ["0.16.0", "0.23.1", "0.24.0"]),
        ("0.22.0..", ["0.22.0", "1.0"], ["0.21.9", "0.9.9"]),
        ("..0.16.0", ["0.9.2", "0.10.2", "0.16.0"], ["0.16.1", "0.17.0"]),
        ("0.11.1..0.28.0; 0.31.0..", ["0.28.0", "0.31.0"], ["0.29.0", "0.30.0"]),
        ("0.5.12.post1", ["0.5.12.post1"], ["0.5.12", "0.5.13"]),
        ("any", ["0.0.1", "9"], []),
    ],
)
def test_range_contains_its_versions_and_no_others(text: str, inside: list[str], outside: list[str]) -> None:
    span = VersionRange.parse(text)
    assert [version for version in inside if not span.contains(version)] == []
    assert [version for version in outside if span.contains(version)] == []


@pytest.mark.parametrize("text", ["0.17.0...0.18", "0.23.0..0.17.0", "..", "latest", "0.1..x"])
def test_bad_range_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(VersionTextError):
        VersionRange.parse(text)


@pytest.mark.parametrize(
    ("version", "standing"),
    [
        ("0.17.1", Standing.READ),
        ("0.20.0", Standing.BETWEEN),
        ("0.17.1rc1", Standing.BETWEEN),
        ("0.34.0", Standing.NEWER),
        ("0.8.5", Standing.OLDER),
        ("0.1.dev21830+g1a2b3c", Standing.NO_RELEASE),
    ],
)
def test_version_knows_its_standing(version: str, standing: Standing) -> None:
    place = position(version, _READ)
    assert place.standing is standing
    sentence = place.sentence("vllm")
    assert (sentence is None) == (standing is Standing.READ)
    assert sentence is None or version in sentence


def test_between_names_both_neighbours() -> None:
    sentence = position("0.20.0", _READ).sentence("vllm")
    assert sentence is not None
    assert "between versions read (0.17.1 and 0.24.0)" in sentence


_numbers = st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 9)).map(lambda parts: ".".join(map(str, parts)))


@given(_numbers, _numbers, _numbers)
def test_membership_is_the_order_of_packaging(low: str, high: str, version: str) -> None:
    if Version(low) > Version(high):
        low, high = high, low
    assert VersionRange.parse(f"{low}..{high}").contains(version) == (Version(low) <= Version(version) <= Version(high))


def test_nonsense_is_no_version() -> None:
    with pytest.raises(VersionTextError, match="newest"):
        parse_version("newest")
