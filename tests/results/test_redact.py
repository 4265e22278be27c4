from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.redact import plain, redact, redact_argv, redact_environment

SECRET = "s3cr3t-Value-123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@mirror.example/simple",
        f"Authorization: Bearer {SECRET}",
        f"api_key='{SECRET}'",
        f'{{"hf_token": "{SECRET}"}}',
        f"serve --api-key {SECRET} --port 1",
        f"password={SECRET}",
        f"admin_api_key={SECRET},",
    ],
)
def test_a_secret_never_survives(text: str) -> None:
    assert SECRET not in redact(text)


def test_known_token_shapes_are_hidden_wherever_they_stand() -> None:
    token = "hf_" + "abcdefghijklmnopqrstuvwxyz"
    assert token not in redact(f"loading with {token} now")


@pytest.mark.parametrize(
    "text",
    ["api_key=None, host='127.0.0.1'", "vocab_size=1024 bos_token_id=1019", "https://mirror.example/simple", "max_total_num_tokens=4096"],
)
def test_ordinary_log_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_commands_hide_the_value_after_a_secret_option() -> None:
    assert redact_argv(["serve", "--api-key", "abc", "--port", "1"]) == ("serve", "--api-key", "[redacted]", "--port", "1")


def test_environments_hide_values_by_the_name_of_the_variable() -> None:
    shown = redact_environment({"HF_TOKEN": "abc", "AWS_SECRET_ACCESS_KEY": "abc", "VLLM_LOGGING_COLOR": "0", "MY_API_KEY": "x"})
    assert shown == {
        "HF_TOKEN": "[redacted]",
        "AWS_SECRET_ACCESS_KEY": "[redacted]",
        "VLLM_LOGGING_COLOR": "0",
        "MY_API_KEY": "[redacted]",
    }


def test_escape_sequences_are_stripped_from_what_is_shown() -> None:
    assert plain("\x1b[31mred\x1b[0m \x1b]0;title\x07after\x1b[2J") == "red after"
    assert "\x1b" not in plain("\x1b")
    assert "\u202e" not in plain("abc\u202edef")


@given(st.text(max_size=300))
def test_nothing_shown_can_move_the_cursor(text: str) -> None:
    shown = plain(text, limit=100)
    assert len(shown) <= 100
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in shown)


@given(st.text(max_size=300))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)
