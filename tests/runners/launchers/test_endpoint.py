from __future__ import annotations

import pytest

from runners.errors import UsageError
from runners.launchers.endpoint import conceal, key_headers
from runners.server_client import API_KEY_VARIABLE

KEY = "k-12345"


@pytest.mark.parametrize("url", ["https://example.org", "http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost:8000"])
def test_a_key_is_sent_where_nobody_else_can_read_it(url: str) -> None:
    assert key_headers(url, {API_KEY_VARIABLE: KEY}) == {"Authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("environment", [{}, {API_KEY_VARIABLE: ""}, {API_KEY_VARIABLE: "  "}])
def test_without_a_key_nothing_is_sent(environment: dict[str, str]) -> None:
    assert key_headers("http://10.0.0.7:8000", environment) == {}


@pytest.mark.parametrize(
    ("url", "key", "words"),
    [
        ("http://10.0.0.7:8000", KEY, "unencrypted"),
        ("http://spark.local:8000", KEY, "unencrypted"),
        ("https://example.org", "two words", "no header can carry"),
        ("https://example.org", "a\nX-Other: 1", "no header can carry"),
        ("https://example.org", "schlüssel", "no header can carry"),
    ],
)
def test_a_key_that_must_not_travel_is_refused_without_being_shown(url: str, key: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        key_headers(url, {API_KEY_VARIABLE: key})
    assert key not in str(caught.value)


def test_a_key_that_a_server_repeats_is_concealed() -> None:
    assert conceal(f"invalid key {KEY}!", {API_KEY_VARIABLE: KEY}) == "invalid key [redacted]!"
    assert conceal("nothing", {}) == "nothing"
