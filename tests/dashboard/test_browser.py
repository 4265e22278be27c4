"""The dashboard in a real browser: clicks, permalinks, hostile texts, a writer beside it, and nobody else talked to."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playwright.sync_api import Browser, expect

from dashboard.links import PAGES
from results.store import Store
from tests.dashboard.browser import CHROMIUM, REPOSITORY, Visit, browsing, serving, visiting
from tests.dashboard.stores import HOSTILE, WIDE_RELEASES, WIDE_ROWS, Planned, made, wide

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")

_FOCUSED = """(() => {
  let own = document.activeElement;
  while (own && own.shadowRoot) own = own.shadowRoot.activeElement;
  return own.textContent;
})()"""
_DOT = "[data-testid=stVegaLiteChart] svg path[aria-roledescription=circle], [data-testid=stVegaLiteChart] svg .mark-symbol path"
_SCROLL = """(own) => {
  const frame = own.closest(".frame");
  Object.assign(frame, { scrollTop: 20, scrollLeft: 60 });
  return [frame.scrollTop, frame.scrollLeft];
}"""
_WRITER = """
import sys
from pathlib import Path
from results.store import Store
from tests.dashboard.stores import Planned, write_boot
from results.boot_folder import BootFolder
store = Store(Path(sys.argv[1]))
for number in range(1000, 1000 + int(sys.argv[2])):
    store.ingest(BootFolder(store.boots, write_boot(store, number, Planned(version="0.33.0"))))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as started:
        yield started


@pytest.fixture(scope="module")
def small_url(stores: dict[str, Store]) -> Iterator[str]:
    with serving(stores["small"].root) as url:
        yield url


@pytest.fixture(scope="module")
def hostile_url(stores: dict[str, Store]) -> Iterator[str]:
    with serving(stores["hostile"].root) as url:
        yield url


@pytest.fixture
def visit(browser: Browser, small_url: str) -> Iterator[Visit]:
    with visiting(browser, small_url) as visitor:
        yield visitor
        assert visitor.outside == []
        assert visitor.errors == []


def test_from_the_matrix_over_the_cell_to_the_boot(visit: Visit) -> None:
    visit.open("matrix?engine=vllm", "Matrix")
    visit.page.get_by_role("link", name="✗ incoherent").click()
    visit.settled("Cell")
    assert re.search(r"/cell\?engine=vllm&dist=venv&recipe=gpt-oss-120b&backend=flashinfer&node=spark-1$", visit.page.url)
    visit.page.get_by_role("table", name="Boots of this cell").get_by_role("link").nth(2).click()
    visit.settled("Run")
    assert re.search(r"/run\?run=[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}$", visit.page.url)
    visit.page.get_by_text("vLLM 0.32.0 · gpt-oss-120b on flashinfer").first.wait_for()
    visit.page.go_back()
    visit.settled("Cell")


def test_back_and_forward_show_what_was_there(visit: Visit) -> None:
    matrix, cell = re.compile(r"/matrix\?engine=vllm&q=flash$"), re.compile(r"/cell\?.*&recipe=gpt-oss-120b&backend=flashinfer&")
    visit.open("matrix?engine=vllm&q=flash", "Matrix")
    visit.page.get_by_role("link", name="✗ incoherent").click()
    visit.settled("Cell")
    visit.page.locator(_DOT).first.click(force=True)
    visit.settled("Run")
    for step, heading, address in (("back", "Cell", cell), ("back", "Matrix", matrix), ("forward", "Cell", cell)):
        visit.page.evaluate(f"history.{step}()")
        visit.settled(heading)
        expect(visit.page).to_have_url(address)
    visit.page.go_back()
    visit.settled("Matrix")
    expect(visit.page.get_by_placeholder("model or backend")).to_have_value("flash")
    visit.page.get_by_role("link", name="✗ incoherent").wait_for()
    expect(visit.page).to_have_url(matrix)


def test_a_link_opens_in_a_tab_of_its_own_as_well(visit: Visit) -> None:
    visit.open("matrix?engine=vllm", "Matrix")
    link = visit.page.get_by_role("link", name="✗ incoherent")
    visit.open(str(link.get_attribute("href")), "Cell")
    visit.page.get_by_text("vLLM 0.33.0: ✓ pass").wait_for()


def test_filters_make_an_address_that_shows_the_same_to_somebody_else(visit: Visit, browser: Browser) -> None:
    visit.open("matrix", "Matrix")
    visit.page.get_by_role("combobox").first.click()
    visit.page.get_by_role("option", name="vLLM").click()
    visit.page.get_by_role("radio", name="Speed").click()
    visit.page.get_by_placeholder("model or backend").fill("qwen")
    expect(visit.page).to_have_url(re.compile(r"matrix\?engine=vllm&view=speed&q=qwen$"))
    visit.page.get_by_text("1 of 3 cells").wait_for()
    with visiting(browser, visit.url) as other:
        other.open(visit.page.url.removeprefix(f"{visit.url}/"), "Matrix")
        other.page.get_by_text("1 of 3 cells").wait_for()
        expect(other.page.get_by_placeholder("model or backend")).to_have_value("qwen")
        assert other.page.url == visit.page.url


