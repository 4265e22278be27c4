"""The API key of an `@endpoint`: sent to that endpoint, and nowhere else.

Trap: a key ends up in the results because a server repeats it in an error, or on the wire because the URL says http. Rule: it comes from
one environment variable, is sent to the endpoint only, never unencrypted to another machine, and whatever a server says is cleaned of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from results.redact import HIDDEN
from runners.errors import UsageError
from runners.server_client import API_KEY_VARIABLE, is_loopback


def key_headers(base_url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The Authorization header for this endpoint; empty without a key.

    Raises UsageError (without showing the key) if it cannot be a header, or would travel unencrypted to another machine.
    """
    key = environment.get(API_KEY_VARIABLE, "").strip()
    if not key:
        return {}
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            "the API key holds characters that no header can carry.", where=API_KEY_VARIABLE, todo="Set it again, without spaces."
        )
    if urlsplit(base_url).scheme != "https" and not is_loopback(base_url):
        message = "the API key would travel unencrypted to another machine."
        raise UsageError(message, where=API_KEY_VARIABLE, todo="Use an https:// endpoint, a tunnel to 127.0.0.1, or unset the key.")
    return {"Authorization": f"Bearer {key}"}


def conceal(text: str, environment: Mapping[str, str]) -> str:
    """`text` without the key, whatever form the server gave it back in."""
    key = environment.get(API_KEY_VARIABLE, "").strip()
    return text.replace(key, HIDDEN) if len(key) >= 4 else text
