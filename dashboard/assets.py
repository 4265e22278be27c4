"""Streamlit's own scripts, styles and fonts from memory.

Trap: a page of Streamlit is a hundred small modules. Each is looked up, opened and read in pieces anew for every visitor, so that a first
paint mostly waits for files. Rule: the bytes of a file are read once. (Naming the modules in advance by `modulepreload` does not help: the
browser then compiles what draws charts before it shows the heading.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

_KINDS = {".js": b"text/javascript", ".css": b"text/css", ".woff2": b"font/woff2"}
_A_YEAR = b"public, immutable, max-age=31536000"


class FromMemory:
    """ASGI middleware that answers GET below `/static/`. `static` is Streamlit's folder; a path that is no file of it goes on."""

    def __init__(self, application: Application, static: Path) -> None:
        self._application = application
        self._files = {f"/static/{path.relative_to(static).as_posix()}": path for path in static.rglob("*") if path.suffix in _KINDS}
        self._answer = cache(_answer)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        path = self._files.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        if path is None:
            await self._application(scope, receive, send)
            return
        headers, body = self._answer(path)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _answer(path: Path) -> tuple[list[tuple[bytes, bytes]], bytes]:
    body = path.read_bytes()
    return [(b"content-type", _KINDS[path.suffix]), (b"content-length", str(len(body)).encode()), (b"cache-control", _A_YEAR)], body
