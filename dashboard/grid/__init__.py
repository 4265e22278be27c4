"""A table with frozen headings whose cells may be links: the matrix, findings, boots, phases.

Trap: Streamlit's own table draws Markdown in its cells, and its data frame draws on a canvas, which neither a keyboard reaches cell by cell
nor a printer prints. Rule: one component of ours makes a plain HTML table in the browser, in which every text is a text node.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import links
from dashboard.shown import block, line

_HERE = Path(__file__).parent
_SCRIPTS = Path(st.__file__).parent / "static" / "static" / "js"
_LATER = ("ArrowVegaLiteChart", "embed", "vega-interpreter", "DataFrame", "DownloadButton", "StreamlitSyntaxHighlighter")
"""What Streamlit loads at the first chart and the first drawer of rows."""
_CELL_LIMIT = 600
_TEXT_LIMIT = 12_000


@dataclass(frozen=True)
class Cell:
    """One cell. `small` is a second, smaller line; `kind` one of the colours of `dashboard.words`; `tip` shows on hover.

    `mono` text keeps its lines; `mark_from` is the character from which on it is marked.
    """

    text: str = ""
    small: str = ""
    kind: str = ""
    link: links.Link | links.IssueLink | None = None
    tip: str = ""
    mono: bool = False
    mark_from: int | None = None

    def sent(self) -> dict[str, Any]:
        """The cell as the browser gets it: bounded, without control characters."""
        sent: dict[str, Any] = {"t": block(self.text, _TEXT_LIMIT) if self.mono else line(self.text, _CELL_LIMIT)}
        if self.small:
            sent["s"] = line(self.small, _CELL_LIMIT)
        if self.kind:
            sent["k"] = self.kind
        if self.link:
            sent["h"] = self.link.href()
        if self.tip:
            sent["tip"] = line(self.tip, 1_000)
        if self.mono:
            sent["m"] = 1
        if self.mark_from is not None:
            # JavaScript counts in UTF-16 units.
            sent["at"] = len(sent["t"][: self.mark_from].encode("utf-16-le")) // 2
        return sent


@dataclass(frozen=True)
class Column:
    """A column's heading; numbers stand to the right."""

    label: str
    small: str = ""
    right: bool = False
    link: links.Link | None = None
    tip: str = ""

    def sent(self) -> dict[str, Any]:
        """The heading as the browser gets it."""
        return Cell(self.label, self.small, link=self.link, tip=self.tip).sent() | ({"right": 1} if self.right else {})


def grid(
    key: str,
    caption: str,
    columns: Sequence[Column | str],
    rows: Sequence[Sequence[Cell | str]],
    *,
    frozen: int = 1,
    dense: bool = False,
    tall: bool = False,
) -> None:
    """Draw the table; a click on a cell with a link goes there. `dense` cells never wrap; a `tall` table may fill the
    screen. `caption` is read by screen readers."""
    headings = [column if isinstance(column, Column) else Column(column) for column in columns]
    plain = not any(heading.label.strip() for heading in headings)
    style = ["dense" if dense else "lines", *(["tall"] if tall else []), *(["plain"] if plain else [])]
    data = {
        "caption": line(caption, 200),
        "columns": [heading.sent() for heading in headings],
        "frozen": frozen,
        "style": " ".join(style),
        "rows": [_row([cell if isinstance(cell, Cell) else Cell(cell) for cell in row]) for row in rows],
    }

    # As bytes: Streamlit would write a dictionary out three times to know it again.
    sent = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    _component()(key=key, data=sent)


def _row(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The cells as sent; a link that is the first cell's, too, is sent once."""
    sent = [cell.sent() for cell in cells]
    for own in sent[1:]:
        if "h" in own and own["h"] == sent[0].get("h"):
            own["h"] = 0
    return sent


@st.cache_resource(show_spinner=False)
def _component() -> Any:
    css, js = (_HERE / "grid.css").read_text(encoding="utf-8"), (_HERE / "grid.js").read_text(encoding="utf-8")
    js = js.replace("const LATER = [];", f"const LATER = {json.dumps(modules_for_later())};", 1)
    return st.components.v2.component("sparkproof.grid", html='<div class="frame"></div>', css=css, js=js)


def modules_for_later() -> list[str]:
    """The file names of `_LATER` in this version of Streamlit; one that it does not have is left out."""
    return [path.name for stem in _LATER for path in sorted(_SCRIPTS.glob(f"{stem}.*.js"))[:1]]
