"""A real dashboard process and a real browser that may talk to nobody else."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, Route, sync_playwright

REPOSITORY = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_START_S = 60.0


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """The dashboard over the store at `root` as a process of its own; gives its address and ends it."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with started(lambda port: ["-m", "dashboard", "--store", str(root), "--port", str(port)], root.parent) as url:
        yield url


@contextmanager
def started(arguments: Callable[[int], list[str]], folder: Path) -> Iterator[str]:
    """A server of Streamlit, by the arguments of Python that start it on a port; its log is kept in `folder`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / f"dashboard-{port}.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-P", *arguments(port)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(server, url, log)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(10)


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"the dashboard did not start: {log.read_text(errors='replace')[-2000:]}")


@dataclass
class Visit:
    """One visitor: a page, every request it made that was not to the dashboard, and every error its console showed."""

    page: Page
    url: str
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, address: str, title: str) -> None:
        """Go to an address of the dashboard and wait until its page is drawn."""
        self.page.goto(f"{self.url}/{address}")
        self.settled(title)

    def settled(self, title: str) -> None:
        """Wait until the page of this title is there and nothing runs any more."""
        self.page.get_by_role("heading", name=title, exact=True).wait_for(timeout=30_000)
        self.page.wait_for_function("!document.querySelector('[data-testid=stStatusWidget]')", timeout=30_000)


@contextmanager
def browsing() -> Iterator[Browser]:
    """Headless Chromium of the system."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visiting(browser: Browser, url: str, *, width: int = 1280, scheme: str = "light") -> Iterator[Visit]:
    """A fresh visitor. A request to anything but the dashboard is refused and noted."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light")
    visit = Visit(context.new_page(), url)

    def guard(route: Route) -> None:
        if route.request.url.startswith(url):
            route.continue_()
        else:
            visit.outside.append(route.request.url)
            route.abort()

    context.route("**/*", guard)
    visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
    visit.page.on("websocket", lambda socket_: None if socket_.url.startswith(f"ws{url[4:]}") else visit.outside.append(socket_.url))
    try:
        yield visit
    finally:
        context.close()
