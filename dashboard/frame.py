"""What surrounds every page: its style, the way out of an error, and what to do when there is nothing to show yet."""

from __future__ import annotations

from pathlib import Path

import duckdb
import streamlit as st
from streamlit.navigation.page import StreamlitPage

from dashboard import source
from dashboard.filters import arrive, settle
from dashboard.shown import block, line
from results.errors import StoreError

_CSS = Path(__file__).with_name("style.css").read_text(encoding="utf-8")


def show(page: StreamlitPage) -> None:
    """Run the page, or say why not. A page never shows half of a store that cannot be read."""
    st.html(f"<style>{_CSS}</style>")
    if source.state() is None:
        _first_run()
        return
    try:
        arrive(page.url_path)
        with source.visiting():
            page.run()
        settle()
    except (StoreError, duckdb.Error) as error:
        st.error("The result store cannot be read just now.")
        st.text(block(error, 2_000))
        st.button("Try again")


def _first_run() -> None:
    st.title("No results yet")
    st.markdown("This page fills itself as soon as the first boot is stored. To make one:")
    st.code("sparkproof run --engine vllm==0.32.0", language="sh")
    st.markdown("Without a GPU and without downloads, on the small canary model, in a few minutes:")
    st.code("sparkproof run --engine vllm==0.32.0 --model canary-dense --backend eager", language="sh")
    st.markdown("To look around in real measurements first:")
    st.code("sparkproof demo", language="sh")
    quiet(f"The store is looked for in {line(source.root())}. Another one: SPARKPROOF_HOME=FOLDER sparkproof dashboard", "store")
    _look_again()


@st.fragment(run_every="5s")
def _look_again() -> None:
    if source.state() is not None:
        st.rerun()


def quiet(text: str, key: str) -> None:
    """A line of small text, whoever wrote it."""
    with st.container(key=f"quiet_{key}"):
        st.text(block(text, 2_000))
