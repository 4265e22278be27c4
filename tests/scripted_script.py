"""What the scripted server does with one request: a `Script`, and the bytes and pauses of the stream it makes.

Trap: a client tested only against well-behaved servers counts the first misbehaviour as a measurement. Rule: every way in which an engine
was seen to misbehave is one field here, and a test names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Act(StrEnum):
    """What to do when a step's bytes are sent."""

    GO_ON = "go_on"
    HANG = "hang"
    DROP = "drop"
    DIE = "die"


@dataclass(frozen=True)
class Step:
    """Wait `delay_s`, send `data`, which holds `tokens` new ones, in one piece, then `act`."""

    delay_s: float
    data: bytes
    act: Act = Act.GO_ON
    tokens: int = 0


@dataclass(frozen=True)
class Script:
    """Behaviour of the streaming endpoints. Counts are tokens unless they say otherwise; `*_after` are counts of chunks already sent."""

    first_chunk_tokens: int = 1
    chunk_tokens: int = 1
    first_delay_s: float = 0.02
    step_s: float = 0.004
    finish_delay_s: float = 0.0
    finish_apart: bool = False
    fields: tuple[str, ...] = ("content",)
    """Delta fields of a chat stream that carry the text; several carry copies of it. A completion always uses `text`."""
    role_chunk: bool = True
    null_text: bool = False
    usage: str = "continuous"
    """`continuous`, `final` or `absent`; only what the request asked for is sent."""
    cached_tokens: int | None = 0
    page_size: int | None = None
    """If set, cached tokens are those of a real prefix cache with pages of this size."""
    extra_prompt_tokens: int = 0
    stop_after_tokens: int | None = None
    done: bool = True
    status: int | None = None
    refuses: frozenset[str] = field(default_factory=frozenset)
    refuse_status: int = 400
    error_after: int | None = None
    error_form: str = "data"
    """`event`: an `error` event; `data`: `{"error": {...}}`; `object`: `{"object": "error", ...}`; `finish`: a finish reason `abort`."""
    burst: bool = False
    hang_after: int | None = None
    drop_after: int | None = None
    die_after: int | None = None
    """The whole server goes away: this connection, all others and the listener."""
    newline: str = "\n"
    comments: bool = False
    piece_bytes: int | None = None
    metrics_factor: float = 1.0
    draft_tokens: int = 0
    """Tokens drafted for every chunk of a stream, by the metrics; all but one of its tokens are accepted ones. 0: no speculation."""
    greedy: str = "answers"
    """Non-streaming answers: `answers` (as told), `flood` (one token for ever), `wrong` (one token changed)."""
    streamed: str = "answers"
    """Streams of a prompt whose answer is known: `answers` (as told), `loses` (the third token's text never arrives)."""
    scores: str = "answers"
    """Log-probabilities of a given text: `answers`, `drift` (all 2 nats lower), `nan` (refused as vLLM does), `refused` (HTTP 400)."""


SCRIPTS: Mapping[str, Script] = {
    "good": Script(),
    "slow": Script(step_s=0.012),
    "speculative": Script(first_chunk_tokens=4, chunk_tokens=4, step_s=0.01, draft_tokens=6),
    "flood": Script(greedy="flood"),
    "wrong": Script(greedy="wrong"),
    "loses_text": Script(streamed="loses"),
    "scores_drift": Script(scores="drift"),
    "scores_nan": Script(scores="nan"),
    "scores_refused": Script(scores="refused"),
    "refuses_usage": Script(refuses=frozenset({"stream_options"})),
    "refuses_token_ids": Script(refuses=frozenset({"return_token_ids"})),
    "final_usage": Script(usage="final"),
    "burst": Script(burst=True),
    "null_text": Script(null_text=True),
    "early_stop": Script(stop_after_tokens=13),
    "error_event": Script(error_after=10, error_form="event"),
    "hangs": Script(hang_after=10),
    "drops": Script(drop_after=10),
    "dies": Script(die_after=10),
    "warm_cache": Script(cached_tokens=96),
}


def refused_fields(script: Script, body: Mapping[str, Any]) -> list[str]:
    """Entries of `script.refuses` that `body` has; `a.b` means key b of object a, `a+b` both of them at once."""
    return [entry for entry in sorted(script.refuses) if all(_has(body, name) for name in entry.split("+"))]


def _has(body: Mapping[str, Any], name: str) -> bool:
    outer, _, inner = name.partition(".")
    value = body.get(outer)
    return outer in body and (not inner or (isinstance(value, Mapping) and inner in value))