def test_nothing_moves_while_filtering(visit: Visit) -> None:
    visit.open("matrix?engine=vllm", "Matrix")
    table = visit.page.get_by_role("table", name="Outcomes of vLLM")
    expect(table.locator("tbody tr")).to_have_count(3)
    before = table.bounding_box()
    visit.page.get_by_placeholder("model or backend").fill("gpt")
    visit.page.get_by_text("2 of 3 cells").wait_for()
    expect(table.locator("tbody tr")).to_have_count(2)  # the line above the table comes before the table
    after = table.bounding_box()
    assert before is not None
    assert after is not None
    assert (before["x"], before["y"], before["width"]) == (after["x"], after["y"], after["width"])


def test_headings_stay_while_a_table_is_scrolled(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 420, "height": 180})
    visit.open("matrix?engine=vllm", "Matrix")
    table = visit.page.get_by_role("table", name="Outcomes of vLLM")
    headings = {"top": table.get_by_role("columnheader").last, "left": table.get_by_role("rowheader").nth(2)}
    before = {side: heading.bounding_box() for side, heading in headings.items()}
    inside = table.evaluate(_SCROLL)
    after = {side: heading.bounding_box() for side, heading in headings.items()}
    assert inside == [20, 60]
    assert before["top"] is not None
    assert after["top"] is not None
    assert before["left"] is not None
    assert after["left"] is not None
    assert (after["top"]["x"], after["top"]["y"]) == (before["top"]["x"] - 60, before["top"]["y"])
    assert (after["left"]["x"], after["left"]["y"]) == (before["left"]["x"], before["left"]["y"] - 20)


def test_sixty_releases_by_forty_rows_stay_usable(browser: Browser, tmp_path: Path) -> None:
    with serving(wide(tmp_path / "store").root) as url, visiting(browser, url) as visitor:
        visitor.open("matrix", "Matrix")
        table = visitor.page.get_by_role("table", name="Outcomes of vLLM")
        expect(table.locator("tbody tr")).to_have_count(WIDE_ROWS)  # the rows below the screen follow
        last = table.locator("tbody tr").last.get_by_role("cell").last
        last.scroll_into_view_if_needed()
        expect(last).to_be_in_viewport()
        expect(table.get_by_role("columnheader", name="0.1.0", exact=True)).to_be_in_viewport()
        for name in ("model-09", "backend-3"):
            expect(table.get_by_role("rowheader", name=name).last).to_be_in_viewport()
        wide_frame = table.locator("xpath=..")
        assert table.locator("thead th").count() == 2 + WIDE_RELEASES
        assert wide_frame.evaluate("(own) => own.clientWidth") <= 1280
        visitor.page.get_by_placeholder("model or backend").fill("model-07 backend-1")
        visitor.page.get_by_text("1 of 40 cells").wait_for()
        expect(table.locator("tbody tr")).to_have_count(1)
        visitor.page.get_by_role("table").get_by_role("link").first.click()
        visitor.settled("Cell")
        assert "recipe=model-07&backend=backend-1" in visitor.page.url
        assert visitor.errors == []


def test_a_printed_page_is_whole_and_keeps_its_colours(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 1280, "height": 180})
    visit.open("matrix?engine=vllm", "Matrix")
    frame = visit.page.get_by_role("table", name="Outcomes of vLLM").locator("xpath=..")
    assert frame.evaluate("(own) => own.scrollHeight > own.clientHeight")
    visit.page.emulate_media(media="print")
    assert frame.evaluate("(own) => own.scrollHeight === own.clientHeight")
    failed = visit.page.get_by_role("cell", name="✗ incoherent")
    assert failed.evaluate("(own) => getComputedStyle(own).printColorAdjust") == "exact"
    assert visit.page.get_by_text("Rows behind this").is_hidden()
    visit.open("cell?engine=vllm&recipe=gpt-oss-120b&backend=flashinfer", "Cell")
    visit.page.get_by_role("table", name="Boots of this cell").wait_for()
    assert visit.page.pdf().count(b"/Type /Page\n") >= 2


def test_the_keyboard_reaches_a_cell_and_opens_it(visit: Visit) -> None:
    visit.open("matrix?engine=vllm", "Matrix")
    visit.page.get_by_role("link", name="✗ incoherent").wait_for()  # the table is drawn after the heading
    visit.page.get_by_placeholder("model or backend").focus()
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate(_FOCUSED).startswith("gpt-oss-120b")
    for key in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowRight"):
        visit.page.keyboard.press(key)
    assert visit.page.evaluate(_FOCUSED).startswith("✗ incoherent")
    visit.page.keyboard.press("Enter")
    visit.settled("Cell")


