from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.verdict.releases import order_releases


def test_releases_are_ordered_as_versions_not_as_text() -> None:
    order = order_releases(["0.10.0", "0.9.2", "0.5.12.post1", "0.11.0rc1", "0.11.0", "0.5.12"])
    assert order.names == ("0.5.12", "0.5.12.post1", "0.9.2", "0.10.0", "0.11.0rc1", "0.11.0")


@pytest.mark.parametrize("text", ["0.1.dev21830+gabc1234", "0.11.0.dev5", "0.11.0+gdeadbee", "0.11.0+mybuild", "main", "", "nightly-2026"])
def test_fork_and_development_builds_have_no_place_in_the_order(text: str) -> None:
    order = order_releases([text, "0.11.0"])
    assert order.names == ("0.11.0",)
    assert text not in order.name_of


def test_spellings_and_platform_wheels_of_one_release_are_one() -> None:
    order = order_releases(["v0.11", "0.11.0", "0.11.0+cu130", "0.11.0+cpu"])
    assert order.names == ("0.11.0",)
    assert set(order.name_of.values()) == {"0.11.0"}


@given(st.lists(st.text(max_size=20)))
def test_no_text_breaks_the_order(texts: list[str]) -> None:
    order = order_releases(texts)
    assert set(order.name_of) <= set(texts)
    assert set(order.name_of.values()) == set(order.names)
