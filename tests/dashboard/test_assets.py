"""Streamlit's own files from memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import streamlit

from dashboard.assets import FromMemory, Message, Receive, Send

STATIC = Path(streamlit.__file__).parent / "static" / "static"


async def _page(scope: Message, receive: Receive, send: Send) -> None:
    """What lies behind it: a page for every path."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html; charset=utf-8")]})
    await send({"type": "http.response.body", "body": b"a page"})


def _get(application: FromMemory, path: str, method: str = "GET") -> tuple[dict[bytes, bytes], bytes]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    asyncio.run(application({"type": "http", "method": method, "path": path}, receive, send))
    return dict(sent[0]["headers"]), sent[1]["body"]


@pytest.fixture
def static(tmp_path: Path) -> Path:
    (tmp_path / "outside.js").write_text("outside")
    scripts = tmp_path / "static" / "js"
    scripts.mkdir(parents=True)
    (scripts / "one.js").write_text("export const x = 1")
    (scripts / "later.js").write_text("")
    return tmp_path / "static"


def test_a_script_is_answered_from_memory_and_kept_by_the_browser(static: Path) -> None:
    application = FromMemory(_page, static)
    headers, body = _get(application, "/static/js/later.js")
    assert body == b""
    headers, body = _get(application, "/static/js/one.js")
    (static / "js" / "one.js").unlink()
    assert (headers, body) == _get(application, "/static/js/one.js")
    assert headers == {
        b"content-type": b"text/javascript",
        b"content-length": str(len(body)).encode(),
        b"cache-control": b"public, immutable, max-age=31536000",
    }


@pytest.mark.parametrize("path", ["/static/../outside.js", "/static/js/../../outside.js", "/static//etc/passwd", "/static/js", "/cell"])
def test_what_is_no_file_of_the_folder_is_left_to_the_application(static: Path, path: str) -> None:
    assert _get(FromMemory(_page, static), path)[1] == b"a page"


def test_another_method_is_left_to_the_application(static: Path) -> None:
    assert _get(FromMemory(_page, static), "/static/js/one.js", "POST")[1] == b"a page"


def test_what_streamlit_has_of_other_kinds_is_left_to_it() -> None:
    assert _get(FromMemory(_page, STATIC), "/static/media/fireworks.B4d-_KUe.gif")[1] == b"a page"
