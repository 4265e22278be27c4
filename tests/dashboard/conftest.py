"""The four stores that every page is opened on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.links import PAGES
from results.sample import sample_store
from results.store import Store
from tests.dashboard.stores import hostile, small

APP = Path(__file__).resolve().parents[2] / "dashboard" / "app.py"
Open = Callable[..., AppTest]


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    root = tmp_path_factory.mktemp("stores")
    return {
        "empty": Store(root / "empty"),
        "small": small(root / "small"),
        "sample": sample_store(root / "sample"),
        "hostile": hostile(root / "hostile"),
    }


@pytest.fixture
def open_page(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a page of the real application as a browser would, with the parameters of its address."""
    st.cache_data.clear()
    st.cache_resource.clear()

    def opened(store: Store, page: str, **parameters: str) -> AppTest:
        monkeypatch.setenv("SPARKPROOF_HOME", str(store.root))
        app = AppTest.from_file(str(APP), default_timeout=60).run()
        if page != "today":
            app.switch_page(PAGES[page].script)
        for name, value in parameters.items():
            app.query_params[name] = value
        return app.run()

    return opened
