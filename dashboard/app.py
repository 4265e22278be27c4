"""The script Streamlit runs for every visit: navigation, the store's line, then the page."""

from __future__ import annotations

import streamlit as st

from dashboard import frame, links
from dashboard.links import PAGES

st.set_page_config(page_title="Sparkproof", page_icon="⚡", layout="wide")
page = st.navigation(
    [
        st.Page(address.script, title=address.title, url_path="" if name == "today" else name, default=name == "today")
        for name, address in PAGES.items()
    ],
    position="top",
)
links.leave()
frame.show(page)
