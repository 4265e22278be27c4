"""Links that a page sends out and gets back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import links

_TEXT = st.text(min_size=1, max_size=100).filter(lambda text: text.encode("utf-8", "ignore").decode() == text)


@given(engine=_TEXT, recipe=_TEXT)
def test_a_link_comes_back_as_it_was_sent(engine: str, recipe: str) -> None:
    link = links.to("cell", engine=engine, recipe=recipe)
    assert links.parse(link.href()) == link


@given(st.text(max_size=300))
def test_whatever_comes_back_names_a_page_of_ours_or_nothing(href: str) -> None:
    link = links.parse(href)
    if link is not None:
        assert {name for name, _ in link.parameters} <= set(links.PAGES[link.page].parameters)


@pytest.mark.parametrize(
    "href", ["https://example.org/matrix", "//example.org/matrix", "javascript:alert(1)", "views/run.py", "../run", "run/../../x"]
)
def test_an_address_outside_is_no_link(href: str) -> None:
    assert links.parse(href) is None


def test_a_parameter_that_the_page_does_not_have_is_dropped() -> None:
    assert links.parse("run?run=1&file=/etc/passwd") == links.to("run", run="1")


def test_a_page_or_parameter_that_does_not_exist_cannot_be_linked() -> None:
    with pytest.raises(KeyError):
        links.to("run", file="x")
    with pytest.raises(KeyError):
        links.to("nothing")


def test_issues_are_found_by_their_name_only() -> None:
    text = "see vllm-project/vllm#123, #45, and sgl-project/sglang#7; vllm-project/vllm#123 again; a/b#12345678"
    assert [issue.href() for issue in links.issues_in(text)] == [
        "https://github.com/vllm-project/vllm/issues/123",
        "https://github.com/sgl-project/sglang/issues/7",
    ]
