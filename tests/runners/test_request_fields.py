"""Which optional request fields a server accepts, found once, with every refusal recorded."""

from __future__ import annotations

import pytest

from runners.request_fields import (
    CONTINUOUS_USAGE,
    IGNORE_EOS,
    INCLUDE_USAGE,
    MIN_TOKENS,
    RETURN_TOKEN_IDS,
    TIMED_FIELDS,
    RequestFields,
    probe_request_fields,
    timed_body,
)
from runners.stream import StreamPolicy, Target
from runners.stream_trace import FailureKind
from tests.scripted_script import Script
from tests.scripted_server import ScriptedServer

PROMPT = tuple(range(40))


def probed(script: Script, fields: tuple[str, ...] = TIMED_FIELDS, policy: StreamPolicy | None = None) -> tuple[RequestFields, int]:
    """The result, and how many requests it took."""
    with ScriptedServer(script) as server:
        result = probe_request_fields(Target(server.base_url, "m"), PROMPT, fields, policy)
        return result, len(server.engine.streamed())


def test_server_that_accepts_all_is_asked_once() -> None:
    result, requests = probed(Script())
    assert (result.accepted, result.dropped, result.failure, requests) == (frozenset(TIMED_FIELDS), (), None, 1)


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(
    ("refused", "dropped"),
    [
        ({"return_token_ids"}, {RETURN_TOKEN_IDS}),
        ({"ignore_eos"}, {IGNORE_EOS}),
        ({"min_tokens", "return_token_ids"}, {MIN_TOKENS, RETURN_TOKEN_IDS}),
        ({"stream_options.continuous_usage_stats"}, {CONTINUOUS_USAGE}),
        ({"stream_options"}, {INCLUDE_USAGE, CONTINUOUS_USAGE}),
        ({"ignore_eos+min_tokens"}, {MIN_TOKENS}),
    ],
)
def test_exactly_the_refused_fields_are_dropped(refused: set[str], dropped: set[str], status: int) -> None:
    fields = (*TIMED_FIELDS, RETURN_TOKEN_IDS)
    result, _ = probed(Script(refuses=frozenset(refused), refuse_status=status), fields)
    assert set(result.dropped_names) == dropped
    assert result.accepted == frozenset(fields) - dropped
    assert all(f"HTTP {status}" in refusal.reason for refusal in result.dropped)
    assert result.failure is None


def test_loss_of_early_stop_protection_is_said() -> None:
    result, _ = probed(Script(refuses=frozenset({"ignore_eos"})))
    (warning,) = result.warnings
    assert warning.startswith("request field ignore_eos refused (HTTP 400: ")
    assert "fewer tokens than asked is invalid" in warning


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (Script(status=500), FailureKind.HTTP_STATUS),
        (Script(status=401), FailureKind.HTTP_STATUS),
        (Script(drop_after=1), FailureKind.DROPPED),
        (Script(hang_after=1), FailureKind.IDLE_TIMEOUT),
        (Script(error_after=1), FailureKind.ERROR_EVENT),
    ],
)
def test_broken_server_is_a_failure_not_a_refusal(script: Script, kind: FailureKind) -> None:
    result, requests = probed(script, policy=StreamPolicy(idle_s=0.3))
    assert result.failure is not None
    assert (result.failure.kind, result.accepted, result.dropped, requests) == (kind, frozenset(), (), 1)


def test_server_that_refuses_the_plain_request_is_unusable() -> None:
    result, requests = probed(Script(refuses=frozenset({"prompt"})))
    assert result.failure is not None
    assert result.failure.detail.startswith("without optional fields: HTTP 400")
    assert (result.accepted, requests) == (frozenset(), 2)


def test_unknown_field_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="no such optional request field: speed"):
        probe_request_fields(Target("http://127.0.0.1:9", "m"), PROMPT, ("speed",))


def test_body_carries_only_accepted_fields() -> None:
    plain = {"model": "m", "prompt": [1, 2], "max_tokens": 7, "temperature": 0, "stream": True}
    assert timed_body("m", (1, 2), 7, frozenset()) == plain
    assert timed_body("m", (1, 2), 7, frozenset({MIN_TOKENS, INCLUDE_USAGE})) == {
        **plain,
        "min_tokens": 7,
        "stream_options": {"include_usage": True},
    }
    assert timed_body("m", (1, 2), 7, frozenset(TIMED_FIELDS)) == {
        **plain,
        "ignore_eos": True,
        "min_tokens": 7,
        "skip_special_tokens": False,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
