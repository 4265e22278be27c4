"""Streamlit's own scripts, styles and fonts from memory, and announced before they are asked for.

Trap: a page of Streamlit is a hundred small modules. Each is opened and read anew for every visitor, and those that draw a table or a
chart are only discovered when the first of them arrives, so that a first paint mostly waits for files. Rule: the bytes of a file are
read once, and the answer with the page names the modules that our pages will need (a `Link` header), all of them at our own address.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

AT_ONCE = ("index", "ArrowVegaLiteChart", "BidiComponent", "ButtonGroup", "Html", "Selectbox", "TextInput")
"""What starts every page, and the elements of Streamlit that our pages are made of: it loads each when the first of it arrives."""
LATER = ("DataFrame", "DownloadButton", "StreamlitSyntaxHighlighter")
"""What "Rows behind this" is made of: fetched when nothing else is to be done."""

_IMPORTED = re.compile(r"""(?:\bfrom|\bimport)\s*["']\./([A-Za-z0-9_.-]+\.js)["']""")
_KINDS = {".js": b"text/javascript", ".css": b"text/css", ".woff2": b"font/woff2"}
_A_YEAR = b"public, immutable, max-age=31536000"


def modules_of(scripts: Path, elements: Iterable[str]) -> list[str]:
    """Names of the modules in the folder `scripts` that these elements need, each once; those they import follow them."""
    waiting = [path.name for element in elements for path in sorted(scripts.glob(f"{element}.*.js"))]
    found: dict[str, None] = {}
    while waiting:
        name = waiting.pop(0)
        if name not in found and (scripts / name).is_file():
            found[name] = None
            waiting += _IMPORTED.findall((scripts / name).read_text(encoding="utf-8"))
    return list(found)


class FromMemory:
    """ASGI middleware that answers GET below `/static/` and adds the `Link` header to HTML. `static` is Streamlit's folder of them."""

    def __init__(self, application: Application, static: Path) -> None:
        self._application = application
        self._files = {f"/static/{path.relative_to(static).as_posix()}": path for path in static.rglob("*") if path.suffix in _KINDS}
        self._link = _link(static / "js").encode()
        self._answer = cache(_answer)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = self._files.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        if path is not None:
            headers, body = self._answer(path)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return

        async def send_with_link(message: Message) -> None:
            if message["type"] == "http.response.start" and self._link and _is_html(message):
                message["headers"] = [*message["headers"], (b"link", self._link)]
            await send(message)

        await self._application(scope, receive, send_with_link if scope["type"] == "http" else send)


def _link(scripts: Path) -> str:
    at_once = modules_of(scripts, AT_ONCE)
    later = [name for name in modules_of(scripts, LATER) if name not in at_once]
    links = [f"</static/js/{name}>; rel=modulepreload; crossorigin" for name in at_once]
    return ", ".join([*links, *(f"</static/js/{name}>; rel=prefetch; as=script; crossorigin" for name in later)])


def _answer(path: Path) -> tuple[list[tuple[bytes, bytes]], bytes]:
    body = path.read_bytes()
    return [(b"content-type", _KINDS[path.suffix]), (b"content-length", str(len(body)).encode()), (b"cache-control", _A_YEAR)], body


def _is_html(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/html") for name, value in message.get("headers", ()))
