"""The dashboard as a web application: Streamlit behind one header that forbids every address but its own.

Trap: a page that shows logs, model names and other people's claims asks another host for an image, a font or a map, and a node without a
network waits for it while a node with one tells where it is. Rule: everything is served from here, and the browser is told so
(Content-Security-Policy), so that nothing that slips into a page can fetch or send anything.
"""

from __future__ import annotations

from pathlib import Path

import streamlit
from starlette.middleware import Middleware
from streamlit.starlette import App

# The heavy libraries are loaded before the first visit, not during it. (What keeps answers is not: there is nothing yet to keep them in.)
from dashboard import charts  # noqa: F401
from dashboard.assets import Application, FromMemory, Message, Receive, Send
from results import compare, self_checks  # noqa: F401
from results.report import issue_rows  # noqa: F401

POLICY = "; ".join(
    (
        "default-src 'self'",
        # Streamlit's bundle compiles chart expressions and starts components from blobs of its own.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob:",
        "worker-src 'self' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "frame-src 'none'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)

_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)

_STATIC = Path(streamlit.__file__).parent / "static" / "static"


class OwnOriginOnly:
    """ASGI middleware that adds the headers to every HTTP answer."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._application(scope, receive, send_with_headers if scope["type"] == "http" else send)


app = App(Path(__file__).with_name("app.py"), middleware=[Middleware(OwnOriginOnly), Middleware(FromMemory, static=_STATIC)])
