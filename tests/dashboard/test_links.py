"""Links that a page sends out."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import links

_TEXT = st.text(min_size=1, max_size=100).filter(lambda text: text.encode("utf-8", "ignore").decode() == text)


@given(engine=_TEXT, recipe=_TEXT)
def test_an_address_says_page_and_parameters_and_nothing_else(engine: str, recipe: str) -> None:
    parts = urlsplit(links.to("cell", engine=engine, recipe=recipe).href())
    assert (parts.scheme, parts.netloc, parts.path, parts.fragment) == ("", "", "cell", "")
    assert parse_qsl(parts.query, keep_blank_values=True) == [("engine", engine), ("recipe", recipe)]


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
