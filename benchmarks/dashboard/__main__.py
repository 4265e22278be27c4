"""`python -m benchmarks.dashboard [--store FOLDER | --boots N]`: first paint and interactions in headless Chromium.

Every time is taken by the page's own clock (`watch.js`), frame by frame. First paint: from the navigation of a fresh browser profile
(nothing cached) until the script has ended and every table and chart is drawn; `first_content_s` is when the heading stands.
Interaction: from the key, the click or Back until the same holds again for its answer; each repeat asks for something that was not
asked before, where there is such a thing; it comes `LOOKED_S` after the page was drawn. Streamlit alone is measured, too, because part of
every time is Streamlit's: the paint of a blank page, a choice whose answer is one line, and the way from one empty page to another. The
server is started once; each page is opened once before it is measured unless `--cold` is given.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import streamlit
from playwright.sync_api import Browser, Page

from benchmarks.scale.fill import fill
from benchmarks.scale.plan import world_for
from dashboard.__main__ import options
from dashboard.links import PAGES
from results.store import Store
from tests.dashboard.browser import browsing, serving, started, visiting

FIRST_PAINT_GOAL_S, INTERACTION_GOAL_S = 2.0, 0.5
LOOKED_S = 1.5
"""How long the visitor looks at a page before doing something; meanwhile the browser loads what charts need."""

Act = Callable[[Page, int], None]
_WATCH = Path(__file__).with_name("watch.js").read_text(encoding="utf-8")
_STILL_MS = 300


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--store", type=Path, help="A store's folder; without it one is made up.")
    parser.add_argument("--boots", type=int, default=1_000_000, help="Boots of the made-up store.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="Measure the very first opening of each page, too.")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with _store(asked.store, asked.boots) as root:
        found = _about(root)
        with serving(root) as url, _blank() as blank, browsing() as browser:
            found["browser"] = browser.version
            found["blank_streamlit_s"] = [_paint(browser, f"{blank}/")[1] for _ in range(asked.repeats + 1)][1:]
            found["first_content_s"], found["first_paint_s"], found["interaction_s"] = {}, {}, {}
            for page in PAGES:
                times = _paints(browser, url, page, asked.repeats, asked.cold)
                found["first_content_s"][page], found["first_paint_s"][page] = ([own[kind] for own in times] for kind in (0, 1))
                sys.stderr.write(f"{page}: {times}\n")
            for name, own in INTERACTIONS.items():
                found["interaction_s"][name] = _interaction(browser, url, *own, asked.repeats)
                sys.stderr.write(f"{name}: {found['interaction_s'][name]}\n")
        with _bare() as url, browsing() as browser:
            found["bare_streamlit_interaction_s"] = {
                name: _interaction(browser, url, *own, asked.repeats) for name, own in BARE_INTERACTIONS.items()
            }
    sys.stdout.write(json.dumps(found, indent=1) + "\n" if asked.json else _table(found))


def _about(root: Path) -> dict[str, Any]:
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} x {_processor()}, {platform.system()}",
        "versions": {"streamlit": streamlit.__version__, "duckdb": duckdb.__version__, "python": platform.python_version()},
        "boots": Store(root).query("SELECT count(*) AS boots FROM runs")[0]["boots"],
        "cells": Store(root).query("SELECT count(*) AS cells FROM histories")[0]["cells"],
        "load_average": os.getloadavg()[0],
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@contextmanager
def _store(root: Path | None, boots: int) -> Iterator[Path]:
    if root is not None:
        yield root
        return
    with tempfile.TemporaryDirectory() as made:
        sys.stderr.write(f"making a store of {boots:,} boots ...\n")
        fill(Store(Path(made) / "store"), world_for(boots, 3 * boots, seed=1), lambda _: None)
        yield Path(made) / "store"


@contextmanager
def _blank() -> Iterator[str]:
    """Streamlit as it comes, with a page that holds a heading and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "blank.py"
        script.write_text('import streamlit as st\n\nst.title("Blank")\n', encoding="utf-8")
        with started(lambda port: ["-m", "streamlit", "run", str(script), *options("127.0.0.1", port)], Path(folder)) as url:
            yield url


_CHOICE = """import streamlit as st
st.title("Choice")
st.query_params["n"] = st.selectbox("One of", list("abcdefghij"), key="n")
st.text(st.query_params["n"])
if st.button("Other"):
    st.switch_page("other.py")
"""
_NAVIGATION = """import streamlit as st
st.navigation([st.Page("choice.py", default=True), st.Page("other.py")], position="top").run()
"""


