"""Find out, once per server, which optional request fields it accepts.

Trap: one field that a new release refuses turns every request into a 400, and the tool exits 0 with empty numbers (llama-benchy against
newer SGLang). Rule: all optional fields are tried together; if the server refuses, one after the other; a refused field is dropped and
recorded, and what its loss costs is said (M8).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from runners.sse import read_trace
from runners.stream import COMPLETIONS, StreamPolicy, Target, open_client, record_stream
from runners.stream_trace import FailureKind, StreamFailure

INCLUDE_USAGE = "stream_options.include_usage"
CONTINUOUS_USAGE = "stream_options.continuous_usage_stats"
IGNORE_EOS = "ignore_eos"
MIN_TOKENS = "min_tokens"
SKIP_SPECIAL_TOKENS = "skip_special_tokens"
RETURN_TOKEN_IDS = "return_token_ids"

TIMED_FIELDS = (INCLUDE_USAGE, CONTINUOUS_USAGE, IGNORE_EOS, MIN_TOKENS, SKIP_SPECIAL_TOKENS)
"""What a timed request wants. `skip_special_tokens` false makes special tokens visible, so that the first text is the first token."""

COST_OF_LOSS = {
    INCLUDE_USAGE: "token counts may be missing, and a sample without them is invalid",
    CONTINUOUS_USAGE: "the tokens of the first chunk are unknown, so decode rates and inter-token latencies are null",
    IGNORE_EOS: "a stream may stop early, and a sample with fewer tokens than asked is invalid",
    MIN_TOKENS: "a stream may stop early, and a sample with fewer tokens than asked is invalid",
    SKIP_SPECIAL_TOKENS: "special tokens are invisible, so time to first token may be null",
}

PROBE_TOKENS = 4
_REFUSALS = frozenset({400, 422})


@dataclass(frozen=True)
class Refusal:
    """One field the server refused, with its own words."""

    name: str
    reason: str


@dataclass(frozen=True)
class RequestFields:
    """Fields that the server accepts together, and those dropped. `failure`: the probe itself failed, and nothing is known."""

    accepted: frozenset[str]
    dropped: tuple[Refusal, ...] = ()
    failure: StreamFailure | None = None

    @property
    def dropped_names(self) -> tuple[str, ...]:
        """For `RunRecord.dropped_request_fields`."""
        return tuple(refusal.name for refusal in self.dropped)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence per dropped field: what was refused and what that costs."""
        return tuple(f"request field {r.name} refused ({r.reason}): {COST_OF_LOSS.get(r.name, 'not sent')}" for r in self.dropped)


def timed_body(model: str, prompt_ids: Sequence[int], max_tokens: int, accepted: frozenset[str]) -> dict[str, Any]:
    """A greedy streaming completion request for exactly `max_tokens` tokens, with the accepted optional fields (M12)."""
    values: Mapping[str, Any] = {IGNORE_EOS: True, MIN_TOKENS: max_tokens, SKIP_SPECIAL_TOKENS: False, RETURN_TOKEN_IDS: True}
    body: dict[str, Any] = {"model": model, "prompt": list(prompt_ids), "max_tokens": max_tokens, "temperature": 0, "stream": True}
    options = {name.partition(".")[2]: True for name in (INCLUDE_USAGE, CONTINUOUS_USAGE) if name in accepted}
    if options:
        body["stream_options"] = options
    return body | {name: value for name, value in values.items() if name in accepted}


def probe_request_fields(
    target: Target, prompt_ids: Sequence[int], fields: Sequence[str] = TIMED_FIELDS, policy: StreamPolicy | None = None
) -> RequestFields:
    """Ask the server with short requests. Only 400 and 422 are refusals; anything else that goes wrong is the probe's `failure`.

    One request if all fields are accepted, else one without any (must pass, or the endpoint itself is unusable) and one per field.
    """
    unknown = sorted(set(fields) - {INCLUDE_USAGE, CONTINUOUS_USAGE, IGNORE_EOS, MIN_TOKENS, SKIP_SPECIAL_TOKENS, RETURN_TOKEN_IDS})
    if unknown:
        raise ValueError(f"no such optional request field: {', '.join(unknown)}")
    return asyncio.run(_probe(target, prompt_ids, fields, policy or StreamPolicy()))


async def _probe(target: Target, prompt_ids: Sequence[int], fields: Sequence[str], policy: StreamPolicy) -> RequestFields:
    async with open_client(target) as client:

        async def ask(accepted: frozenset[str]) -> StreamFailure | None:
            body = timed_body(target.model, prompt_ids, PROBE_TOKENS, accepted)
            return await _ask(client, body, policy)

        everything = frozenset(fields)
        failure = await ask(everything)
        if failure is None:
            return RequestFields(everything)
        if not _refused(failure):
            return RequestFields(frozenset(), failure=failure)
        failure = await ask(frozenset())
        if failure is not None:
            return RequestFields(frozenset(), failure=replace(failure, detail=f"without optional fields: {failure.detail}"))
        accepted, dropped = frozenset[str](), list[Refusal]()
        for name in fields:
            failure = await ask(accepted | {name})
            if failure is None:
                accepted |= {name}
            elif _refused(failure):
                dropped.append(Refusal(name, failure.detail))
            else:
                return RequestFields(frozenset(), failure=failure)
        return RequestFields(accepted, tuple(dropped))


async def _ask(client: httpx.AsyncClient, body: Mapping[str, Any], policy: StreamPolicy) -> StreamFailure | None:
    raw = await record_stream(client, COMPLETIONS, body, policy)
    return read_trace(raw, PROBE_TOKENS).failure


def _refused(failure: StreamFailure) -> bool:
    return failure.kind in (FailureKind.HTTP_STATUS, FailureKind.ERROR_EVENT) and failure.status in _REFUSALS
