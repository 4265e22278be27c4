"""The rows behind what a page shows: as a table, as CSV, as Parquet, and the SQL that asks for them.

Trap: a chart that cannot be checked. Rule: under each view lie its rows. Nothing is asked before somebody opens them, and a
download is made when it is clicked.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pandas as pd
import streamlit as st

from dashboard import source
from results.queries.query import Query

SHOWN_ROWS = 1_000
EXPORTED_ROWS = 500_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@st.fragment
def rows_behind(name: str, question: Query, which: str = "") -> None:
    """A closed drawer. `name` is a word of ours, unique on its page, that names the files; `which` tells several drawers apart."""
    drawer = st.expander(
        f"Rows behind this{f' ({which})' if which else ''}",
        key=f"rows_{name}",
        on_change="rerun",
        icon=":material/table_rows:",
        type="compact",
    )
    if not drawer.open:
        return
    with drawer:
        found = source.frame(question.limited(SHOWN_ROWS + 1))
        more = len(found) > SHOWN_ROWS
        st.caption(f"The first {SHOWN_ROWS:,} rows; the files hold up to {EXPORTED_ROWS:,}." if more else f"{len(found):,} rows.")
        st.dataframe(_displayable(found.head(SHOWN_ROWS)), hide_index=True, height=320, key=f"frame_{name}")
        with st.container(horizontal=True):
            _download("CSV", f"{name}.csv", "text/csv", lambda: as_csv(_all(question)), help_=_CSV_HELP)
            _download("Parquet", f"{name}.parquet", "application/vnd.apache.parquet", lambda: as_parquet(_all(question)))
        st.code(question.text(), language="sql", wrap_lines=True)


_CSV_HELP = "Text that a spreadsheet would run as a formula gets a leading apostrophe. Parquet is exact."


def as_csv(found: pd.DataFrame) -> bytes:
    """CSV in UTF-8 that a spreadsheet opens without running what a server wrote into it."""
    safe = _displayable(found).copy()
    for column in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[column]) and not pd.api.types.is_datetime64_any_dtype(safe[column]):
            safe[column] = [f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value for value in safe[column]]
    return safe.to_csv(index=False).encode()


def as_parquet(found: pd.DataFrame) -> bytes:
    """Parquet, types as the store has them."""
    buffer = io.BytesIO()
    found.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _all(question: Query) -> pd.DataFrame:
    return question.limited(EXPORTED_ROWS).frame(source.store())


def _download(label: str, file_name: str, mime: str, make: Callable[[], bytes], help_: str | None = None) -> None:
    st.download_button(
        label, make, file_name=f"sparkproof-{file_name}", mime=mime, on_click="ignore", key=f"download_{file_name}", help=help_
    )


def _displayable(found: pd.DataFrame) -> pd.DataFrame:
    """Lists as text, so that every cell is one."""
    shown = found.copy()
    for column in shown.columns:
        if shown[column].dtype == object:
            shown[column] = pd.Series([_joined(value) for value in shown[column]], index=shown.index, dtype=object)
    return shown


def _joined(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, (list, np.ndarray)) else value
