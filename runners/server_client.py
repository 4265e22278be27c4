"""Short questions to a server: health, models, version, one token, metrics. Never raises for a server that misbehaves.

Trap: a proxy from the environment answers for the loopback server, or a huge answer fills our memory. Rule: no proxy for loopback, every
answer is bounded in size and time, and what came instead of an answer is said in words.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from results.redact import plain
from runners.engines.base import HttpRequest

API_KEY_VARIABLE = "SPARKPROOF_API_KEY"
"""Environment variable that holds an endpoint's API key; it is sent, never stored or shown."""

_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Answer:
    """`status` 0 means that no answer came, `problem` then says why. `data` is the parsed JSON, or the text of a non-JSON answer."""

    status: int
    data: Any = None
    problem: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the server answered 200."""
        return self.status == 200


def is_loopback(base_url: str) -> bool:
    """Whether the server is on this machine."""
    host = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ServerClient:
    """Synchronous questions to one server at `base_url` (no trailing slash). `headers` go with each of them."""

    def __init__(self, base_url: str, headers: Mapping[str, str] | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = httpx.Client(
            base_url=self.base_url, trust_env=not is_loopback(base_url), headers=dict(headers or {}), follow_redirects=False
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, request: HttpRequest, timeout_s: float = 10.0) -> Answer:
        """Send one request (GET without a body, else POST) and read a bounded answer."""
        method = "GET" if request.body is None else "POST"
        try:
            with self._http.stream(method, request.path, json=request.body, timeout=timeout_s) as response:
                chunks: list[bytes] = []
                size = 0
                for chunk in response.iter_bytes():
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > _MOST_BYTES:
                        return Answer(response.status_code, None, f"{request.path} answered more than {_MOST_BYTES >> 20} MiB")
                return _read(response.status_code, b"".join(chunks))
        except httpx.TimeoutException:
            return Answer(0, None, f"no answer to {request.path} within {timeout_s:.0f} s")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Answer(0, None, f"{request.path}: {type(error).__name__}: {plain(str(error), 300)}")

    def health(self) -> bool:
        """Whether GET /health answers 200."""
        return self.ask(HttpRequest("/health"), 5.0).ok

    def models(self) -> Sequence[str] | None:
        """Ids of GET /v1/models; None if it gave no list."""
        cards = self.model_cards()
        return None if cards is None else [card["id"] for card in cards]

    def model_cards(self) -> list[dict[str, Any]] | None:
        """Entries of GET /v1/models that have an id; None if it gave no list."""
        answer = self.ask(HttpRequest("/v1/models"))
        data = answer.data.get("data") if answer.ok and isinstance(answer.data, dict) else None
        if not isinstance(data, list):
            return None
        return [card for card in data if isinstance(card, dict) and isinstance(card.get("id"), str)]

    def one_token(self, request: HttpRequest, timeout_s: float = 120.0) -> str | None:
        """None once `request` (one token) succeeded, else what came instead. Raises TimeoutError if nothing came in time."""
        answer = self.ask(request, timeout_s)
        if answer.ok:
            return None
        if answer.status == 0 and answer.problem and "no answer" in answer.problem:
            raise TimeoutError(answer.problem)
        return answer.problem or f"HTTP {answer.status}: {plain(str(answer.data), 300)}"


def _read(status: int, raw: bytes) -> Answer:
    text = raw.decode("utf-8", errors="replace")
    try:
        return Answer(status, json.loads(text))
    except (ValueError, RecursionError):
        return Answer(status, text)
