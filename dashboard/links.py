"""Permalinks: every page's filters are its address.

Trap: an address from outside names a page or a parameter that is not ours. Rule: a link is a page of PAGES with parameters of that page,
and every value of an address is only ever compared with values of the store, never used as a path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import streamlit as st

_CLICKED = "clicked_link"
_GO = """
export default function ({ data }) {
  if (location.href === new URL(data, document.baseURI).href) return;
  history.pushState({}, "", data);
  dispatchEvent(new PopStateEvent("popstate"));
}
"""
"""As Streamlit itself goes Back and Forward. `st.switch_page` would leave an address between the two pages in the history, with the page of
the first and the filters of the second (1.67)."""


@dataclass(frozen=True)
class PageAddress:
    """Where a page lies, what it is called, and the parameters that its address may have."""

    script: str
    title: str
    parameters: tuple[str, ...]


PAGES: Mapping[str, PageAddress] = MappingProxyType(
    {
        "today": PageAddress("views/today.py", "Today", ("node",)),
        "matrix": PageAddress("views/matrix.py", "Matrix", ("engine", "node", "view", "q", "only")),
        "cell": PageAddress("views/cell.py", "Cell", ("engine", "dist", "recipe", "backend", "node", "metric")),
        "run": PageAddress("views/run.py", "Run", ("run", "prompt")),
        "compare": PageAddress("views/compare.py", "Compare", ("axis", "engine", "node", "release", "a", "b", "dist")),
        "changes": PageAddress("views/changes.py", "What broke when", ("engine", "node")),
        "node": PageAddress("views/node.py", "Node", ("node",)),
    }
)
"""By url path; "today" is the page at the root. (A folder named `pages` would be taken by Streamlit for navigation of its own making.)"""


@dataclass(frozen=True)
class Link:
    """A page with parameters; values that are None or empty are left out."""

    page: str
    parameters: tuple[tuple[str, str], ...] = ()

    def href(self) -> str:
        """The address relative to any page of the dashboard."""
        return _href(self)


@lru_cache(maxsize=4_096)
def _href(link: Link) -> str:
    path = "./" if link.page == "today" else link.page
    return f"{path}?{urlencode(link.parameters)}" if link.parameters else path


_ISSUE = re.compile(r"\b([A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9][A-Za-z0-9._-]{0,63})#([0-9]{1,7})\b")


@dataclass(frozen=True)
class IssueLink:
    """A public issue, opened in a tab of its own when somebody clicks it; nothing of it is fetched."""

    repository: str
    number: int

    @property
    def text(self) -> str:
        """As a maintainer writes it."""
        return f"{self.repository}#{self.number}"

    def href(self) -> str:
        """Its address."""
        return f"https://github.com/{self.repository}/issues/{self.number}"


def issues_in(text: str) -> list[IssueLink]:
    """Issues that a text names as `owner/name#123`, each once."""
    found = [IssueLink(match.group(1), int(match.group(2))) for match in _ISSUE.finditer(text[:20_000])]
    return list(dict.fromkeys(found))


def to(page: str, **parameters: str | None) -> Link:
    """A link to `page`. Raises KeyError for a page or parameter that does not exist."""
    unknown = set(parameters) - set(PAGES[page].parameters)
    if unknown:
        raise KeyError(f"page {page} has no parameter {', '.join(sorted(unknown))}")
    return Link(page, tuple((name, value) for name, value in parameters.items() if value))


def clicked(link: Link) -> None:
    """Note a click that only the server knows of (a dot of a chart); the next run begins by going there."""
    st.session_state[_CLICKED] = link.href()


def leave() -> None:
    """Go where the last click pointed, before the page that it was made on is drawn once more for nothing."""
    href = st.session_state.pop(_CLICKED, None)
    if href is not None:
        _way()(data=str(href))
        st.stop()


@st.cache_resource(show_spinner=False)
def _way() -> Any:
    return st.components.v2.component("sparkproof.way", js=_GO)


def cell_of(row: Mapping[str, Any]) -> Link:
    """The page of the cell that `row` names."""
    return to(
        "cell",
        engine=row["engine"],
        dist=row["distribution"],
        recipe=row["recipe_name"],
        backend=row["backend_name"],
        node=row["node_id"],
    )
