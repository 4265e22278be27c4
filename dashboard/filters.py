"""Filters that live in the address.

Trap: a filter that is only in the session makes a link show something else to the one who opens it. Rule: every filter reads its value from
the address and writes it back; a value that the store does not know is dropped. Whoever comes by a link, the Back button or a click gets
the same page. One exception: a click that follows another one at once arrives with the address as it was before both; then the filters
win, because no link was followed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import streamlit as st

from dashboard.shown import line

_WIDTH, _NARROW = 260, 190
_TOUCHED = "filters_touched"
_PAGE = "filters_page"


def choose(
    label: str,
    name: str,
    options: Mapping[str, str] | Sequence[str],
    *,
    default: str | None = None,
    everything: str = "",
    narrow: bool = False,
) -> str | None:
    """A selection box over `options` (value to what is shown). `everything` names a first choice, whose value is None."""
    shown = dict(options) if isinstance(options, Mapping) else {value: value for value in options}
    width = _NARROW if narrow else _WIDTH
    values = [""] if everything else []
    values += shown
    key = _arrive(name, values, default or "")
    if not values:
        st.selectbox(label, [], placeholder="nothing yet", disabled=True, key=f"empty_{name}", width=width)
        return None
    chosen = st.selectbox(
        label, values, format_func=lambda value: line(shown[value], 120) if value else everything, key=key, width=width, on_change=_touch
    )
    _keep(name, chosen or None, None if everything else "")
    return chosen or None


def switch(label: str, name: str, options: Mapping[str, str], *, default: str) -> str:
    """A row of buttons of which one is pressed; `options` are words of ours."""
    key = _arrive(name, list(options), default)
    chosen = (
        st.segmented_control(label, list(options), format_func=options.__getitem__, key=key, required=True, on_change=_touch) or default
    )
    _keep(name, chosen, default)
    return str(chosen)


def search(label: str, name: str, placeholder: str) -> str:
    """A text to look for, applied while it is typed."""
    key = f"filter_{name}"
    asked = str(st.query_params.get(name, ""))[:200]
    if key not in st.session_state or (not touched() and st.session_state.get(_written(name), "") != asked):
        st.session_state[key] = asked
    found = st.text_input(label, key=key, placeholder=placeholder, max_chars=200, live="60ms", width=_NARROW, on_change=_touch) or ""
    _keep(name, found or None, None)
    return found


def node_filter(nodes: Mapping[str, str], *, everything: str = "all nodes") -> str | None:
    """Which node; not asked while there is only one."""
    if len(nodes) < 2 and not st.query_params.get("node"):
        return None
    return choose("Node", "node", nodes, everything=everything, narrow=True)


def arrive(page: str) -> None:
    """Before a page is drawn. One that was not on the screen takes everything from the address, nothing from filters of the same name."""
    if st.session_state.get(_PAGE) == page:
        return
    for key in [key for key in st.session_state if str(key).startswith(("filter_", _written("")))]:
        del st.session_state[key]
    st.session_state[_PAGE], st.session_state[_TOUCHED] = page, False


def touched() -> bool:
    """Whether this run of the page was caused by a filter, and not by a link or the Back button."""
    return bool(st.session_state.get(_TOUCHED))


def settle() -> None:
    """The page is complete: what comes next is a new cause."""
    st.session_state[_TOUCHED] = False


def _touch() -> None:
    st.session_state[_TOUCHED] = True


def _written(name: str) -> str:
    return f"address_{name}"


def _arrive(name: str, values: Sequence[str], default: str) -> str:
    """Key of the widget, whose state is set to what the address says if the address changed since this page last wrote it."""
    key = f"filter_{name}"
    asked = str(st.query_params.get(name, ""))
    followed = not touched() and st.session_state.get(_written(name), "") != asked
    if key not in st.session_state or followed or st.session_state[key] not in values:
        fallback = default if default in values else (values[0] if values else "")
        st.session_state[key] = asked if asked in values else fallback
    return key


def _keep(name: str, value: str | None, default: Literal[""] | str | None) -> None:
    """Write the value into the address; what equals a fixed default is left out."""
    kept = "" if value is None or value == default else str(value)
    if kept:
        if st.query_params.get(name) != kept:
            st.query_params[name] = kept
    elif name in st.query_params:
        del st.query_params[name]
    st.session_state[_written(name)] = kept
