"""The table: what is loaded for later, and what is sent."""

from __future__ import annotations

from dashboard.grid import _LATER, modules_for_later


def test_what_draws_charts_and_data_frames_is_found_in_this_streamlit() -> None:
    found = modules_for_later()
    assert [name.partition(".")[0] for name in found] == list(_LATER)
