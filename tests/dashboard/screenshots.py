"""`python -m tests.dashboard.screenshots FOLDER [--all]`: pictures of the dashboard over the sample, taken by the system's Chromium.

Trap: a picture in the README of a page that no longer looks like that, or of numbers that nobody measured. Rule: the pictures come from
this command and from `results/sample`. Without `--all` it makes those that the documentation shows, with it every page in every width and
scheme that we look at before a release.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page

from dashboard.links import PAGES
from results.sample import sample_store
from tests.dashboard.browser import browsing, serving, visiting

WIDTHS, SCHEMES = (390, 1280, 1920), ("light", "dark")
_BROKEN = "outcome = 'incoherent' AND recipe_name = 'gemma3-270m-no-bos'"
_DRAWN = """() => {
  if (document.querySelector("[data-testid=stApp]").dataset.testScriptState !== "notRunning") return false;
  if (document.querySelector("[data-testid=stSkeleton], [data-stale=true]")) return false;
  return [...document.querySelectorAll("[data-testid=stVegaLiteChart]")].every((own) => own.querySelector("svg, canvas"));
}"""


@dataclass(frozen=True)
class Picture:
    """One file. `height` None: as high as the page."""

    name: str
    page: str
    address: str
    width: int = 1280
    height: int | None = None
    scheme: str = "light"


def documented(run: str) -> Iterator[Picture]:
    """Those that README.md and docs/ show; `run` is the boot that is shown."""
    cell = "cell?engine=vllm&recipe=canary-dense&backend=eager"
    yield Picture("dashboard-today", "today", "", height=700)
    yield Picture("dashboard-matrix", "matrix", "matrix?engine=vllm", height=620)
    yield Picture("dashboard-cell", "cell", cell, height=860, scheme="dark")
    yield Picture("dashboard-run", "run", f"run?run={run}", height=900)


def every(run: str) -> Iterator[Picture]:
    """Each page in each width and scheme, from top to bottom."""
    for page in PAGES:
        address = {"today": "", "run": f"run?run={run}", "matrix": "matrix?engine=vllm"}.get(page, page)
        for width in WIDTHS:
            for scheme in SCHEMES:
                yield Picture(f"{page}-{width}-{scheme}", page, address, width, scheme=scheme)


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(prog="python -m tests.dashboard.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        store = sample_store(Path(made) / "store")
        run = str(store.query(f"SELECT max(run_id) AS run_id FROM runs WHERE {_BROKEN}")[0]["run_id"])
        with serving(store.root) as url, browsing() as browser:
            for picture in (every if asked.all else documented)(run):
                take(browser, url, picture, asked.folder)


def take(browser: Browser, url: str, picture: Picture, folder: Path) -> None:
    """Open the page as a new visitor and save what it looks like as `NAME.png`."""
    with visiting(browser, url, width=picture.width, scheme=picture.scheme) as visit:
        if picture.height:
            visit.page.set_viewport_size({"width": picture.width, "height": picture.height})
        visit.open(picture.address, PAGES[picture.page].title)
        visit.page.wait_for_function(_DRAWN, timeout=30_000)
        if not picture.height:
            _grow(visit.page, picture.width)
        visit.page.screenshot(path=folder / f"{picture.name}.png")


def _grow(page: Page, width: int) -> None:
    """As high as what the page scrolls, because the page itself scrolls inside the window."""
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": width, "height": min(int(height), 6_000)})
    page.wait_for_function(_DRAWN, timeout=30_000)


if __name__ == "__main__":
    main()
