from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.report.fences import cell, code, fenced, table
from tests.results.report.markdown import SHOWN, active, kinds_holding, tokens

HOSTILE = (
    "```\n</details><img src=x onerror=alert(1)>\n```",
    "````\n[link](javascript:alert(1)) @someone #1",
    "` ``` ```` `",
    "~~~\n# heading\n~~~",
    "a | b | c\n| --- | --- |",
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b]0;title\x07",
    "    indented\n\n\n> quote\n- item",
)
_TEXT = st.text(alphabet=st.sampled_from("`~|\\<>[]()!#*_ \n\r\tab@"), max_size=60)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_one_block(text: str) -> None:
    kinds = [token.type for token in tokens(f"before\n\n{fenced(text, 1_000)}\n\nafter")]
    assert kinds.count("fence") == 1
    assert not active(fenced(text, 1_000))
    assert "\x1b" not in fenced(text, 1_000)


@given(_TEXT)
def test_a_fence_is_never_left(text: str) -> None:
    parsed = [token for token in tokens(f"{fenced(text, 500)}\n\nAFTER") if token.type != "inline"]
    assert [token.type for token in parsed] == ["fence", "paragraph_open", "text", "paragraph_close"]
    assert parsed[2].content == "AFTER"


@given(_TEXT)
def test_a_code_span_is_never_left(text: str) -> None:
    parsed = [token.type for token in tokens(f"x {code(text)} y") if token.type != "inline"]
    assert parsed in (["paragraph_open", "text", "code_inline", "text", "paragraph_close"], ["paragraph_open", "text", "paragraph_close"])


@given(st.lists(_TEXT, min_size=2, max_size=2))
def test_a_cell_stays_in_its_table(texts: list[str]) -> None:
    shown = table(("one", "two"), [(cell(texts[0]), cell(texts[1]))])
    kinds = [token.type for token in tokens(shown)]
    assert (kinds.count("tr_open"), kinds.count("td_open")) == (2, 2)
    assert not active(shown)
    assert kinds_holding(shown, "a") <= SHOWN | {"text"}


def test_a_long_text_is_cut_inside_its_fence() -> None:
    shown = fenced("x" * 10_000, 100)
    assert len(shown) < 130
    assert shown.endswith("\n```")


def test_an_empty_span_is_a_dash() -> None:
    assert code("") == code(" \n ") == "–"