@contextmanager
def _bare() -> Iterator[str]:
    """Streamlit with two pages: one choice and its answer in one line, and a heading."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, script in {"choice": _CHOICE, "other": 'import streamlit as st\nst.title("Other")\n', "main": _NAVIGATION}.items():
            (folder / f"{name}.py").write_text(script, encoding="utf-8")
        with started(lambda port: ["-m", "streamlit", "run", str(folder / "main.py"), *options("127.0.0.1", port)], folder) as url:
            yield url


def _paints(browser: Browser, url: str, page: str, repeats: int, cold: bool) -> list[tuple[float, float]]:
    times = [_paint(browser, f"{url}/{'' if page == 'today' else page}") for _ in range(repeats + (0 if cold else 1))]
    return times if cold else times[1:]


def _paint(browser: Browser, address: str) -> tuple[float, float]:
    """Seconds from the navigation to the heading, and until everything is drawn."""
    with visiting(browser, address.rpartition("/")[0]) as visit:
        visit.page.add_init_script(_WATCH)
        visit.page.goto(address, wait_until="commit")
        _drawn(visit.page)
        content, drawn = visit.page.evaluate("[window.__watch.content, window.__watch.drawn]")
        return content / 1000, drawn / 1000


def _drawn(page: Page) -> None:
    """Wait until the page is drawn and stays so: a click that leads to another page asks the server twice."""
    still = f"window.__watch && window.__watch.drawn !== null && performance.now() - window.__watch.drawn > {_STILL_MS}"
    page.wait_for_function(still, polling=50, timeout=60_000)


def _interaction(browser: Browser, url: str, address: str, act: Act, repeats: int) -> list[float]:
    times = []
    with visiting(browser, url) as visit:
        visit.page.add_init_script(_WATCH)
        for turn in range(repeats):
            visit.page.goto(f"{url}/{address}", wait_until="commit")
            _drawn(visit.page)
            visit.page.wait_for_timeout(1000 * LOOKED_S)
            visit.page.evaluate(f"window.__watch.moves = {'false' if act is _rows else 'true'}")
            act(visit.page, turn)
            _drawn(visit.page)
            times.append(visit.page.evaluate("window.__watch.drawn - window.__watch.acted") / 1000)
    return times


def _chosen(box: int, first: int = 1, among: int = 7) -> Act:
    """The box of this number is opened and another of its entries is taken, each time one of the `among` from `first` on."""

    def act(page: Page, turn: int) -> None:
        page.get_by_role("combobox").nth(box).click()
        page.get_by_role("option").nth(first + turn % among).click()

    return act


def _pressed(*names: str) -> Act:
    return lambda page, turn: page.get_by_role("radio", name=names[turn % len(names)], exact=True).click()


def _linked(table: int, column: int = 0) -> Act:
    """A link of the table of this number, each time in another row."""

    def act(page: Page, turn: int) -> None:
        page.get_by_role("table").nth(table).locator("tbody tr").nth(3 * turn).get_by_role("link").nth(column).click()

    return act


def _engine(page: Page, turn: int) -> None:
    page.get_by_role("combobox").first.click()
    page.get_by_role("option", name="SGLang").click()


def _searched(page: Page, turn: int) -> None:
    page.get_by_placeholder("model or backend").fill(("backend-01", "model-01", "backend-02", "model-02 backend", "model-00")[turn % 5])


def _back(page: Page, turn: int) -> None:
    _linked(0)(page, turn)
    _drawn(page)
    page.go_back()


def _boot(page: Page, turn: int) -> None:
    page.get_by_role("table", name="Boots of").get_by_role("link").nth(turn).click()


def _rows(page: Page, turn: int) -> None:
    page.get_by_text("Rows behind this").first.click()


INTERACTIONS: dict[str, tuple[str, Act]] = {
    "today: node": ("", _chosen(0)),
    "today: to a cell": ("", _linked(1)),
    "matrix: search": ("matrix?engine=vllm", _searched),
    "matrix: view": ("matrix?engine=vllm", _pressed("Speed", "Correctness")),
    "matrix: failing now": ("matrix?engine=vllm", _pressed("Failing now", "Changed")),
    "matrix: node": ("matrix?engine=vllm", _chosen(1)),
    "matrix: engine": ("matrix?engine=vllm", _engine),
    "matrix: rows behind this": ("matrix?engine=vllm", _rows),
    "matrix: to a cell": ("matrix?engine=vllm", _linked(0)),
    "matrix: to a cell, Back": ("matrix?engine=vllm", _back),
    "cell: metric": ("cell?engine=vllm", _pressed("TTFT", "Prefill", "ITL", "Memory", "KV tokens")),
    "cell: model": ("cell?engine=vllm", _chosen(1)),
    "cell: to a boot": (
        "cell?engine=vllm",
        lambda page, turn: page.get_by_role("table", name="Boots of").get_by_role("link").nth(turn).click(),
    ),
    "run: to a boot": ("run", _linked(0)),
    "compare: node": ("compare?engine=vllm", _chosen(1)),
    "compare: releases apart": ("compare?engine=vllm", _chosen(2, 2)),
    "changes: engine": ("changes", _chosen(0, among=2)),
    "node: another": ("node", _chosen(0)),
}


BARE_INTERACTIONS: dict[str, tuple[str, Act]] = {
    "a choice": ("", _chosen(0)),
    "to another page": ("", lambda page, turn: page.get_by_role("button", name="Other").click()),
}


def _table(found: dict[str, Any]) -> str:
    blank = statistics.median(found["blank_streamlit_s"])
    lines = [
        f"{found['boots']:,} boots, {found['cells']:,} cells; {found['machine']}; load average {found['load_average']:.1f} when it began",
        f"blank page of Streamlit: {blank:.2f} s",
        "",
        f"{'first paint (s)':28} median    worst    heading    of a blank page",
    ]
    for page, times in found["first_paint_s"].items():
        middle = statistics.median(times)
        heading = statistics.median(found["first_content_s"][page])
        lines.append(
            f"  {page:26} {middle:6.2f}   {max(times):6.2f}   {heading:8.2f}   {middle / blank:9.2f} x{_missed(middle, FIRST_PAINT_GOAL_S)}"
        )
    for title, kind in (("interaction (s)", "interaction_s"), ("Streamlit alone (s)", "bare_streamlit_interaction_s")):
        lines += ["", f"{title:28} median    worst"]
        for name, times in found[kind].items():
            middle = statistics.median(times)
            lines.append(f"  {name:26} {middle:6.2f}   {max(times):6.2f}{_missed(middle, INTERACTION_GOAL_S)}")
    return "\n".join([*lines, ""])


def _missed(seconds: float, goal: float) -> str:
    return f"   MISSES {goal} s" if seconds > goal else ""


if __name__ == "__main__":
    main()