def test_a_dot_of_the_chart_opens_its_boot(visit: Visit) -> None:
    visit.open("cell?engine=vllm&recipe=gpt-oss-120b&backend=marlin", "Cell")
    visit.page.locator(_DOT).first.click(force=True)
    visit.settled("Run")


def test_rows_are_shown_and_saved(visit: Visit, tmp_path: Path) -> None:
    visit.open("matrix?engine=vllm", "Matrix")
    visit.page.get_by_text("Rows behind this").click()
    visit.page.get_by_text("SELECT history_id, distribution").first.wait_for()
    for button, magic in (("CSV", b"history_id,"), ("Parquet", b"PAR1")):
        with visit.page.expect_download() as download:
            visit.page.get_by_role("button", name=button, exact=True).click()
        path = tmp_path / button
        download.value.save_as(path)
        assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_talks_to_anybody_else(browser: Browser, small_url: str, page: str, scheme: str) -> None:
    with visiting(browser, small_url, scheme=scheme) as visitor:
        visitor.open("" if page == "today" else page, PAGES[page].title)
        assert visitor.outside == []
        assert visitor.errors == []


def test_the_browser_itself_would_refuse_a_request_to_anybody_else(browser: Browser, small_url: str) -> None:
    with urllib.request.urlopen(f"{small_url}/") as answer:
        assert "connect-src 'self'" in answer.headers["content-security-policy"]
    with visiting(browser, small_url) as visitor:
        visitor.open("", "Today")
        refused = visitor.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => String(error))")
        assert "Failed to fetch" in refused
        assert visitor.outside == []


@pytest.mark.parametrize("page", PAGES)
def test_hostile_texts_stay_texts(browser: Browser, hostile_url: str, page: str) -> None:
    with visiting(browser, hostile_url) as visitor:
        visitor.open("" if page == "today" else page, PAGES[page].title)
        visitor.page.wait_for_timeout(500)
        assert visitor.page.evaluate("window.__hit") is None
        assert visitor.outside == []
        assert visitor.page.locator("[data-testid=stMain] img").count() == 0
        assert visitor.page.locator("a[href^='javascript:']").count() == 0


def test_a_hostile_boot_shows_its_texts_as_they_are(browser: Browser, hostile_url: str, stores: dict[str, Store]) -> None:
    sql = "SELECT run_id FROM runs WHERE recipe_name = ? AND outcome = 'incoherent'"
    for text in (HOSTILE["markup"], HOSTILE["markdown"]):
        (row,) = stores["hostile"].query(sql, [text])
        with visiting(browser, hostile_url) as visitor:
            visitor.open(f"run?run={row['run_id']}", "Run")
            visitor.page.get_by_text(text, exact=True).first.wait_for()
            visitor.page.get_by_text("Bug report").click()
            visitor.page.get_by_text("Names, addresses and secrets are left out").wait_for()
            assert visitor.page.evaluate("window.__hit") is None
            assert visitor.outside == []


@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("page", PAGES)
def test_no_page_is_wider_than_the_screen(browser: Browser, small_url: str, page: str, width: int) -> None:
    with visiting(browser, small_url, width=width) as visitor:
        visitor.open("" if page == "today" else page, PAGES[page].title)
        main = "document.querySelector('[data-testid=stMain]')"
        assert visitor.page.evaluate(f"{main}.scrollWidth - {main}.clientWidth") <= 1


def test_a_writer_beside_it_never_breaks_a_page(browser: Browser, tmp_path: Path) -> None:
    store = made(tmp_path / "store", [dataclasses.replace(Planned(), version=version) for version in ("0.31.0", "0.32.0")])
    with serving(store.root) as url, visiting(browser, url) as visitor:
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(store.root), "25"], cwd=REPOSITORY)
        try:
            for turn in range(60):
                page = list(PAGES)[turn % len(PAGES)]
                visitor.open("" if page == "today" else page, PAGES[page].title)
                assert visitor.page.get_by_test_id("stAlert").count() == 0
                assert visitor.page.get_by_test_id("stException").count() == 0
                if writer.poll() is not None and turn >= len(PAGES):
                    break
        finally:
            assert writer.wait(120) == 0
        visitor.open("", "Today")
        visitor.page.get_by_text("27 boots on 1 node").wait_for()
        assert visitor.errors == []


def test_a_store_that_appears_is_shown_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with serving(root) as url, visiting(browser, url) as visitor:
        visitor.open("", "No results yet")
        made(root, [Planned()])
        visitor.settled("Today")
