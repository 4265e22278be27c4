"""`python -m benchmarks.dashboard [--store FOLDER | --boots N]`: first paint and interactions in headless Chromium.

First paint: from the navigation of a fresh browser profile (nothing cached) until the page's tables and charts are drawn and the script has
ended. Interaction: from the key or click until the page shows the answer. The server is started once; each page is opened once before it
is measured unless `--cold` is given, because a page that its owner leaves open has been opened before. Medians of `--repeats`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page

from benchmarks.scale.fill import fill
from benchmarks.scale.plan import world_for
from dashboard.links import PAGES
from results.store import Store
from tests.dashboard.browser import Visit, browsing, serving, visiting

Action = Callable[[Visit], None]
_DRAWN = """() => {
  if (document.querySelector('[data-testid=stStatusWidget], [data-testid=stSkeleton]')) return false;
  const tables = [...document.querySelectorAll('[data-testid=stBidiComponentRegular], [data-testid^=stBidiComponent]')];
  const empty = tables.filter((own) => {
    const root = own.shadowRoot || [...own.querySelectorAll('*')].map((one) => one.shadowRoot).find(Boolean);
    return root && root.querySelector('.frame') && !root.querySelector('td, th');
  });
  return document.querySelector('h1') !== null && empty.length === 0;
}"""


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
        boots = Store(root).query("SELECT count(*) AS boots FROM runs")[0]["boots"]
        with serving(root) as url, browsing() as browser:
            found = {
                "boots": boots,
                "load_average": os.getloadavg()[0],
                "first_paint_s": {page: _paint(browser, url, page, asked.repeats, asked.cold) for page in PAGES},
                "interaction_s": {name: _interaction(browser, url, *own, asked.repeats) for name, own in _interactions(url).items()},
            }
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if asked.json else _table(found))


@contextmanager
def _store(root: Path | None, boots: int) -> Iterator[Path]:
    if root is not None:
        yield root
        return
    with tempfile.TemporaryDirectory() as made:
        sys.stderr.write(f"making a store of {boots:,} boots ...\n")
        fill(Store(Path(made) / "store"), world_for(boots, 3 * boots, seed=1), lambda _: None)
        yield Path(made) / "store"


def _paint(browser: Browser, url: str, page: str, repeats: int, cold: bool) -> list[float]:
    times = []
    for turn in range(repeats + (0 if cold else 1)):
        with visiting(browser, url) as visit:
            started = time.perf_counter()
            visit.page.goto(f"{url}/{'' if page == 'today' else page}", wait_until="commit")
            visit.page.get_by_role("heading", name=PAGES[page].title, exact=True).wait_for()
            visit.page.wait_for_function(_DRAWN, polling=20)
            if cold or turn:
                times.append(time.perf_counter() - started)
    return times


def _interactions(url: str) -> dict[str, tuple[str, str, list[Action]]]:
    """By name: the address, its title, and actions that are done in turn, each until its answer is there."""

    def search(text: str) -> Action:
        def act(visit: Visit) -> None:
            before = visit.page.get_by_text("newest first").inner_text()
            visit.page.get_by_placeholder("model or backend").fill(text)
            visit.page.wait_for_function("(before) => !document.body.innerText.includes(before)", arg=before, polling=20)

        return act

    def press(name: str, parameter: str) -> Action:
        def act(visit: Visit) -> None:
            visit.page.get_by_role("radio", name=name, exact=True).click()
            visit.page.wait_for_function(f"() => location.search.includes('{parameter}')", polling=20)
            visit.page.wait_for_function(_DRAWN, polling=20)

        return act

    def into_cell(visit: Visit) -> None:
        visit.page.get_by_role("table").first.get_by_role("link").first.click()
        visit.page.get_by_role("heading", name="Cell", exact=True).wait_for()
        visit.page.wait_for_function(_DRAWN, polling=20)
        visit.page.go_back()
        visit.page.get_by_role("heading", name="Matrix", exact=True).wait_for()

    return {
        "matrix: search": ("matrix?engine=vllm", "Matrix", [search("backend-01"), search("model-01"), search("model-01 backend-01")]),
        "matrix: speed view": ("matrix?engine=vllm", "Matrix", [press("Speed", "view=speed")]),
        "matrix: failing only": ("matrix?engine=vllm", "Matrix", [press("Failing now", "only=failing")]),
        "cell: metric": ("cell?engine=vllm", "Cell", [press("TTFT", "metric=ttft_s"), press("Memory", "metric=memory")]),
        "matrix to cell and back": ("matrix?engine=vllm", "Matrix", [into_cell]),
    }


def _interaction(browser: Browser, url: str, address: str, title: str, actions: list[Action], repeats: int) -> list[float]:
    times = []
    for turn in range(repeats + 1):
        with visiting(browser, url) as visit:
            visit.open(address, title)
            _quiet(visit.page)
            for act in actions:
                started = time.perf_counter()
                act(visit)
                if turn:
                    times.append(time.perf_counter() - started)
                _quiet(visit.page)
    return times


def _quiet(page: Page) -> None:
    page.wait_for_function(_DRAWN, polling=50)
    page.wait_for_timeout(300)


def _table(found: dict[str, object]) -> str:
    lines = [f"{found['boots']:,} boots, load average {found['load_average']:.1f} when it began", ""]
    for kind in ("first_paint_s", "interaction_s"):
        own = found[kind]
        assert isinstance(own, dict)
        lines.append(f"{kind:28} median    worst")
        lines += [f"  {name:26} {statistics.median(times):6.2f}   {max(times):6.2f}" for name, times in own.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
