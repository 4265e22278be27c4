"""What a page that was opened by AppTest shows."""

from __future__ import annotations

import json
from typing import Any

from streamlit.testing.v1 import AppTest


def grids(app: AppTest) -> list[dict[str, Any]]:
    """The data of every table of ours, in the order of the page."""
    return [json.loads(element.proto.bytes) for element in app.get("bidi_component")]


def texts(app: AppTest) -> str:
    """Every plain text of the page."""
    return "\n".join(element.value for element in app.text)


def cells(app: AppTest, caption: str) -> list[list[str]]:
    """Rows of the table whose caption begins so, each cell's line and small line joined."""
    data = next(grid for grid in grids(app) if grid["caption"].startswith(caption))
    return [[" | ".join(filter(None, (cell["t"], cell.get("s")))) for cell in row] for row in data["rows"]]