@dataclass(frozen=True)
class StreamRequest:
    """One streaming request and the counts its usage reports; `cached` None: not reported. `pieces`: what is written, token by token; empty
    means as many tokens as were asked for."""

    body: Mapping[str, Any]
    chat: bool
    prompt_tokens: int
    cached: int | None
    pieces: tuple[str, ...] = ()

    def text(self, first: int, new: int) -> str:
        """The text of `new` tokens from number `first` on."""
        return "".join(self.pieces[first : first + new] if self.pieces else (f" t{n}" for n in range(first, first + new)))

    @property
    def finish(self) -> str:
        """An answer ends by itself, any number of tokens by their number."""
        return "stop" if self.pieces else "length"


def stream_steps(script: Script, request: StreamRequest) -> Iterator[Step]:
    """The stream for one request, in order; the server may cut the bytes of a step further."""
    steps = list(_token_steps(script, request))
    if script.burst:
        last = steps[-1].act if steps else Act.GO_ON
        steps = [Step(sum(s.delay_s for s in steps), b"".join(s.data for s in steps), last, sum(s.tokens for s in steps))]
    yield from steps
    if steps and steps[-1].act is not Act.GO_ON:
        return
    if script.error_after is None and _wants(request.body, "include_usage") and script.usage != "absent":
        usage = _usage(request.prompt_tokens, _token_count(script, request), request.cached)
        yield Step(0.0, _event(script, {"object": "chunk", "choices": [], "usage": usage}))
    if script.done:
        yield Step(0.0, f"data: [DONE]{script.newline * 2}".encode())


def _token_steps(script: Script, request: StreamRequest) -> Iterator[Step]:
    if request.chat and script.role_chunk:
        yield Step(0.0, _event(script, _chunk(script, request, 0, {"role": "assistant", "content": ""}, None)))
    total, sent, chunks = _token_count(script, request), 0, 0
    while sent < total:
        for limit, act in ((script.hang_after, Act.HANG), (script.drop_after, Act.DROP), (script.die_after, Act.DIE)):
            if chunks == limit:
                yield Step(0.0, b"", act)
                return
        if chunks == script.error_after:
            yield Step(0.0, _error(script))
            return
        new = min(script.first_chunk_tokens if chunks == 0 else script.chunk_tokens, total - sent)
        text = None if script.null_text else request.text(sent, new)
        sent, chunks = sent + new, chunks + 1
        finish = request.finish if sent == total and not script.finish_apart else None
        delta = dict.fromkeys(script.fields, text) if request.chat else {"text": text}
        comment = f": keep-alive {chunks}{script.newline * 2}".encode() if script.comments else b""
        event = _event(script, _chunk(script, request, sent, delta, finish))
        yield Step(script.first_delay_s if chunks == 1 else script.step_s, comment + event, tokens=new)
    if script.finish_apart:
        delta = {"content": None} if request.chat else {"text": ""}
        yield Step(script.finish_delay_s, _event(script, _chunk(script, request, sent, delta, "length")))


def _chunk(script: Script, request: StreamRequest, sent: int, delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    choice |= {"delta": delta} if request.chat else delta
    chunk: dict[str, Any] = {"object": "chat.completion.chunk" if request.chat else "text_completion", "choices": [choice]}
    if script.usage == "continuous" and _wants(request.body, "continuous_usage_stats"):
        chunk["usage"] = _usage(request.prompt_tokens, sent, None)
    return chunk


def _token_count(script: Script, request: StreamRequest) -> int:
    asked = len(request.pieces) or int(request.body.get("max_tokens") or 16)
    return asked if script.stop_after_tokens is None else min(asked, script.stop_after_tokens)


def _usage(prompt_tokens: int, completion_tokens: int, cached: int | None) -> dict[str, Any]:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": prompt_tokens + completion_tokens}
    return counts | details


def _wants(body: Mapping[str, Any], option: str) -> bool:
    options = body.get("stream_options")
    return isinstance(options, Mapping) and options.get(option) is True


def _error(script: Script) -> bytes:
    error = {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}
    if script.error_form == "event":
        return f"event: error{script.newline}".encode() + _event(script, error)
    if script.error_form == "object":
        return _event(script, {"object": "error", **error})
    if script.error_form == "finish":
        return _event(script, {"choices": [{"index": 0, "text": "", "finish_reason": "abort"}]})
    return _event(script, {"error": error})


def _event(script: Script, payload: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(payload)}{script.newline * 2}".encode()
